"""Prompts of a step: a curriculum sets the share of each kind, and variants of a prompt share a group."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...rm.errors import UsageError
from ..types import Curriculum, Cycle
from .prompts import VARIANTS

CURRICULUM = "curriculum"  # its name in logs and checkpoints, beside the names of online reward models


class CurriculumSampler:
    """Training prompts of one process, drawn when completions are generated, instead of by the data loader's sampler.

    A sampler cannot draw them: Transformers fetches the batches of a complete optimizer step plus one more before it
    trains on the first, so that a sampler's draws could not depend on the previous step.

    Every group's kind is drawn with replacement by the shares. Prompts of a kind are shuffled, and all are used once
    before any repeats. All draws depend only on the seed and on the number of prompts drawn before.
    """

    def __init__(self, curriculum: Curriculum, rows: Mapping[str, Sequence[Any]], *, seed: int = 0):
        self.curriculum, self.rows, self.seed = curriculum, rows, seed
        self._formula, self.shares = curriculum({}, {kind: [] for kind in rows})
        self._counts = dict.fromkeys(rows, 0)
        self._kinds: list[str] = []

    def draw(self, rows: Sequence[Any], size: int) -> list[Any]:
        """Return as many rows as given, with `size` consecutive copies of each prompt."""
        random = Random(f"{self.seed} {sum(self._counts.values())}")
        self._kinds = random.choices([*self.shares], [*self.shares.values()], k=len(rows) // size)
        return [row for kind in self._kinds for row in [self._next(kind)] * size]

    def _next(self, kind: str) -> Any:
        number = len(self.rows[kind])
        turn, index = divmod(self._counts[kind], number)
        self._counts[kind] += 1
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
                gains[self._kinds[group]].append(gain_of_row)
        self._formula, self.shares = self.curriculum(self._formula, gains)
        counts = {f"prompts/{kind}": self._kinds.count(kind) for kind in self.rows}
        return {f"share/{kind}": share for kind, share in self.shares.items()} | counts

    def state(self) -> dict[str, Any]:
        """Return the JSON-serializable state."""
        return {"formula": self._formula, "shares": self.shares, "given": self._counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the state from a checkpoint."""
        self._formula, self.shares, self._counts = state["formula"], dict(state["shares"]), dict(state["given"])


# ---- variants ----


def spread_over_variants(rows: Sequence[Mapping[str, Any]], size: int, *, first: int = 0) -> list[Any]:
    """Return the rows, of which `size` consecutive ones are a group, with the group's prompts spread over its variants.

    With V variants the first size / V completions of a group are for the first variant, and so on, so that a reward
    that depends on the variant differs within the group. `first` is the index of the first row among those of all
    processes.

    >>> rows = [{"prompt": "ab", "variants": ["ab", "ba"]}] * 4 + [{"prompt": "c"}] * 4
    >>> [row["prompt"] for row in spread_over_variants(rows, 4)]
    ['ab', 'ab', 'ba', 'ba', 'c', 'c', 'c', 'c']
    """
    return [_in_variant(row, (first + index) % size, size) for index, row in enumerate(rows)]


def refuse_variants(*datasets: Any) -> None:
    """Raise a `UsageError` for prompts with variants, where others than this process's policy answer them."""
    if any(VARIANTS in (dataset.column_names or ()) for dataset in datasets if dataset is not None):
        raise UsageError(
            "prompts with variants are answered by this process's policy; leave the rollout function or server out"
        )


def _in_variant(row: Mapping[str, Any], position: int, size: int) -> Mapping[str, Any]:
    """Return the row with the prompt of a completion's position in its group of `size`."""
    variants = row.get(VARIANTS)
    return {**row, "prompt": variants[position * len(variants) // size]} if variants else row
