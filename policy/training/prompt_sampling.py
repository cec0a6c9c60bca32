"""Prompts by their kinds, and a curriculum that says how often each kind comes next."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ..types import Curriculum, Cycle

CURRICULUM = "curriculum"  # its name in logs and checkpoints, among those of the rewards that learn


class DrawnPrompts:
    """The prompts of a training in one process, drawn when completions are to be written: in place of the sampler's.

    A sampler cannot draw them: Transformers takes the batches of a whole optimizer step and one more before it learns
    from the first, so that its draws would not know what the step before has taught.

    Every group's kind is drawn by the shares, with replacement. The prompts of a kind come in an order of their own,
    all of them before one comes again. All draws follow from the seed and from how many prompts were given before.
    """

    def __init__(self, curriculum: Curriculum, rows: Mapping[str, Sequence[Any]], *, seed: int = 0):
        self.curriculum, self.rows, self.seed = curriculum, rows, seed
        self._formula, self.shares = curriculum({}, {kind: [] for kind in rows})
        self._given = dict.fromkeys(rows, 0)
        self._asked: list[str] = []

    def drawn(self, rows: Sequence[Any], size: int) -> list[Any]:
        """As many rows as these, `size` of a prompt one after the other."""
        draw = Random(f"{self.seed} {sum(self._given.values())}")
        self._asked = draw.choices([*self.shares], [*self.shares.values()], k=len(rows) // size)
        return [row for kind in self._asked for row in [self._next(kind)] * size]

    def _next(self, kind: str) -> Any:
        number = len(self.rows[kind])
        turn, index = divmod(self._given[kind], number)
        self._given[kind] += 1
        return self.rows[kind][Random(f"{self.seed} {kind} {turn}").sample(range(number), number)[index]]

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Update the shares by |A| of the completions that have a reward, averaged over tokens; return the metrics."""
        response = cycle.rollout.response
        gain = (cycle.advantage.abs() * response).sum(1) / response.sum(1).clamp_min(1)
        gains: dict[str, list[float]] = {kind: [] for kind in self.rows}
        for group, gain_of_row, total in zip(
            *(part.tolist() for part in (cycle.rollout.group, gain, cycle.total)), strict=True
        ):
            if total == total:
                gains[self._asked[group]].append(gain_of_row)
        self._formula, self.shares = self.curriculum(self._formula, gains)
        asked = {f"prompts/{kind}": self._asked.count(kind) for kind in self.rows}
        return {f"share/{kind}": share for kind, share in self.shares.items()} | asked

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"formula": self._formula, "shares": self.shares, "given": self._given}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; another file's kinds are none of its."""
        self._formula, self.shares, self._given = state["formula"], dict(state["shares"]), dict(state["given"])
