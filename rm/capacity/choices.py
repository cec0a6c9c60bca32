"""What a plan chooses among: precisions, optimizers, and how a model lies on several GPUs."""

from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UsageError, did_you_mean


class Precision(NamedTuple):
    """Bytes of a number."""

    weights: int
    compute: int
    """In products: less than of the weights under autocast."""


PRECISIONS = {"float32": Precision(4, 4), "bfloat16": Precision(2, 2), "mixed": Precision(4, 2)}
"""`mixed`: float32 weights under bfloat16 autocast, which keeps a bfloat16 copy of every matrix until the backward."""
STATES = {"adamw": 2, "adamw_8bit": 2, "lion": 1, "sgd": 0}
"""Numbers of optimizer state a parameter."""
STRATEGIES = ("ddp", "fsdp", "zero3")
"""All of a model on every GPU; or weights, gradients and optimizer states in shares."""


@dataclass(frozen=True)
class Spread:
    """How a model lies on GPUs."""

    gpus: int = 1
    strategy: str = "ddp"

    def __post_init__(self) -> None:
        """Refuse what no formula is for."""
        if self.gpus < 1:
            raise UsageError(f"gpus is at least 1, got {self.gpus}")
        if self.strategy not in STRATEGIES:
            raise UsageError(f"no strategy '{self.strategy}'; {did_you_mean(self.strategy, STRATEGIES)}")

    @property
    def shares(self) -> int:
        """By what weights, gradients and states are divided."""
        return 1 if self.strategy == "ddp" else self.gpus


def optimizer_bytes(parameters: int, size: int, optimizer: str) -> int:
    """Of states:  AdamW keeps two numbers a parameter in the parameter's own precision of `size` bytes, SGD none.

    8-bit AdamW's two take a byte each, whatever the parameter's.

    >>> optimizer_bytes(10, 4, "adamw"), optimizer_bytes(10, 2, "adamw"), optimizer_bytes(10, 4, "adamw_8bit")
    (80, 40, 20)
    """
    if optimizer not in STATES:
        raise UsageError(f"no optimizer '{optimizer}' in the table; {did_you_mean(optimizer, STATES)}")
    return STATES[optimizer] * parameters * (1 if optimizer == "adamw_8bit" else size)
