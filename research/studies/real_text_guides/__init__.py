"""Guides on human preferences: one recipe on HH, helpful and harmless, with a base model trained from scratch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ....rm.types import Example, PreferencePair
from ...worlds.guides import Recipe
from .. import human_preferences
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from ..guide_recipes.plan import GENARM, PARM, UNIARM
from .models import OBJECTIVES, Completions, TextBase, TextGuide, corpus, halves
from .report import Measured, text

BASE = "base model"
STEPS, LEARNING_RATE = 150, 5e-3


def real_text_guides(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Train guides on half of the pairs; test them on held-out pairs, and by reward models trained on the other half.

    `data` holds HH and UltraFeedback; trained models and completions are stored in `cache`. `rows` shortens every
    source and the training, for a dry run.
    """
    files = corpus(data, rows)
    base = TextBase(files, seed) if rows is None else TextBase(files, seed, hidden=32, layers=1, steps=2)
    guides = _guides(base, STEPS if rows is None else 2)
    options = {"seed": seed, "prompts": 100 if rows is None else 4, "longest": 48 if rows is None else 6}
    completions = {BASE: Completions(base, **options)}
    completions |= {name: Completions(base, of_method, **options) for name, of_method in guides.items()}
    jobs = [[base], [guide for of_method in guides.values() for guide in of_method], [*completions.values()]]
    for of_stage in jobs:
        run_jobs(of_stage, cache, workers, log)
    raters = _raters(completions, cache, seed)
    human_preferences.run_jobs([*raters.values()], workers, log)
    measured = Measured(
        base.result(cache)["loss"].item(),
        {name: [guide.measures(cache) for guide in of_method] for name, of_method in guides.items()},
        {name: [float(guide.result(cache)["measures base"]) for guide in of] for name, of in guides.items()},
        {key: _ratings(job, completions, cache) for key, job in raters.items()},
        {key: _accuracy(job, key[1], base) for key, job in raters.items()},
        {name: job.result(cache)["lengths"] for name, job in completions.items()},
    )
    sizes = {"guides": len(halves(files).guides), "raters": len(halves(files).raters)}
    facts = {"pairs": sizes, "base": asdict(base), "steps": STEPS, "learning_rate": LEARNING_RATE}
    return Study(text(measured, base, facts), files.files, {}, {}, facts | measured.facts())


def _guides(base: TextBase, steps: int) -> dict[str, tuple[TextGuide, ...]]:
    def guide(recipe: Recipe, objectives: tuple[str, ...], steps: int) -> TextGuide:
        recipe = replace(recipe, steps=steps, learning_rate=LEARNING_RATE)
        return TextGuide(base, objectives, recipe, base.seed)

    return {
        "UniARM, α": (guide(UNIARM, OBJECTIVES, steps),),
        "PARM": (guide(PARM, OBJECTIVES, steps),),
        "GenARM": tuple(guide(GENARM, (name,), steps // 2) for name in OBJECTIVES),
        "untrained guide": (guide(UNIARM, OBJECTIVES, 0),),
    }


Key = tuple[str, str]
"""A kind of reward model, and an objective."""


def _raters(completions: Mapping[str, Completions], cache: Path, seed: int) -> dict[Key, human_preferences.Job]:
    """Return jobs that train a reward model per kind and objective on the raters' half, and rate what `_ratings` reads.

    The guides' pairs of the objective come first; the raters have not seen their prompts.
    """
    first = next(iter(completions.values()))
    split = halves(first.base.data)
    answers = [
        Example(prompt, str(text))
        for job in completions.values()
        for texts in job.result(cache)["texts"]
        for prompt, text in zip(job.asked, texts, strict=True)
    ]
    return {
        (kind, name): human_preferences.Job(
            kind,
            f"{kind}, {name}",
            _labelled(split.raters, name),
            [*_examples(_labelled(split.guides, name)), *answers],
            seed,
            cache,
        )
        for kind in human_preferences.KINDS
        for name in OBJECTIVES
    }


def _labelled(pairs: Sequence[PreferencePair], name: str) -> list[PreferencePair]:
    return [pair for pair in pairs if name in pair.wins]


def _examples(pairs: Sequence[PreferencePair]) -> list[Example]:
    return [example for pair in pairs for example in pair.examples]


def _ratings(job: human_preferences.Job, completions: Mapping[str, Completions], cache: Path) -> dict[str, np.ndarray]:
    """Return the rewards of every method's completions [A, P]."""
    shapes = {name: of_method.result(cache)["texts"].shape for name, of_method in completions.items()}
    rewards = np.load(job.file, allow_pickle=False)[-sum(a * p for a, p in shapes.values()) :]
    ends = np.cumsum([a * p for a, p in shapes.values()])[:-1]
    pieces = np.split(rewards, ends)
    return {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def _accuracy(job: human_preferences.Job, name: str, base: TextBase) -> tuple[int, int]:
    """Return how many of the guides' pairs a rater decides as labelled, and their number."""
    pairs = _labelled(halves(base.data).guides, name)
    rewards = np.load(job.file, allow_pickle=False)[: 2 * len(pairs)].reshape(-1, 2)
    return int((rewards[:, 0] > rewards[:, 1]).sum()), len(pairs)
