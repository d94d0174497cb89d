from torch import generation
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter


def cudagraph_post_compile(example_inputs, compiled_graph, cudagraphs, constants, boxed_forward_device_index):
    if compiled_graph.cudagraph_info.cudagraph_fail_reasons:
        log_cudagraph_skip_and_bump_counter(compiled_graph.disabled_cudagraphs_reason)


if generation.since(2, 9):

    def cudagraph_partition_post_compile(
        example_inputs, compiled_graph, cudagraphs, constants, boxed_forward_device_index
    ):
        if compiled_graph.cudagraph_info.cudagraph_fail_reasons or not compiled_graph.partition_maps:
            return
        compiled_graph.wrapped = True
