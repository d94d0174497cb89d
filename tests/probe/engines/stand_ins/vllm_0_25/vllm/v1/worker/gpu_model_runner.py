"""Stands in for the first model runner."""

from vllm.config.compilation import CUDAGraphMode
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher


class GPUModelRunner:
    """Dispatches a batch, then runs a draft model of its own where there is one.

    `agreed` limits the second question, once the ranks have agreed; `sharing` asks for a padded size on the way.
    """

    def __init__(self, vllm_config, agreed=None, cascade=False, sharing=False):
        self.vllm_config = vllm_config
        self.compilation_config = vllm_config.compilation_config
        self.speculative_config = vllm_config.speculative_config
        self.cudagraph_dispatcher = CudagraphDispatcher(vllm_config)
        self.drafter = CudagraphDispatcher(vllm_config, CUDAGraphMode.PIECEWISE) if self.speculative_config else None
        self.agreed, self.cascade, self.sharing = agreed, cascade, sharing

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        tokens, counts = scheduler_output.total_num_scheduled_tokens, scheduler_output.num_scheduled_tokens
        if not tokens:
            return None
        self._decide(tokens, self._uniform(counts), self.cascade)
        if self.sharing:
            self._prepare_kv_sharing_fast_prefill(range(len(counts)))
        return "output"

    def sample_tokens(self, grammar_output):
        if self.drafter is not None:
            self._draft(4)

    def _draft(self, tokens):
        result = self.drafter.dispatch(tokens, valid_modes=None)
        if self.agreed is not None:
            self.drafter.dispatch(result[1].num_tokens, **self.agreed)

    def _prepare_kv_sharing_fast_prefill(self, logits_indices):
        return self.cudagraph_dispatcher.dispatch(len(logits_indices), invalid_modes={CUDAGraphMode.FULL})

    def _uniform(self, counts):
        wanted = 1 + (self.speculative_config.num_speculative_tokens if self.speculative_config else 0)
        return set(counts.values()) == {wanted}

    def _decide(self, tokens, uniform, cascade=False, force_eager=False):
        ask = self.cudagraph_dispatcher.dispatch
        result = ask(
            num_tokens=tokens,
            uniform_decode=uniform,
            valid_modes={CUDAGraphMode.NONE} if force_eager else None,
            invalid_modes={CUDAGraphMode.FULL} if cascade else None,
        )
        if self.agreed is not None:
            result = ask(num_tokens=result[1].num_tokens, uniform_decode=uniform, **self.agreed)
        return result

    def _dummy_run(self, num_tokens, cudagraph_runtime_mode=None, uniform_decode=False, force_eager=False):
        return self._decide(num_tokens, uniform_decode, force_eager=force_eager)

    def profile_cudagraph_memory(self):
        self.captured_while_profiling()
        return 3 << 20

    def captured_while_profiling(self):
        """A test looks from here at what the probe believes."""

    def capture_model(self):
        return 5 << 20
