"""Methods, variants and sizes of the study of one guide for every preference."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...worlds.guides import Base, Guide, Recipe
from ...worlds.guides.exact import EXACT_BETA, Exact
from ...worlds.guides.fronts import Front

TWO = ("helpful", "harmless")
TEXTS = ("teach us what matters", "ask carefully and slowly")
THREE = ("helpful", "harmless", "engaging")
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)

UNIARM = Recipe()
PARM = replace(UNIARM, kind="pblora", rank=4, shared_rank=4, weight=0.0)
GENARM = replace(UNIARM, kind="lora", weight=0.0)
BLIND = replace(UNIARM, scale=False, shift=False)
UNTRAINED = replace(UNIARM, steps=0)
TUNED = replace(GENARM, reference=True)
ABLATIONS = {
    "λ = 0": replace(UNIARM, weight=0.0),
    "global term: mixed label": replace(UNIARM, form="mixed_label"),
    "global term: vertices": replace(UNIARM, form="vertices"),
    "global term: scores": replace(UNIARM, form="scores"),
    "no shift": replace(UNIARM, shift=False),
    "no scale": replace(UNIARM, scale=False),
    "objectives: random vectors": replace(UNIARM, generator="linear"),
    "objectives: texts": replace(UNIARM, generator="linear", embedding="text", texts=TEXTS),
    "objectives: random vectors, trunk": replace(UNIARM, generator="trunk"),
    "one α per batch": replace(UNIARM, per_batch=True),
    "trained at the vertices only": replace(UNIARM, preferences="vertices"),
    "reference subtracted": replace(UNIARM, reference=True),
    "late branch: last half": replace(UNIARM, from_layer=1),
}
EXACT = replace(UNIARM, rank=16, beta=EXACT_BETA, weight=0.0, batch=64, preferences="grid", preference_steps=4)
EXACT_METHODS = {
    "GenARM": replace(EXACT, kind="lora"),
    "PARM": replace(EXACT, kind="pblora", rank=8, shared_rank=8),
    "UniARM, λ = 0": EXACT,
    "UniARM": replace(EXACT, weight=UNIARM.weight),
    "UniARM, λ = 0, random vectors": replace(EXACT, generator="linear"),
    "UniARM, λ = 0, trunk": replace(EXACT, generator="trunk"),
}


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds, data and steps; every guide has the same steps, for one objective or several."""

    seed: int = 0
    seeds: int = 5
    few: int = 3
    prompts: int = 200
    pairs: int = 6000
    steps: int = 400
    base_steps: int = 600
    texts: int = 6000
    big_steps: int = 400
    exact_steps: int = 200
    exact_pairs: int = 8000

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        sizes = {"pairs": 10 * rows, "texts": 10 * rows, "exact_pairs": 20 * rows}
        steps = {"steps": 2, "base_steps": 4, "big_steps": 4, "exact_steps": 6}
        return cls(seed, seeds=1, few=1, prompts=rows, **sizes, **steps)

    def base(self, seed: int) -> Base:
        """Return the base model to guide."""
        return Base(seed, steps=self.base_steps, texts=self.texts)

    def big(self, seed: int) -> Base:
        """Return a base model that is larger than any guide."""
        return Base(seed, hidden=128, layers=4, steps=self.big_steps, texts=self.texts)

    def guide(self, recipe: Recipe, objectives: tuple[str, ...], seed: int) -> Guide:
        """Return a guide adapted from its seed's base model."""
        steps = self.steps if recipe.steps else 0
        return Guide(self.base(seed), objectives, replace(recipe, steps=steps), self.pairs, seed)

    def joint(self, recipe: Recipe, seed: int, **changes: Any) -> Front:
        """Return the front of one guide for all objectives."""
        options = {"objectives": TWO, "base": self.base(seed), "prompts": self.prompts, "seed": seed} | changes
        return Front(guides=(self.guide(recipe, options["objectives"], seed),), **options)

    def each(self, recipe: Recipe, seed: int, **changes: Any) -> Front:
        """Return the front of one guide per objective."""
        options = {"objectives": TWO, "base": self.base(seed), "prompts": self.prompts, "seed": seed} | changes
        guides = tuple(self.guide(recipe, (name,), seed) for name in options["objectives"])
        return Front(guides=guides, **options)

    def by_seed(self, make: Callable[[int], Front], seeds: int) -> list[Front]:
        """Return the front of every one of `seeds` seeds."""
        return [make(self.seed + index) for index in range(seeds)]


