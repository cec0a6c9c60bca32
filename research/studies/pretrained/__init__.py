"""Study of reward models that start from pretrained weights, trained on human and model preferences.

MiniLM's recipe (mix of data, learning rate, epochs) and SmolLM2's learning rate are chosen by the accuracy on
validation pairs; final models then rate held-out human pairs and five benchmarks once. Beside them stand a linear head
on frozen features, TF-IDF that is fitted on the same pairs, and every baseline of the benchmarks. `plan` was committed
before the first run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....benchmarks.baselines import all_baselines, baselines_for
from ....benchmarks.evaluate import Evaluation, evaluate
from ....benchmarks.scorers import StoredScores
from ....benchmarks.suites.pairs import Pairs, as_cases
from ....judges.types import Case
from ....rm.types import PreferencePair
from .._study import Log, Study
from ..every_suite import Loaded
from . import report
from .finals import Final, final_models
from .plan import LENGTH_CONTROLLED, NUMBERS, PLAIN, choice_jobs, minilm_finals, run_minilm, run_smollm2, smollm2_jobs
from .texts import HUMAN, load_texts, prepared


def pretrained(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Train reward models on MiniLM and SmolLM2, rate held-out pairs and benchmarks, and report.

    `data` holds the folders `data` and `data2`; results of finished jobs are read from `cache`. `seed` is that of the
    baselines and of the intervals. `rows` shortens every source and benchmark, for a dry run.
    """
    texts, suites, counts = prepared(data, cache, rows)
    recipe, smollm2 = run_minilm(texts, cache, workers, log), run_smollm2(texts, cache, workers, log)
    finals = final_models(texts, recipe, smollm2, cache)
    read = load_texts(cache, texts)
    held_out = read.part("held-out")
    evaluations = {
        "human": _on_pairs([pair.subset in HUMAN for pair in held_out], held_out, finals, seed),
        "held-out": _on_pairs([True] * len(held_out), held_out, finals, seed),
        **{name: _on_suite(name, suite, finals, seed) for name, suite in suites.items()},
    }
    choices = [(job.recipe, job.backbone, job.result(cache)) for job in [*choice_jobs(texts), *smollm2_jobs(texts)]]
    tuned = minilm_finals(texts, recipe)
    facts = {
        "texts": texts,
        "pairs": counts,
        "recipes": {"minilm": recipe._asdict(), "smollm2": smollm2._asdict()},
        "machines": sorted({str(arrays["machine"]) for model in finals for arrays in model.results}),
        "seconds": {model.name: [round(float(arrays["seconds"])) for arrays in model.results] for model in finals},
    }
    ensemble = next(model for model in finals if model.members is not None)
    parts = [
        report.results(finals, evaluations),
        report.choices(choices),
        report.uncertainty(ensemble, held_out),
        report.calibration(finals),
        report.length_control(*(tuned[name][0].result(cache) for name in (LENGTH_CONTROLLED, PLAIN)), held_out),
        report.lint_of(read.training(recipe.mix, max(NUMBERS), seed=0)),
        report.cuts(finals),
    ]
    sources = [str(data / part) for part in ("data/MANIFEST.tsv", "data2/MANIFEST.tsv")]
    figures = {"learning_curves": report.learning_curves(finals, evaluations)}
    return Study(report.document(parts, counts), sources, figures, evaluations, facts)


def _on_pairs(
    chosen: Sequence[bool], pairs: Sequence[PreferencePair], finals: Sequence[Final], seed: int
) -> Evaluation:
    """Evaluate on some of the held-out pairs."""
    some = np.flatnonzero(chosen)
    cases, _ = as_cases([pairs[index] for index in some])
    rewards = {model.name: model.rewards("held-out").reshape(-1, 2)[some] for model in finals}
    return evaluate(Pairs(), cases, [*_scorers(finals, cases, rewards), *all_baselines(seed)], seed=seed)


def _on_suite(name: str, suite: Loaded, finals: Sequence[Final], seed: int) -> Evaluation:
    rewards = {model.name: model.rewards(name) for model in finals}
    scorers = [*_scorers(finals, suite.cases, rewards), *baselines_for(suite.cases, seed)]
    return evaluate(suite.suite, suite.cases, scorers, notes=suite.notes, seed=seed)


def _scorers(finals: Sequence[Final], cases: Sequence[Case], rewards: Mapping[str, Any]) -> list[StoredScores]:
    """Return the first seed of every final model as a scorer; TF-IDF on the same pairs is a baseline."""
    ends = np.cumsum([len(case.answers) for case in cases])[:-1]
    scorers = []
    for model in finals:
        pieces = np.split(rewards[model.name].reshape(-1), ends)
        scores = {case.id: tuple(piece.tolist()) for case, piece in zip(cases, pieces, strict=True)}
        scorers.append(StoredScores(model.name, scores, role="baseline" if model.words else "model"))
    return scorers
