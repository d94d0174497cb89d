import enum
import logging

from torch import generation
from torch._dynamo.utils import counters

cudagraphs_log = logging.getLogger(
    "torch._inductor.cudagraph_utils." + ("__cudagraphs" if generation.since(2, 11) else "__perf_hints")
)
if not generation.since(2, 11):
    cudagraphs_log.setLevel(logging.CRITICAL)  # off by default


def log_cudagraph_skip_and_bump_counter(msg):
    cudagraphs_log.warning(msg)
    counters["inductor"]["cudagraph_skips"] += 1


if generation.since(2, 7):

    class CheckInvariantStatus(enum.Enum):
        SUCCESS = 1
        CudagraphManagedIdxMismatch = 2
        StaticInputIdxMismatch = 3
        ExpectedDeadIndicesBeforeGraphMismatch = 4

    def maybe_warning_due_to_dynamic_shape(fn_cache, new_int_key):
        return len(fn_cache) + 1 > 8


if generation.since(2, 13):

    class CUDAGraphPolicy:
        def should_wrap(self, compiled_graph):
            return True
