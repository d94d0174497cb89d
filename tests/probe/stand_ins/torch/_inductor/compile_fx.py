from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter


def compile_fx(model_, example_inputs_, inner_compile=None, config_patches=None, decompositions=None):
    if config_patches:
        return compile_fx(model_, example_inputs_, inner_compile)
    return model_


def lower(reason):
    log_cudagraph_skip_and_bump_counter(reason)
