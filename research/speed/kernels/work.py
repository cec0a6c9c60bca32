"""What the tables' kernels would do on a GPU, without one: launches, bytes, products, and the least time of these.

No rate is measured here: those of memory and products are the published peaks of `rm/capacity/choices.py`, which no
program reaches. So times are lower bounds, to be compared with measured ones once there are some.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ....kernels.triton_common.launch import INTERPRETED, Launch, recorded
from ....rm.capacity.choices import Gpu
from ....rm.errors import UsageError
from .._memory import bytes_moved
from .timing import Bench, Case, Size, Trial, Variant, kernel_backend

PROCESSORS, LANES, CLOCK = 132, 128, 1.98e9
"""Multiprocessors of an H100 SXM or H200, instructions of threads that each issues per cycle, and cycles per second.

NVIDIA H100 Tensor Core GPU Architecture, white paper, 2022; four schedulers issue an instruction for 32 threads each.
"""
IN_PART = {
    "guided_sampler.finish": ("base", "guides"),
    **{f"guided_sampler.{name}": ("base", "guides", "tokens", "depths") for name in ("count", "collect", "draw")},
}
"""Tensors of which a program reads one cell, or as many tokens as the logits make it: not counted."""
TWICE = {
    **{"linear_logprob.stream_backward": "a", "lora_film.expand": "y"},
    **{"r2m_attention.soften": "scores", "r2m_attention.centre": "scores"},
}
"""Tensors that are read and written in their place."""
FLOPS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "linear_logprob.score": lambda given: 2 * given["rows"] * given["vocabulary"] * given["width"],
}
PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm)


class Work(NamedTuple):
    """What an operation at least does."""

    bytes: int
    """Each of its tensors read or written once."""
    flops: int = 0
    """In matrix products; a multiply-add counts as two."""
    narrow: bool = True
    """Whether the products' operands have 16 bits."""

    def seconds(self, gpu: Gpu) -> float:
        """Return the longer of the times of moving the bytes and of the products."""
        peak = gpu.bfloat16 if self.narrow else gpu.float32
        return max(self.bytes / (gpu.bandwidth * 1e9), self.flops / (peak * 1e12))


class Run(NamedTuple):
    """One run of a case's Triton variant."""

    table: str
    case: str
    way: str
    launches: list[Launch]
    works: list[Work]
    """Of its launches and of PyTorch's operations between them."""


class WithoutData(Bench):
    """A GPU with every package, on which tensors have no data, so that nothing is run or timed."""

    def __init__(self, size: Size):
        self.size, self.device, self.cuda = size, "meta", True

    def lacks(self, package: str) -> bool:
        """Return that it is there."""
        return False

    def random(self) -> dict[str, Any]:
        """Return the device alone."""
        return {"device": self.device}


def planned_trials(size: Size, tables: Mapping[str, Callable[[Bench], Iterator[Case]]]) -> Iterator[tuple[Case, Trial]]:
    """Yield every case of the tables with its trial, in the order in which they are measured."""
    bench = WithoutData(size)
    for cases in tables.values():
        yield from ((case, case.trial()) for case in cases(bench))


def planned_runs(case: Case, trial: Trial, capability: int = 90) -> Iterator[Run]:
    """Yield a run of every variant that goes through Triton, as on a device of that capability."""
    for way, variant in trial.variants.items():
        if isinstance(variant, Variant) and variant.through == "triton":
            with kernel_backend("triton"), recorded(capability) as launches, Operations() as operations:
                variant.run()
            works = [*operations.works, *map(launch_work, launches)]
            yield Run(case.table, case.title, way, launches, works)


def refuse_interpreter() -> None:
    """Raise `UsageError` in a process whose kernels are interpreted, as they cannot be compiled there."""
    if INTERPRETED:
        raise UsageError("TRITON_INTERPRET=1 is set, so kernels are interpreted in this process; unset it")


def least_seconds(works: Sequence[Work], gpu: Gpu) -> float:
    """Return the least time of works one after the other."""
    return sum(work.seconds(gpu) for work in works)


class Operations(TorchDispatchMode):
    """Record the work of PyTorch's operations, which may be on tensors without data."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[Work] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        # PyTorch 2.11 has no meta kernel of a product that is added in a wider dtype
        in_place = function is torch.ops.aten.addmm.dtype_out
        out = options["out"] if in_place else function(*arguments, **(options or {}))
        if (moved := bytes_moved(function, arguments, out)) > 0:
            flops, narrow = 0, True
            if function.overloadpacket in PRODUCTS:
                left = [argument for argument in arguments if isinstance(argument, Tensor)][-2]
                flops, narrow = 2 * out.numel() * left.shape[-1], left.itemsize == 2
            self.works.append(Work(moved, flops, narrow))
        return out


def kernel_name(launch: Launch) -> str:
    """Return the operation and the name of a launch's kernel."""
    return f"{launch.kernel.fn.__module__.split('.')[-2]}.{launch.kernel.__name__}"


def launch_work(launch: Launch) -> Work:
    """Return the least work of a kernel's launch, from its arguments."""
    name = kernel_name(launch)
    tensors = {id(value): value for key, value in launch.arguments.items()
               if isinstance(value, Tensor) and key not in IN_PART.get(name, ())}  # fmt: skip
    moved = sum(
        tensor.untyped_storage().nbytes() if 0 in tensor.stride() else tensor.nbytes for tensor in tensors.values()
    )
    moved += launch.arguments[TWICE[name]].nbytes if name in TWICE else 0
    return Work(moved, FLOPS[name](launch.arguments) if name in FLOPS else 0)


def issue_seconds(instructions: float) -> float:
    """Return the time in which all multiprocessors issue that many instructions of threads."""
    return instructions / (PROCESSORS * LANES * CLOCK)
