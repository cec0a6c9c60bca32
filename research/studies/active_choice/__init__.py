"""Study of the active choice of pairs to label, against random.

Plan, written before a model was fitted. A linear Bradley-Terry reward model on words starts from 50 pairs with labels,
the same ones for every strategy, and gets 50 more labels ten times. Strategies: the largest spread of five models
fitted on bootstrap samples, the smallest margin, greedy k-center on the pairs' features (50 dimensions), and random.
Data: the garden (2,000 pairs with noisy labels; words are crossed with the prompt's topic; accuracy by gold on 2,000
others), and human and model-rated preferences (HH, UltraFeedback; a quarter of the prompts is held out; accuracy by
label). Data are left out where they are absent. Ten seeds; regularisation as in `train --kind linear`, not tuned.

Measured: accuracy at the end and on average over the budgets, minus that of random, paired by seed with Student's 95 %
interval; labels saved: at how many labels the mean curve reaches random's accuracy at its end, with an interval by a
bootstrap over seeds. No claim is made beforehand; the sign is reported as it is.
"""

from pathlib import Path

from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .report import figure, text
from .runs import Curves, source_files

SEEDS = 10


def active_choice(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Fit reward models on pairs chosen by each strategy, and report accuracy by number of labels.

    `data` holds the files of human preferences, which are left out if they are absent; results are stored in `cache`.
    `rows` is a dry run with as many pairs in the pool and two seeds.
    """
    seeds = range(seed, seed + (2 if rows else SEEDS))
    sizes = {"pool": rows, "start": rows // 8, "batch": rows // 8, "rounds": 2} if rows else {}
    files = source_files(data)
    worlds = {"garden": "", **({"HH and UltraFeedback": str(data)} if files else {})}
    jobs = {name: [Curves(folder, number, **sizes) for number in seeds] for name, folder in worlds.items()}
    run_jobs([job for of_world in jobs.values() for job in of_world], cache, workers, log)
    results = {name: [job.result(cache) for job in of_world] for name, of_world in jobs.items()}
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    facts = {"seeds": [*seeds], "sizes": sizes}
    return Study(text(plan, results), [*map(str, files)], {"curves": figure(results)}, {}, facts)
