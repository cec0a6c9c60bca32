"""Study of a process reward model on a pretrained encoder: are labels of steps worth more than labels of answers?

Plan, written before the first run. MiniLM is trained on 600 texts of PRM800K's labelled steps (`process`), on as many
of ZeroEval's solutions with the label of their final answer (`outcome`), or on the first with the labels of others
(`shuffled labels`); as many right as wrong ones, two epochs, one seed. Tests are of other
problems.

Primary question: is F1 of first errors on PRM800K higher after labels of steps than after labels of answers? The
difference is paired, with an interval over problems. Everything else is description: the sets of other sources, best
of 8. Nothing is tuned; thresholds of each arm are chosen on validation problems of PRM800K.

Both arms have the same number of labels and differ in the source of the texts too: PRM800K has no wrong final answers.
So PRM800K's tests favour `process`, and ZeroEval's candidates favour `outcome`.
"""

from pathlib import Path

import numpy as np

from ....benchmarks.report import figure
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .models import OUTCOME, PROCESS, SHUFFLED, StepModel
from .report import best_of_n, first_errors, text
from .texts import SOURCES, Numbers, load_texts, prepared

SEEDS = (0,)
ARMS = (PROCESS, OUTCOME, SHUFFLED)
SMALL = Numbers(labels=12, wrong=1, traces=4, problems=2, candidates=2)


def pretrained_steps(
    data: Path,
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    model: str = "minilm",
    log: Log = print,
) -> Study:
    """Train an encoder on labels of steps and of answers, find first errors, choose among candidates, and report.

    `data` holds the folders `data` and `data2`; results of finished jobs are read from `cache`. `rows` makes it a dry
    run; `model` may be the folder of another encoder. `seed` chooses the texts.
    """
    name = prepared(data, cache, Numbers() if rows is None else SMALL, seed)
    jobs = {arm: [StepModel(name, model, number, arm) for number in SEEDS] for arm in ARMS}
    run_jobs([job for of_arm in jobs.values() for job in of_arm], cache, workers, log)
    texts = load_texts(cache, name)
    results = {arm: [job.result(cache) for job in of_arm] for arm, of_arm in jobs.items()}
    on_traces, on_candidates = (
        {arm: np.mean([result[key] for result in of_arm], axis=0) for arm, of_arm in results.items()}
        for key in ("traces", "candidates")
    )
    single = {
        f"{arm}, seed {job.seed}": result["traces"]
        for arm in ARMS
        for job, result in zip(jobs[arm], results[arm], strict=True)
    }
    evaluations = {"first-errors": first_errors(texts, on_traces)} | {
        f"best-of-n-{key}": evaluation for key, evaluation in best_of_n(texts, on_candidates).items()
    }
    seconds = {str(job): float(job.result(cache)["seconds"]) for of_arm in jobs.values() for job in of_arm}
    facts = {"texts": name, "labels": len(texts.labelled[PROCESS]), "training_seconds": seconds}
    figures = {part: figure(evaluation.report) for part, evaluation in evaluations.items()}
    sources = [str(data / file) for file in SOURCES.values()]
    return Study(
        text((__doc__ or "").split("\n\n", 1)[1].strip(), texts, evaluations, single),
        sources,
        figures,
        evaluations,
        facts,
    )
