"""Options of a plan: precisions, optimizers, and the distribution of a model over several GPUs."""

from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UsageError, did_you_mean


class Precision(NamedTuple):
    """Bytes per number."""

    weights: int
    compute: int
    """Bytes per number in matrix products; under autocast fewer than for weights."""


PRECISIONS = {"float32": Precision(4, 4), "bfloat16": Precision(2, 2), "mixed": Precision(4, 2)}
"""`mixed`: float32 weights under bfloat16 autocast, which keeps a bfloat16 copy of every matrix until the backward."""
STATES = {"adamw": 2, "adamw_8bit": 2, "lion": 1, "sgd": 0}
"""Number of optimizer states per parameter."""
STRATEGIES = ("ddp", "fsdp", "zero3")
"""Strategies: a complete model on every GPU (ddp), or sharded weights, gradients and optimizer states."""


@dataclass(frozen=True)
class Spread:
    """Distribution of a model over GPUs."""

    gpus: int = 1
    strategy: str = "ddp"

    def __post_init__(self) -> None:
        """Raise `UsageError` for unsupported values."""
        if self.gpus < 1:
            raise UsageError(f"gpus is at least 1, got {self.gpus}")
        if self.strategy not in STRATEGIES:
            raise UsageError(f"no strategy '{self.strategy}'; {did_you_mean(self.strategy, STRATEGIES)}")

    @property
    def shares(self) -> int:
        """Divisor of weights, gradients and optimizer states."""
        return 1 if self.strategy == "ddp" else self.gpus


def optimizer_bytes(parameters: int, size: int, optimizer: str) -> int:
    """Return the bytes of optimizer states: AdamW has two per parameter with the parameter's `size` in bytes, SGD none.

    The two of 8-bit AdamW take one byte each, for any parameter size.

    >>> optimizer_bytes(10, 4, "adamw"), optimizer_bytes(10, 2, "adamw"), optimizer_bytes(10, 4, "adamw_8bit")
    (80, 40, 20)
    """
    if optimizer not in STATES:
        raise UsageError(f"no optimizer '{optimizer}' in the table; {did_you_mean(optimizer, STATES)}")
    return STATES[optimizer] * parameters * (1 if optimizer == "adamw_8bit" else size)
