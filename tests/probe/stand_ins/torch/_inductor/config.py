max_autotune = False


class triton:
    cudagraphs = False
    cudagraph_capture_sizes = None
    cudagraph_unexpected_rerecord_limit = 128
