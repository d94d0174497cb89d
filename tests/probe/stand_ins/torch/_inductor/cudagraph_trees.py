from collections import defaultdict

from torch import generation
from torch._inductor import config
from torch._inductor.cudagraph_utils import (
    log_cudagraph_skip_and_bump_counter as log_cudagraph_skip_and_bump_counter,
)
from torch.cuda import CUDAGraph, graph

if generation.since(2, 7):
    from torch._inductor.cudagraph_utils import CheckInvariantStatus

if generation.since(2, 9):

    def is_cudagraph_capture_sizes(int_key):
        return config.triton.cudagraph_capture_sizes is None or int_key in config.triton.cudagraph_capture_sizes


class CUDAGraphNode:
    def __init__(self, address):
        self.address = address
        self.graph = CUDAGraph()
        with graph(self.graph):
            pass

    def check_invariants(self, inputs):
        same = inputs == self.address
        if not generation.since(2, 7):
            return same
        status = CheckInvariantStatus.SUCCESS if same else CheckInvariantStatus.StaticInputIdxMismatch
        return status, lambda: "why"

    def run(self, new_inputs):
        self.graph.replay()
        return new_inputs


class CUDAGraphTreeManager:
    def __init__(self, mutating=()):
        self.nodes = defaultdict(list)
        self.warmed_up_functions = set()
        self.mutating = set(mutating)
        self.non_cudagraph_managed_mutation_hint = defaultdict(dict)

    def run(self, new_inputs, function_id):
        return self._run(new_inputs, function_id)

    def _run(self, new_inputs, function_id):
        self.non_cudagraph_managed_mutation_hint[None][function_id] = function_id in self.mutating
        if function_id in self.mutating:
            return new_inputs
        if function_id not in self.warmed_up_functions:
            return self.run_eager(new_inputs, function_id)
        for node in self.nodes[function_id]:
            result = node.check_invariants(new_inputs)
            status = result[0] if generation.since(2, 7) else result
            if status is True or getattr(status, "name", "") == "SUCCESS":
                return self.execute_node(node, new_inputs)
        return self.record_function(new_inputs, function_id)

    def record_function(self, new_inputs, function_id):
        self.nodes[function_id].append(CUDAGraphNode(new_inputs))
        return new_inputs

    def execute_node(self, node, new_inputs):
        return node.run(new_inputs)

    def run_eager(self, new_inputs, function_id):
        self.warmed_up_functions.add(function_id)
        return new_inputs
