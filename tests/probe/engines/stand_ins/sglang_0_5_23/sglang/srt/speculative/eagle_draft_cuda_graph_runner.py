"""Stands in for the runner of draft graphs."""


class EAGLEDraftCudaGraphRunner:
    """Draft graphs up to a largest batch."""

    def __init__(self, sizes):
        self.capture_bs, self.max_bs = sizes, max(sizes)

    def can_run_graph(self, forward_batch):
        return forward_batch.batch_size <= self.max_bs