Fronts = dict[str, list[Front]]


def main_fronts(plan: Plan) -> Fronts:
    """Return the fronts of the main table's methods."""
    methods: dict[str, Callable[[int], Front]] = {
        "UniARM": lambda seed: plan.joint(UNIARM, seed),
        "PARM": lambda seed: plan.joint(PARM, seed),
        "GenARM": lambda seed: plan.each(GENARM, seed),
        "MOD": lambda seed: plan.each(TUNED, seed, way="mixture"),
        "rewarded soup": lambda seed: plan.each(TUNED, seed, way="soup"),
        "preference-blind": lambda seed: plan.joint(BLIND, seed),
        "untrained guide": lambda seed: plan.joint(UNTRAINED, seed),
        "base alone": lambda seed: plan.joint(UNTRAINED, seed, weight=0.0),
    }
    return {name: plan.by_seed(make, plan.seeds) for name, make in methods.items()}


def ablation_fronts(plan: Plan) -> Fronts:
    """Return the fronts of UniARM with one setting changed."""
    return {name: plan.by_seed(partial(plan.joint, recipe), plan.few) for name, recipe in ABLATIONS.items()}


def weight_fronts(plan: Plan) -> Fronts:
    """Return the fronts of UniARM at other guidance weights."""
    return {f"{weight:g}": plan.by_seed(partial(plan.joint, UNIARM, weight=weight), plan.few) for weight in WEIGHTS}


def weak_to_strong_fronts(plan: Plan) -> Fronts:
    """Return the fronts of a larger base model with guides trained on the small one."""
    methods: dict[str, Callable[[int], Front]] = {
        "UniARM": lambda seed: plan.joint(UNIARM, seed, base=plan.big(seed)),
        "GenARM": lambda seed: plan.each(GENARM, seed, base=plan.big(seed)),
        "base alone": lambda seed: plan.joint(UNTRAINED, seed, base=plan.big(seed), weight=0.0),
    }
    return {name: plan.by_seed(make, plan.few) for name, make in methods.items()}


def three_fronts(plan: Plan) -> Fronts:
    """Return the fronts of three objectives on 21 preferences."""
    options: dict[str, Any] = {"objectives": THREE, "steps": 5}
    methods: dict[str, Callable[[int], Front]] = {
        "UniARM": lambda seed: plan.joint(UNIARM, seed, **options),
        "GenARM": lambda seed: plan.each(GENARM, seed, **options),
        "base alone": lambda seed: plan.joint(UNTRAINED, seed, weight=0.0, **options),
    }
    return {name: plan.by_seed(make, plan.few) for name, make in methods.items()}


def exact_jobs(plan: Plan, objectives: int) -> dict[str, list[Exact]]:
    """Return the jobs of every method in the enumerable language; three objectives use one seed."""
    steps, grid, drawn = (plan.exact_steps, 12, 4) if objectives == 2 else (plan.exact_steps, 4, 2)
    recipes = {name: replace(recipe, steps=steps, preference_steps=drawn) for name, recipe in EXACT_METHODS.items()}
    seeds = range(plan.seed, plan.seed + (plan.few if objectives == 2 else 1))
    return {
        name: [Exact(recipe, objectives, grid, pairs=plan.exact_pairs, seed=seed) for seed in seeds]
        for name, recipe in recipes.items()
    }
