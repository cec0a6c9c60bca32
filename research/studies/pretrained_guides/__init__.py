"""Study of guides on a pretrained language model: does a preference steer SmolLM2 between helpful and harmless?

UniARM, PARM and GenARM are trained on the same number of pairs; controls are a guide with shuffled labels, a blind one,
the model alone, and instructions. Reward models of other prompts rate the completions. `plan` was committed before the
first run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....rm.types import prompt_text
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .models import LENGTH, Completions, Fluency, Guide, Rater, Ratings, wins_by_length
from .plan import Sizes, completions, guides, length_control, raters
from .report import Measured, figure, text
from .texts import OBJECTIVES, Texts, load_texts, prepared

SMALL = Sizes(pairs=8, prompts=2, longest=4, curve=())


def pretrained_guides(
    data: Path,
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    model: str = "smollm2",
    encoder: str = "minilm",
    log: Log = print,
) -> Study:
    """Train guides on a language model and raters on an encoder, decode test prompts at five preferences, and report.

    `data` holds the folders `data` and `data2`; results of finished jobs are read from `cache`. `rows` shortens every
    source and the training, for a dry run; `model` and `encoder` may be folders of other models. `seed` has no effect:
    the seeds are in the plan.
    """
    name, counts = prepared(data, cache, rows)
    sizes = Sizes() if rows is None else SMALL
    of_method, judged_by = guides(name, model, sizes), raters(name, encoder)
    decoded, (length_guide, by_length) = completions(name, model, sizes), length_control(name, model, sizes)
    for stage in (
        [*judged_by.values(), *(guide for part in of_method.values() for guide in part), length_guide],
        [*decoded.values(), by_length],
        [*(Ratings(rater, job) for rater in judged_by.values() for job in decoded.values())],
        [Fluency(job) for job in decoded.values()],
    ):
        run_jobs(stage, cache, workers, log)
    texts = load_texts(cache, name)
    measured = Measured(
        counts,
        _accuracies(texts, of_method, judged_by, cache) | _length_accuracies(texts, length_guide, cache),
        {
            key: {names: Ratings(rater, job).result(cache)["rewards"] for names, job in decoded.items()}
            for key, rater in judged_by.items()
        },
        {names: job.result(cache)["lengths"] for names, job in decoded.items()},
        {names: Fluency(job).result(cache)["logprobs"] for names, job in decoded.items()},
        {names: job.result(cache)["texts"] for names, job in decoded.items()},
        [prompt_text(prompt) for prompt in texts.prompts(sizes.prompts)],
        by_length.result(cache)["lengths"],
    )
    sources = [str(data / part) for part in ("data/MANIFEST.tsv", "data2/MANIFEST.tsv")]
    facts = {"texts": name, "pairs": counts, "sizes": sizes._asdict(), "seconds": _seconds(of_method, decoded, cache)}
    return Study(text(measured), sources, {"fronts": figure(measured)}, {}, facts)


def _accuracies(
    texts: Texts, of_method: Mapping[str, tuple[Guide, ...]], judged_by: Mapping[tuple[str, str], Rater], cache: Path
) -> dict[str, tuple[int, int]]:
    """Return how many test pairs every guide and rater decides as labelled, and their number."""
    sizes = [len(texts.short("test", name)) for name in OBJECTIVES]
    counts = {}
    for name, guides_of in of_method.items():
        for guide in guides_of:
            gaps = np.split(guide.result(cache)["gaps"], [sizes[0]])
            for column, objective in enumerate(guide.objectives):
                right = gaps[OBJECTIVES.index(objective)][:, column] > 0
                counts[f"{name}, {objective}"] = int(right.sum()), len(right)
    for (kind, objective), rater in judged_by.items():
        right = rater.result(cache)["gaps"] > 0
        counts[f"rater {kind}, {objective}"] = int(right.sum()), len(right)
    return counts


def _length_accuracies(texts: Texts, guide: Guide, cache: Path) -> dict[str, tuple[int, int]]:
    """Return how many test pairs of two lengths the positive control decides as its objectives do, and their number."""
    pairs = [pair for name in OBJECTIVES for pair in texts.short("test", name)]
    gaps, counts = guide.result(cache)["gaps"], {}
    for column, objective in enumerate(LENGTH):
        right = [
            (gap > 0) == bool(wins_by_length(pair, column)[objective])
            for pair, gap in zip(pairs, gaps[:, column], strict=True)
            if len(pair.chosen) != len(pair.rejected)
        ]
        counts[f"positive control, {objective}"] = sum(right), len(right)
    return counts


def _seconds(
    of_method: Mapping[str, tuple[Guide, ...]], decoded: Mapping[tuple[str, float], Completions], cache: Path
) -> dict[str, Any]:
    """Return the seconds of training and of decoding by method."""
    trained = {name: sum(float(guide.result(cache)["seconds"]) for guide in part) for name, part in of_method.items()}
    spent = {f"{name}, {at:g}": float(job.result(cache)["seconds"]) for (name, at), job in decoded.items()}
    return {"training": trained, "decoding": spent}
