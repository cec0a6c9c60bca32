"""Methods, settings and sizes of the study of one recipe for guides."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...worlds.guides import Base, Guide, Recipe
from ...worlds.guides.fronts import Front
from ...worlds.meadow import OBJECTIVES as MEADOW

TWO = ("helpful", "harmless")
THREE = (*TWO, "engaging")
EARLIER_UNIARM = Recipe()
EARLIER_PARM = replace(EARLIER_UNIARM, kind="pblora", rank=4, shared_rank=4, weight=0.0)
EARLIER_GENARM = replace(EARLIER_UNIARM, kind="lora", weight=0.0)
FIRST_SEED = 400
"""First seed of the study; no setting was chosen on it or on those that follow."""
TEXTS = {
    "helpful": "tell us what matters most bees honey hive",
    "harmless": "ask carefully slowly gloves supervised",
    "engaging": "wonderful marvelous glorious dazzling",
    "vivid": "wonderful marvelous glorious dazzling",
    "brief": "please tell",
    "sober": "usually most often some",
}
BETA = 0.3
CHANGES = {"centred": True, "beta": BETA, "rate_of_a": 0.2, "average": 0.98, "ignore_ties": True}
"""What the recipe changes of the earlier setting."""
UNIARM = replace(EARLIER_UNIARM, **CHANGES)
PARM = replace(EARLIER_PARM, **CHANGES)
GENARM = replace(EARLIER_GENARM, **CHANGES)
PLANTED = replace(EARLIER_UNIARM, learning_rate=0.02)
"""A learning rate at which guides collapse, to test the detector."""
REFERENCE = {"helpful": -1.0, "harmless": -2.5, "engaging": -1.0, "vivid": -1.0, "brief": -3.5, "sober": -2.0}
"""The hypervolume's reference point by objective: constants, below what any method reached so far."""
EARLIER = "UniARM, α, earlier setting"


def vectors(objectives: tuple[str, ...]) -> Recipe:
    """Return UniARM with the paper's semantic vectors: embedded descriptions, in coordinates of their span."""
    texts = tuple(TEXTS[name] for name in objectives)
    return replace(UNIARM, generator="linear", embedding="text", texts=texts, span=True)


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds, data and steps."""

    seed: int = FIRST_SEED
    seeds: int = 12
    prompts: int = 100
    pairs: int = 6000
    steps: int = 400
    base_steps: int = 600
    texts: int = 6000

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(seed, seeds=1, prompts=rows, pairs=10 * rows, steps=6, base_steps=4, texts=10 * rows)

    def front(self, recipe: Recipe, group: "Group", seed: int, *, each: bool = False) -> Front:
        """Return the front of one guide, or of one guide for each objective; all guides of a front share the steps."""
        base = self._base(seed)
        parts = [(name,) for name in group.objectives] if each else [group.objectives]
        shared = replace(recipe, steps=self.steps // len(parts))
        guides = tuple(Guide(base, part, shared, self.pairs, seed, group.world) for part in parts)
        options: dict[str, Any] = {"steps": group.grid, "prompts": self.prompts, "seed": seed, "world": group.world}
        return Front(base, guides, group.objectives, **options)

    def planted(self) -> list[Guide]:
        """Return the guides that are trained at a rate at which they collapse."""
        recipe = replace(PLANTED, steps=self.steps)
        return [Guide(self._base(seed), TWO, recipe, self.pairs, seed) for seed in self._seeds()]

    def fronts(self, group: "Group") -> Mapping[str, list[Front]]:
        """Return the fronts of every method, by its name."""
        methods = {
            "UniARM, α": replace(UNIARM, beta=group.beta),
            "UniARM, semantic vectors": replace(vectors(group.objectives), beta=group.beta),
            "PARM": replace(PARM, beta=group.beta),
            "GenARM, equal steps in total": replace(GENARM, beta=group.beta),
        }
        if group.earlier:
            methods[EARLIER] = EARLIER_UNIARM
        seeds = self._seeds()[: group.seeds]
        return {
            name: [self.front(recipe, group, seed, each=name.startswith("GenARM")) for seed in seeds]
            for name, recipe in methods.items()
        }

    def _base(self, seed: int) -> Base:
        return Base(seed, steps=self.base_steps, texts=self.texts)

    def _seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)


class Group(NamedTuple):
    """A world, some of its objectives, the steps of the grid of preferences, the number of seeds, and β of new guides.

    With `earlier` UniARM is trained by the earlier setting too.
    """

    world: str
    objectives: tuple[str, ...]
    grid: int
    seeds: int = 12
    beta: float = BETA
    earlier: bool = False

    @property
    def reference(self) -> np.ndarray:
        """The hypervolume's reference point [K]."""
        return np.array([REFERENCE[name] for name in self.objectives])


GROUPS = {
    "garden, two objectives": Group("garden", TWO, 10, earlier=True),
    "garden, three objectives": Group("garden", THREE, 5, earlier=True),
    "garden, three objectives, weaker guides": Group("garden", THREE, 5, seeds=4, beta=1.0),
    "meadow, three objectives": Group("meadow", MEADOW[:3], 5, seeds=8),
    "meadow, five objectives": Group("meadow", MEADOW, 3, seeds=4),
}
