/* A CUPTI without a device, as strict as the real one: same names, same rules, and an abort with a sentence where the
 * real library crashes. Its clock stands still until told; work is launched by fake_launch_* at given times.
 */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The real ones. */
typedef void (*FakeRequested)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*FakeCompleted)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);
int32_t cuptiGetVersion(uint32_t *version);
int32_t cuptiGetTimestamp(uint64_t *timestamp);
int32_t cuptiGetResultString(int32_t result, const char **text);
int32_t cuptiSubscribe(void **subscriber, void *callback, void *data);
int32_t cuptiUnsubscribe(void *subscriber);
int32_t cuptiFinalize(void);
int32_t cuptiActivityRegisterCallbacks(FakeRequested requested, FakeCompleted completed);
int32_t cuptiActivityEnable(uint32_t kind);
int32_t cuptiActivityDisable(uint32_t kind);
int32_t cuptiActivityFlushAll(uint32_t flag);
int32_t cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, uint8_t **record);
int32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);

/* The world around it. */
void fake_reset(uint32_t version);
void fake_set_clock(uint64_t now_ns);
void fake_advance(uint64_t ns);
/* The clock jumps there when kernels are next switched on: a script of that length then fits any window. */
void fake_jump_when_enabled(uint64_t now_ns);
/* Another client gave CUPTI a clock of its own: from now on it counts `rate` thousandths of a tick in a nanosecond, since
 * `since_ns` of the time of day, and runs. 0: back to the time of day, which stands still. */
void fake_set_ticks(uint64_t since_ns, uint32_t rate);
/* From now on new records have no stamps, as some at the edges of real windows. */
void fake_set_stampless(int32_t on);
/* A record of a kind that another client has switched on. */
void fake_foreign_record(uint32_t kind);
/* 1: another client allows several subscribers, so that the calls without one are refused (13.2 and later). */
void fake_set_multi_subscriber(int32_t on);
/* Holds every disable of kernels until released, so that a script can finish inside a window. */
void fake_hold_disable(int32_t on);
/* Waits until a kind is on (or off); 0 when it did not happen in time. */
int32_t fake_wait_for_kind(uint32_t kind, int32_t on, uint32_t timeout_ms);
uint64_t fake_count(const char *what);

void fake_launch_kernel(uint32_t device, uint32_t stream, const char *name, uint64_t start_ns, uint64_t end_ns);
void fake_launch_copy(uint32_t device, uint32_t stream, uint32_t copy_kind, uint64_t bytes, uint64_t start_ns,
                      uint64_t end_ns);
void fake_launch_set(uint32_t device, uint32_t stream, uint64_t bytes, uint64_t start_ns, uint64_t end_ns);
/* One node of a replay, for drivers that make their own. */
uint32_t fake_next_correlation(void);
void fake_launch_node(uint32_t device, uint32_t stream, const char *name, uint64_t start_ns, uint64_t end_ns,
                      uint32_t graph, uint64_t node, uint32_t correlation);
/* An executable graph; its id. */
uint32_t fake_instantiate(void);
/* One replay: `count` nodes with their streams and times. With `correlation` 0 a fresh one is taken. */
void fake_launch_graph(uint32_t graph, uint32_t device, uint32_t count, const uint32_t *streams, const uint64_t *starts,
                       const uint64_t *ends, uint32_t correlation);

#ifdef __cplusplus
}
#endif
#endif
