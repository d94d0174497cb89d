// Holds the tracer's own offsets against the headers of one CUPTI release; compiling is the test.
#include <cstddef>

#include "calibrate.h"
#include "cuda_driver.h"
#include "cupti_records.h"
#include "known_pairs.h"

// The real headers, apart from our names.
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_result.h>
#include <cupti_version.h>

namespace rw = replaywatch::tracer;

#if CUPTI_API_VERSION >= 130400
using Kernel = CUpti_ActivityKernel13;
using Copy = CUpti_ActivityMemcpy7;
using Set = CUpti_ActivityMemset5;
#elif CUPTI_API_VERSION >= 130300
using Kernel = CUpti_ActivityKernel12;
using Copy = CUpti_ActivityMemcpy6;
using Set = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 130100
using Kernel = CUpti_ActivityKernel11;
using Copy = CUpti_ActivityMemcpy6;
using Set = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 130000
using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
using Set = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 26
using Kernel = CUpti_ActivityKernel9;
using Copy = CUpti_ActivityMemcpy6;
using Set = CUpti_ActivityMemset4;
#else
using Kernel = CUpti_ActivityKernel9;
using Copy = CUpti_ActivityMemcpy5;
using Set = CUpti_ActivityMemset4;
#endif
using Graph = CUpti_ActivityGraphTrace2;

#define SAME(place, type, member, field)                                              \
  static_assert(rw::place == offsetof(type, member), #type "." #member " has moved"); \
  static_assert(sizeof(field) == sizeof(type::member), #type "." #member " has changed size")

SAME(kernel_record::kStart, Kernel, start, uint64_t);
SAME(kernel_record::kEnd, Kernel, end, uint64_t);
SAME(kernel_record::kDevice, Kernel, deviceId, uint32_t);
SAME(kernel_record::kStream, Kernel, streamId, uint32_t);
SAME(kernel_record::kCorrelation, Kernel, correlationId, uint32_t);
SAME(kernel_record::kName, Kernel, name, const char *);
SAME(kernel_record::kGraphNode, Kernel, graphNodeId, uint64_t);
SAME(kernel_record::kGraph, Kernel, graphId, uint32_t);
SAME(memcpy_record::kCopyKind, Copy, copyKind, uint8_t);
SAME(memcpy_record::kBytes, Copy, bytes, uint64_t);
SAME(memcpy_record::kStart, Copy, start, uint64_t);
SAME(memcpy_record::kEnd, Copy, end, uint64_t);
SAME(memcpy_record::kDevice, Copy, deviceId, uint32_t);
SAME(memcpy_record::kStream, Copy, streamId, uint32_t);
SAME(memcpy_record::kCorrelation, Copy, correlationId, uint32_t);
SAME(memcpy_record::kGraphNode, Copy, graphNodeId, uint64_t);
SAME(memcpy_record::kGraph, Copy, graphId, uint32_t);
SAME(memset_record::kBytes, Set, bytes, uint64_t);
SAME(memset_record::kStart, Set, start, uint64_t);
SAME(memset_record::kEnd, Set, end, uint64_t);
SAME(memset_record::kDevice, Set, deviceId, uint32_t);
SAME(memset_record::kStream, Set, streamId, uint32_t);
SAME(memset_record::kCorrelation, Set, correlationId, uint32_t);
SAME(memset_record::kGraphNode, Set, graphNodeId, uint64_t);
SAME(memset_record::kGraph, Set, graphId, uint32_t);
SAME(graph_record::kCorrelation, Graph, correlationId, uint32_t);
SAME(graph_record::kStart, Graph, start, uint64_t);
SAME(graph_record::kEnd, Graph, end, uint64_t);
SAME(graph_record::kDevice, Graph, deviceId, uint32_t);
SAME(graph_record::kGraph, Graph, graphId, uint32_t);
SAME(graph_record::kStream, Graph, streamId, uint32_t);
SAME(graph_record::kEndDevice, Graph, endDeviceId, uint32_t);

static_assert(offsetof(Kernel, kind) == 0 && offsetof(Copy, kind) == 0 && offsetof(Graph, kind) == 0);
static_assert(rw::kMemcpy == CUPTI_ACTIVITY_KIND_MEMCPY && rw::kMemset == CUPTI_ACTIVITY_KIND_MEMSET);
static_assert(rw::kKernel == CUPTI_ACTIVITY_KIND_KERNEL &&
              rw::kConcurrentKernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(rw::kDriverApi == CUPTI_ACTIVITY_KIND_DRIVER && rw::kRuntimeApi == CUPTI_ACTIVITY_KIND_RUNTIME);
static_assert(rw::kOverhead == CUPTI_ACTIVITY_KIND_OVERHEAD);
static_assert(rw::kGraphTrace == CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
static_assert(rw::kCopyHostToDevice == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
static_assert(rw::kCopyDeviceToDevice == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
static_assert(rw::kCopyPeerToPeer == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
static_assert(rw::kCuptiSuccess == CUPTI_SUCCESS && rw::kCuptiMaxLimitReached == CUPTI_ERROR_MAX_LIMIT_REACHED);
static_assert(rw::kCuptiNotCompatible == CUPTI_ERROR_NOT_COMPATIBLE);
static_assert(rw::kCuptiNotInitialized == CUPTI_ERROR_NOT_INITIALIZED);
static_assert(rw::kCuptiMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);

static_assert(sizeof(rw::KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
static_assert(offsetof(rw::KernelNodeParams, function) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, func));
static_assert(offsetof(rw::KernelNodeParams, shared_bytes) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes));
static_assert(offsetof(rw::KernelNodeParams, kernel_params) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams));
static_assert(offsetof(rw::KernelNodeParams, context) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, ctx));
static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == 2 && CU_STREAM_NON_BLOCKING == 1);
static_assert(CUDA_ERROR_NOT_INITIALIZED == rw::kCudaNotInitialized);
