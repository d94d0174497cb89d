#include "record_store.h"

#include <sys/mman.h>

namespace replaywatch::tracer {

bool RecordStore::map() {
  if (records_ != nullptr) return true;
  void *mapping = mmap(nullptr, kCapacity * sizeof(Record), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return false;
  madvise(mapping, kCapacity * sizeof(Record), MADV_DONTDUMP);
  records_ = static_cast<Record *>(mapping);
  return true;
}

bool RecordStore::add(const Record &record) {
  if (size_ == kCapacity) return false;
  records_[size_++] = record;
  return true;
}

void RecordStore::clear() {
  if (size_ != 0) madvise(records_, kCapacity * sizeof(Record), MADV_DONTNEED);
  size_ = 0;
}

}  // namespace replaywatch::tracer
