"""Exponential moving average of a model's trainable weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback

from ..errors import UsageError
from ..io.sharded_weights import gather_tensor, put

FILE = "weight_average.safetensors"


class WeightAverage(TrainerCallback):
    """Average θ̄ <- d θ̄ + (1 - d) θ of weights θ with decay d, after each step beyond the share `start` of steps.

    The average starts at the weights of its first step. A model that is evaluated or saved with its average is less
    noisy than the last iterate; training itself goes on with θ (Polyak and Juditsky 1992; Izmailov et al. 2018,
    arXiv:1803.05407). θ̄ is kept in float32 or wider: in bfloat16 a step of 0.001 is below the rounding of θ̄.
    """

    def __init__(self, model: nn.Module, decay: float, start: float = 0.25):
        if not (0 < decay < 1 and 0 <= start < 1):
            raise UsageError(f"a weight average has a decay in (0, 1) and a start in [0, 1), got {decay} and {start}")
        self.decay, self.start = decay, start
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.means: dict[str, Tensor] = {}
        """Averages by parameter name; empty before the first averaged step."""

    @torch.no_grad()
    def update(self, step: int, steps: int) -> None:
        """Update the averages with the weights after step `step` of `steps`."""
        if step < self.start * steps:
            return
        if not self.means:
            self.means = {name: _widened(weight) for name, weight in self.weights.items()}
        for name, mean in self.means.items():
            mean.lerp_(self.weights[name].detach().to(mean.dtype), 1 - self.decay)

    def apply(self) -> None:
        """Replace the weights with their averages permanently."""
        self._copy(self.means)
        self.means = {}

    def on_step_end(self, args, state, control, **kwargs):
        """Update the averages."""
        self.update(state.global_step, state.max_steps)

    def on_train_end(self, args, state, control, **kwargs):
        """Replace the weights with their averages."""
        self.apply()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averages within the context."""
        current = {name: self.weights[name].detach().clone() for name in self.means}
        self._copy(self.means)
        try:
            yield
        finally:
            self._copy(current)

    @torch.no_grad()
    def _copy(self, values: Mapping[str, Tensor]) -> None:
        """Copy values into the model's weights."""
        for name, value in values.items():
            self.weights[name].copy_(value)

    def save(self, folder: Path, *, writes: bool = True) -> None:
        """Save the averages in a checkpoint; every process must call it, but only one with `writes`."""
        tensors = {name: gather_tensor(mean).cpu().contiguous() for name, mean in self.means.items()}
        if writes:
            save_file(tensors, folder / FILE)

    def load(self, folder: Path) -> None:
        """Load the averages from a checkpoint."""
        stored = load_file(folder / FILE)
        self.means = {name: _widened(self.weights[name]) for name in stored}
        for name, mean in self.means.items():
            put(mean, stored[name])


def _widened(weight: Tensor) -> Tensor:
    """Return a copy of a weight, in float32 or a wider type."""
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
