"""Stands in for the runner of draft graphs."""


class EAGLEDraftCudaGraphRunner:
    """Draft graphs up to a largest batch; warms each size up twice before it captures it."""

    def __init__(self, sizes, draft_forward=None):
        self.capture_bs, self.max_bs, self.draft_forward = sizes, max(sizes), draft_forward

    def can_run_graph(self, forward_batch):
        return forward_batch.batch_size <= self.max_bs

    def capture_one_shape(self, size, forward_batch):
        for _ in range(3):
            self.draft_forward(forward_batch)
