/* The border of libreplaywatch_tracer.so: every call is safe from any thread, throws nothing, and blocks only where it
 * says so. Results are JSON texts written into the caller's buffer; a call that returns a length returns the negative
 * length that it needs when the buffer is too small, and writes nothing.
 */
#ifndef RW_TRACER_H
#define RW_TRACER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RW_TRACER_ABI_VERSION 2

/* Status of calls that return an int and no length. */
enum {
  RW_OK = 0,
  RW_REFUSED = 1,   /* a reason stands in the message or in the JSON text */
  RW_NOT_QUIET = 2, /* pause: the running window did not end in time */
  RW_FAILED = 3     /* a fault inside; the tracer has switched itself off */
};

/* What a step mark says about the step that begins there. */
enum { RW_STEP = 0, RW_STEP_FULL = 1, RW_STEP_PIECEWISE = 2, RW_STEP_EAGER = 3 };

int32_t rw_tracer_abi_version(void);

/* Finds CUPTI in this process (never a second copy) and checks its version. Idempotent. RW_REFUSED: `reason` says why.
 */
int32_t rw_tracer_open(char *reason, size_t capacity);

/* One kernel window of at most `duration_ms`; blocks until its records are aggregated. Returns the length of the JSON.
 */
int64_t rw_tracer_run_window(uint32_t duration_ms, char *json, size_t capacity);

/* Windows on their own: one of `duration_ms` every `period_ms`, on the helper thread. */
int32_t rw_tracer_start(uint32_t period_ms, uint32_t duration_ms);

/* The oldest finished window of the autonomous mode as JSON; 0 when there is none. Never blocks. */
int64_t rw_tracer_collect(char *json, size_t capacity);

/* Ends the running window and allows none until as many resumes; blocks until CUPTI is left alone (at most 3 s). */
int32_t rw_tracer_pause(void);
int32_t rw_tracer_resume(void);

/* Ends the helper thread; blocks until it is gone (at most 3 s). A later start or window begins anew. */
int32_t rw_tracer_stop(void);

/* A step begins at `unix_ns`. Lock-free, a few nanoseconds; for hooks on the launch path. */
void rw_tracer_mark_step(uint32_t kind, uint64_t unix_ns);

/* Slots for bindings to which a call costs more than a store: a mark is `unix_ns & ~3 | kind`, written to the slots in
 * turn. The address stays valid for the life of the process. */
volatile uint64_t *rw_tracer_mark_slots(size_t *count);

/* 1 while a window records: hooks may skip marks otherwise. The address stays valid for the life of the process. */
const volatile uint32_t *rw_tracer_live_flag(void);

/* Other tools in this process that CUPTI would have to be shared with. */
int64_t rw_tracer_neighbours(char *json, size_t capacity);

/* What is known about a CUPTI (its cuptiGetVersion) with the driver that this process has loaded. */
int64_t rw_tracer_version_notes(uint32_t cupti, char *json, size_t capacity);

/* Counters of the tracer itself, and its last reason. */
int64_t rw_tracer_status(char *json, size_t capacity);

/* Measures launch cost and graph node spacing of this host on `device` (-1: the current context, else that of the first
 * device on which there is one); blocks for some milliseconds. Refuses without a context. With `trace` the in-graph gap is read from a kernel window as well. */
int64_t rw_tracer_calibrate(int32_t device, int32_t trace, char *json, size_t capacity);

/* Graph-level records instead of kernels, for the life of the process; refused once CUDA is initialised. */
int32_t rw_tracer_enable_graph_level(char *reason, size_t capacity);

/* The histogram of some values, in the layout of every histogram here; for the tests that hold it against Python's. */
int64_t rw_tracer_histogram(const int64_t *values, size_t count, char *json, size_t capacity);

/* Called by the CUDA driver when CUDA_INJECTION64_PATH points here. Returns 1, always: a fault never stops cuInit. */
int InitializeInjection(void);

/* A probe runs in this process and speaks for it: where the library is injected as well, it says nothing of its own. */
void rw_tracer_leave_to_probe(void);

#ifdef __cplusplus
}
#endif
#endif
