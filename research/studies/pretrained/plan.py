"""The plan of the study, written before the first run that counts: which jobs are run, and how the recipe is chosen."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from ....examples.fetch_models import fetched
from .._runs.job_cache import Job, run_jobs
from .._study import Log
from .models import Features, Recipe, Trained, Words, accuracy
from .texts import MIXES

CHOICE_PAIRS = 2_000
GRID = [
    Recipe(mix, rate, epochs) for mix, (rate, epochs) in product(MIXES, [(2e-5, 1), (5e-5, 1), (1e-4, 1), (5e-5, 3)])
]
"""Recipes of MiniLM that are tried, on 2,000 pairs and one seed each."""
SMOLLM2_PAIRS, SMOLLM2_RATES = 1_000, (1e-4, 5e-4)
NUMBERS = {500: 3, 2_000: 3, 8_000: 5}
"""Training pairs of final models, and seeds; the five of the most pairs are the ensemble."""
PLAIN, LENGTH_CONTROLLED = f"{CHOICE_PAIRS:,} pairs", "length-controlled"
"""The loss `length_controlled` on 2,000 pairs and one seed, whose model rates the held-out pairs alone."""
ALL = 30_000
"""More pairs than there are."""

Stage = Callable[[Sequence[Job]], None]


def choice_jobs(texts: str) -> list[Trained]:
    """Return the models among which the recipe of MiniLM is chosen."""
    return [Trained(texts, recipe, CHOICE_PAIRS, seed=0, parts=("validation",)) for recipe in GRID]


def smollm2_jobs(texts: str) -> list[Trained]:
    """Return those among which SmolLM2's learning rate is chosen."""
    recipes = [Recipe("dialogue", rate, 1) for rate in SMOLLM2_RATES]
    return [Trained(texts, recipe, SMOLLM2_PAIRS, 0, "smollm2", parts=("validation",)) for recipe in recipes]


def best(jobs: Sequence[Trained], cache: Path) -> Recipe:
    """Return the recipe with the highest accuracy on the validation pairs, the first of equal ones."""
    return max(jobs, key=lambda job: accuracy(job.result(cache))).recipe


def minilm_finals(texts: str, recipe: Recipe) -> dict[str, list[Trained]]:
    """Return the final models of MiniLM by what is varied, the most informative first."""
    finals = {
        f"{number:,} pairs": [Trained(texts, recipe, number, seed) for seed in range(seeds)]
        for number, seeds in sorted(NUMBERS.items(), reverse=True)
    }
    rated = ("validation", "held-out")
    controlled = Trained(texts, recipe, CHOICE_PAIRS, seed=0, loss="length_controlled", parts=rated)
    return finals | {LENGTH_CONTROLLED: [controlled]}


def smollm2_final(texts: str, recipe: Recipe) -> Trained:
    """Return the final model of SmolLM2."""
    return Trained(texts, recipe, SMOLLM2_PAIRS, 0, "smollm2")


def cheap_jobs(texts: str, mix: str) -> tuple[Features, list[Words]]:
    """Return frozen features of every number of pairs, and TF-IDF on the pairs of each final model."""
    features = Features(texts, mix, (*NUMBERS, ALL), seeds=(0, 1, 2))
    words = [Words(texts, mix, number, seed) for number in (*NUMBERS, ALL) for seed in range(3)]
    return features, words


def run_minilm(texts: str, cache: Path, workers: int, log: Log) -> Recipe:
    """Choose MiniLM's recipe and train its final models, frozen features and TF-IDF."""
    fetched("minilm")
    run_jobs(choices := choice_jobs(texts), cache, workers, log)
    recipe = best(choices, cache)
    log(f"MiniLM's recipe: {recipe}")
    features, words = cheap_jobs(texts, recipe.mix)
    finals = [job for jobs in minilm_finals(texts, recipe).values() for job in jobs]
    run_jobs([finals[0], features, *finals[1:], *words], cache, workers, log)
    return recipe


def run_smollm2(texts: str, cache: Path, workers: int, log: Log) -> Recipe:
    """Choose SmolLM2's learning rate and train its final model."""
    fetched("smollm2")
    run_jobs(choices := smollm2_jobs(texts), cache, workers, log)
    recipe = best(choices, cache)
    log(f"SmolLM2's recipe: {recipe}")
    run_jobs([smollm2_final(texts, recipe), Words(texts, recipe.mix, SMOLLM2_PAIRS, 0)], cache, workers, log)
    return recipe
