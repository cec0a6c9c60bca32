"""Exponential moving average of a model's trainable weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import UsageError
from .sharded_weights import gathered, put

FILE = "weight_average.safetensors"


class WeightAverage:
    """θ̄ <- d θ̄ + (1 - d) θ after every optimizer step, from a share `start` of all steps on.

    The average starts at the weights of its first step, so that no earlier weights enter. A model that is evaluated or
    saved with its average is less noisy than the last iterate; training itself goes on with θ (Polyak and Juditsky
    1992; Izmailov et al. 2018, arXiv:1803.05407).
    """

    def __init__(self, model: nn.Module, decay: float, start: float = 0.25):
        if not (0 < decay < 1 and 0 <= start < 1):
            raise UsageError(f"a weight average has a decay in (0, 1) and a start in [0, 1), got {decay} and {start}")
        self.decay, self.start = decay, start
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.means: dict[str, Tensor] = {}
        """Averages by name; empty before the first step that counts."""

    @torch.no_grad()
    def update(self, step: int, steps: int) -> None:
        """Add the weights after step `step` of `steps`."""
        if step < self.start * steps:
            return
        if not self.means:
            self.means = {name: weight.detach().clone() for name, weight in self.weights.items()}
        for name, mean in self.means.items():
            mean.lerp_(self.weights[name].detach(), 1 - self.decay)

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the weights with their averages, for good."""
        for name, mean in self.means.items():
            self.weights[name].copy_(mean)
        self.means = {}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averages within the context."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, mean in self.means.items():
            current = self.weights[name].detach().clone()
            self.weights[name].copy_(mean)
            mean.copy_(current)

    def save(self, folder: Path, *, writes: bool = True) -> None:
        """Save the averages in a checkpoint; every process must call it, and the one that `writes` writes."""
        tensors = {name: gathered(mean).cpu().contiguous() for name, mean in self.means.items()}
        if writes:
            save_file(tensors, folder / FILE)

    def load(self, folder: Path) -> None:
        """Load the averages from a checkpoint."""
        stored = load_file(folder / FILE)
        self.means = {name: self.weights[name].detach().clone() for name in stored}
        for name, mean in self.means.items():
            put(mean, stored[name])
