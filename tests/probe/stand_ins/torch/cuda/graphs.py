"""torch.cuda.graphs as in the generation at hand."""

from contextlib import suppress

from torch import _C, device, generation

if generation.since(2, 14):

    class RemovableHandle:
        _next = 0

        def __init__(self, registry):
            self.id, self.registry = RemovableHandle._next, registry
            RemovableHandle._next += 1

        def remove(self):
            self.registry.pop(self.id, None)

    _global_capture_start_hooks = {}
    _global_capture_end_hooks = {}
    _global_instantiate_hooks = {}
    _global_replay_start_hooks = {}
    _global_replay_end_hooks = {}
    _global_destroy_hooks = {}

    def _register(registry, fn):
        handle = RemovableHandle(registry)
        registry[handle.id] = fn
        return handle

    def _run_global_hooks(registry, graph):
        for fn in list(registry.values()):
            with suppress(Exception):
                fn(graph)

    def register_graph_capture_start_hook(fn):
        return _register(_global_capture_start_hooks, fn)

    def register_graph_capture_end_hook(fn):
        return _register(_global_capture_end_hooks, fn)

    def register_graph_instantiate_hook(fn):
        return _register(_global_instantiate_hooks, fn)

    def register_graph_replay_start_hook(fn):
        return _register(_global_replay_start_hooks, fn)

    def register_graph_replay_end_hook(fn):
        return _register(_global_replay_end_hooks, fn)

    def register_graph_destroy_hook(fn):
        return _register(_global_destroy_hooks, fn)


class CUDAGraph(_C._CUDAGraph):
    def capture_begin(self, pool=None, capture_error_mode="global"):
        super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)
        if generation.since(2, 14):
            _run_global_hooks(_global_capture_start_hooks, self)

    def capture_end(self):
        super().capture_end()
        if generation.since(2, 14):
            _run_global_hooks(_global_capture_end_hooks, self)
            if not self._keep_graph:
                self.instantiate()

    if generation.since(2, 9):

        def instantiate(self):
            super().instantiate()
            if generation.since(2, 14):
                _run_global_hooks(_global_instantiate_hooks, self)

        def raw_cuda_graph(self):
            return super().raw_cuda_graph()

        def raw_cuda_graph_exec(self):
            return 2

    else:
        raw_cuda_graph = None

    if generation.since(2, 14):

        def register_capture_end_hook(self, fn):
            raise NotImplementedError

        def replay(self):
            if not self._has_graph_exec:
                self.instantiate()
            if _global_replay_start_hooks:
                _run_global_hooks(_global_replay_start_hooks, self)
            try:
                super().replay()
            finally:
                if _global_replay_end_hooks:
                    _run_global_hooks(_global_replay_end_hooks, self)

    else:

        def replay(self):
            super().replay()

    def reset(self):
        super().reset()

    def pool(self):
        return super().pool()


class graph:
    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self.cuda_graph, self.pool, self.stream = cuda_graph, pool, stream

    def __enter__(self):
        self.before = device.stream()
        device.here.stream = 1
        self.cuda_graph.capture_begin(self.pool)

    def __exit__(self, *error):
        try:
            self.cuda_graph.capture_end()
        finally:
            device.here.stream = self.before
