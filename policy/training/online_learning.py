"""Learning after each cycle by what is trained beside the policy: online reward models and the curriculum."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accelerate.utils import gather_object
from torch import Tensor

from ..types import Cycle


class OnlineLearning:
    """The completions of a cycle, and the policy's hidden states in the last pass over them."""

    def __init__(self, learners: Mapping[str, Any]):
        self.learners = learners
        self._cycle: Cycle | None = None
        self._states: dict[int, Tensor] = {}

    def start(self, cycle: Cycle) -> None:
        """Store the completions of a new cycle."""
        self._cycle = cycle

    def record(self, rows: Sequence[int], states: Sequence[Tensor], size: int) -> None:
        """Store the states of completions by their row numbers; rows from `size` on are of replayed completions."""
        self._states |= {row: state for row, state in zip(rows, states, strict=True) if row < size}

    def learn(self) -> Iterator[tuple[str, float]]:
        """Let all learn from the cycle, if there is one, and yield names and values of their metrics."""
        if self._cycle is None:
            return
        states = gather_object([self._states[row] for row in sorted(self._states)]) if self._states else None
        for name, learner in self.learners.items():
            for fact, value in learner.learn(self._cycle._replace(states=states)).items():
                yield f"{name}/{fact}", value
        self._cycle, self._states = None, {}
