"""Options of a plan (precisions, optimizers, distribution over GPUs), published data of GPUs, and run times."""

from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UsageError, did_you_mean


class Precision(NamedTuple):
    """Bytes per number of the weights, and of the operands of matrix products."""

    weights: int
    compute: int
    """Bytes per number in matrix products; under autocast fewer than for weights."""


PRECISIONS = {"float32": Precision(4, 4), "bfloat16": Precision(2, 2), "mixed": Precision(4, 2)}
"""`mixed`: float32 weights under bfloat16 autocast, with bfloat16 copies of all matrices until the backward pass."""
STATES = {"adamw": 2, "adamw_8bit": 2, "lion": 1, "sgd": 0}
"""Number of optimizer states per parameter."""
STRATEGIES = ("ddp", "fsdp", "zero3")
"""Strategies: a complete model on every GPU (ddp), or sharded weights, gradients and optimizer states."""


@dataclass(frozen=True)
class Sharding:
    """Distribution of a model over GPUs."""

    gpus: int = 1
    strategy: str = "ddp"

    def __post_init__(self) -> None:
        """Raise `UsageError` for unsupported values."""
        if self.gpus < 1:
            raise UsageError(f"gpus must be at least 1, got {self.gpus}")
        if self.strategy not in STRATEGIES:
            raise UsageError(f"unknown strategy '{self.strategy}'; {did_you_mean(self.strategy, STRATEGIES)}")

    @property
    def shares(self) -> int:
        """Number of GPUs among which weights, gradients and optimizer states are divided."""
        return 1 if self.strategy == "ddp" else self.gpus


def optimizer_bytes(parameters: int, size: int, optimizer: str) -> int:
    """Return the bytes of the optimizer states, each of the parameter's `size` in bytes: two per parameter for AdamW.

    SGD has no states. The two states of 8-bit AdamW take one byte each, for any parameter size.

    >>> optimizer_bytes(10, 4, "adamw"), optimizer_bytes(10, 2, "adamw"), optimizer_bytes(10, 4, "adamw_8bit")
    (80, 40, 20)
    """
    if optimizer not in STATES:
        raise UsageError(f"unknown optimizer '{optimizer}'; {did_you_mean(optimizer, STATES)}")
    return STATES[optimizer] * parameters * (1 if optimizer == "adamw_8bit" else size)


class Gpu(NamedTuple):
    """Peak values of one GPU, without sparsity."""

    title: str
    memory: float
    """GB, 10⁹ bytes each; drivers often report a little more."""
    bfloat16: float
    """Tera-operations per second (10¹²), dense."""
    float32: float
    """Tera-operations per second without tensor cores, which PyTorch does not use for float32 by default."""
    bandwidth: float
    """GB per second."""


GPUS = {
    "b200": Gpu("NVIDIA B200 (HGX)", 180, 2250, 75, 7700),
    "h200": Gpu("NVIDIA H200 SXM", 141, 989, 67, 4800),
    "h100": Gpu("NVIDIA H100 SXM 80 GB", 80, 989, 67, 3350),
    "h100-pcie": Gpu("NVIDIA H100 PCIe 80 GB", 80, 756, 51, 2000),
    "a100": Gpu("NVIDIA A100 SXM 80 GB", 80, 312, 19.5, 2039),
    "a100-40": Gpu("NVIDIA A100 SXM 40 GB", 40, 312, 19.5, 1555),
    "l40s": Gpu("NVIDIA L40S", 48, 362, 91.6, 864),
    "l4": Gpu("NVIDIA L4", 24, 121, 30.3, 300),
    "a10": Gpu("NVIDIA A10", 24, 125, 31.2, 600),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", 24, 165, 82.6, 1008),
    "mi300x": Gpu("AMD Instinct MI300X", 192, 1307, 163, 5300),
}
"""As commonly published for these products; variants differ, so check the data sheet of rented GPUs."""


def find_gpu(name: str) -> Gpu:
    """Return the GPU with this name from `GPUS`."""
    if name.lower() not in GPUS:
        raise UsageError(f"unknown GPU '{name}'; {did_you_mean(name.lower(), GPUS)}")
    return GPUS[name.lower()]


def compute_seconds(flops: float, gpu: Gpu, mfu: float, *, narrow: bool = True) -> float:
    """Return the seconds t = FLOPs / (peak · MFU);  MFU in (0, 1] is the share of the peak that real work reaches."""
    return flops / ((gpu.bfloat16 if narrow else gpu.float32) * 1e12 * mfu)


def read_seconds(size: float, gpu: Gpu, mbu: float) -> float:
    """Return the seconds t = bytes / (bandwidth · MBU);  MBU in (0, 1] is the share of the bandwidth reached."""
    return size / (gpu.bandwidth * 1e9 * mbu)
