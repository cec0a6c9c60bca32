"""The final models of the study with their rewards, whichever job they are from."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._runs.job_cache import Arrays
from .models import FINAL, Recipe, Words
from .plan import ALL, NUMBERS, SMOLLM2_PAIRS, cheap_jobs, minilm_finals, smollm2_final


class Final(NamedTuple):
    """A final model: its results by seed, and the number of training pairs."""

    name: str
    pairs: int
    results: Sequence[Arrays]
    beside: str = ""
    """The name of TF-IDF on the same pairs."""
    words: bool = False
    """Whether it is TF-IDF."""
    members: Sequence[Arrays] | None = None
    """Of an ensemble."""

    def rewards(self, part: str, seed: int = 0) -> np.ndarray:
        """Return the rewards of a part's responses by the model of a seed, the first by default."""
        return self.results[seed][part]


def final_models(texts: str, recipe: Recipe, smollm2: Recipe, cache: Path) -> list[Final]:
    """Read the results of all final models from the cache, the most informative first."""
    features, words = cheap_jobs(texts, recipe.mix)
    by_number: dict[int, list[Arrays]] = {}
    for job in words:
        by_number.setdefault(job.pairs, []).append(job.result(cache))
    tuned = minilm_finals(texts, recipe)
    frozen = features.result(cache)
    models: list[Final] = []
    for number in sorted(NUMBERS, reverse=True):
        results = [job.result(cache) for job in tuned[f"{number:,} pairs"]]
        pairs = int(results[0]["pairs"])
        if pairs not in {model.pairs for model in models}:  # a mix may have fewer pairs than the largest numbers
            models.append(Final(f"MiniLM, {pairs:,} pairs", pairs, results, _words(pairs)))
    most = models[0]
    mean = {part: np.mean([arrays[part] for arrays in most.results], axis=0) for part in FINAL}
    mean |= {name: most.results[0][name] for name in ("machine", "cut")}
    mean["seconds"] = np.sum([arrays["seconds"] for arrays in most.results])
    ensemble = Final(f"mean of {len(most.results)}", most.pairs, [mean], most.beside, members=most.results)
    own = smollm2_final(texts, smollm2).result(cache)
    small = Final(f"SmolLM2, {SMOLLM2_PAIRS:,} pairs", SMOLLM2_PAIRS, [own], _words(SMOLLM2_PAIRS))
    heads, fitted = [], []
    for number in sorted({*NUMBERS, ALL}, reverse=True):
        results = [_head(frozen, number, seed) for seed in range(3)]
        pairs = int(results[0]["pairs"])
        if pairs not in {head.pairs for head in heads}:
            heads.append(Final(f"frozen MiniLM, {pairs:,} pairs", pairs, results, _words(pairs)))
            fitted.append(Final(_words(pairs), pairs, by_number[number], words=True))
    beside_small = Words(texts, smollm2.mix, SMOLLM2_PAIRS, 0).result(cache)
    fitted.append(Final(_words(SMOLLM2_PAIRS), SMOLLM2_PAIRS, [beside_small], words=True))
    return [small, most, ensemble, *models[1:], *heads, *fitted]


def _words(pairs: int) -> str:
    return f"TF-IDF, {pairs:,} pairs"


def _head(arrays: Arrays, number: int, seed: int) -> Arrays:
    """Return the results of one head on the frozen features."""
    start = f"{number}/{seed}/"
    head = {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}
    return head | {name: arrays[name] for name in ("machine", "seconds")}
