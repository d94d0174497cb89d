"""Run by itself with TORCH_LOGS=+cudagraphs,perf_hints: Inductor's own lines about graphs that were lost."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor


def provoke(name: str, work: Callable[[], None]) -> None:
    """Run one case; an exception is a line, not an end."""
    print(f"=== {name}", file=sys.stderr, flush=True)
    try:
        work()
    except Exception as error:  # one case must not cost the others their lines
        print(f"=== {name} raised {type(error).__name__}", file=sys.stderr, flush=True)


def compiled(work: Callable[..., Tensor], dynamic: bool = False) -> Callable[..., Tensor]:
    """reduce-overhead on CUDA; elsewhere the backend that compiles nothing."""
    if not torch.cuda.is_available():
        return torch.compile(work, backend="eager", dynamic=dynamic)
    return torch.compile(work, mode="reduce-overhead", dynamic=dynamic)


def call(work: Callable[..., Tensor], *inputs: Tensor) -> None:
    """One step of its own generation; the output is dropped."""
    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    work(*inputs)


def mutated_input(device: str) -> None:
    """`skipping cudagraphs due to mutated inputs`."""
    x, total = torch.randn(64, device=device), torch.zeros(64, device=device)

    def work(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        return x.sin()

    step = compiled(work)
    for _ in range(4):
        call(step, x, total)


def cpu_tensor(device: str) -> None:
    """A tensor on the CPU among the inputs: skipped, or cut off by graph partition."""
    x, scale = torch.randn(64, device=device), torch.tensor(0.5)
    step = compiled(lambda x, scale: (x * scale).sin())
    for _ in range(4):
        call(step, x, scale)


def new_pointers(device: str) -> None:
    """A parameter that moves each time: `Re-recording` until the limit, then never again."""
    module = torch.nn.Linear(64, 64, device=device)
    x = torch.randn(8, 64, device=device)
    step = compiled(module)
    for _ in range(140):
        module.weight.data = module.weight.data.clone()
        call(step, x)


def many_sizes(device: str) -> None:
    """`We have observed N distinct sizes`."""
    step = compiled(lambda x: (x * 2).cos(), dynamic=True)
    for size in range(2, 64):
        call(step, torch.randn(size, 8, device=device))


def incompatible_op(device: str) -> None:
    """An operation that Inductor keeps out of graphs."""
    x = torch.randn(64, device=device)
    step = compiled(lambda x: x[x > 0].sin())
    for _ in range(3):
        call(step, x)


def main() -> None:
    """All cases, the cheap ones first."""
    torch.set_grad_enabled(False)
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for case in (mutated_input, cpu_tensor, many_sizes, new_pointers, incompatible_op):
        provoke(case.__name__, lambda case=case: case(device))  # type: ignore[misc]


if __name__ == "__main__":
    main()
