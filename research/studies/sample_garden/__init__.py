"""Study of `rewardlab sample` in the garden: what the best of 16 completions gains in gold, and whether intervals hold.

Plan, written before the first run. In each of 5 seeds a start policy and a reward model (1,000 pairs, about 70 % of
held-out pairs) are trained; `rewardlab sample` takes the best of 16 completions of 48 unseen prompts by the reward
model, by gold, and by length, each beside its random selection from the same completions.

Primary question: is the gold of the best by the reward model higher than that of the random selection? The mean over
prompts has Student's 95 % interval over seeds. Length is the baseline without a reward model, gold the ceiling; both
are paired with the reward model by seed. 5 seeds with a standard deviation of 0.1 show a difference of 0.17 with 80 %
power.

Intervals: from 128 other completions of each prompt, 200 simulations a seed draw 48 prompts with replacement and 16
completions of each without, and estimate the expected gain of the best of 2, 4, 8 and 16 by the reward model, in its
own reward and in gold, with the 95 % interval that `sample` reports. The truth is the exact expectation over all 128.
The interval is right if at least 93 % of the simulations contain it; 12 prompts instead of 48 are description.

Nothing is tuned. If an interval falls short the estimator is mended, and both results are reported.
"""

from pathlib import Path

from .._runs.job_cache import run_jobs
from .._runs.proxies import LEVELS, Proxy
from .._study import Log, Study
from .report import Measured, text
from .runs import SELECTORS, Coverage, Selection

SEEDS, PROMPTS, N = 5, 48, 16


def sample_garden(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Select the best of 16 completions by three rewards, simulate the intervals of the expected gain, and report.

    Results of finished jobs are read from `cache`. `rows` makes it a dry run with that many prompts.
    """
    prompts, share = (PROMPTS, 1.0) if rows is None else (rows, 0.02)
    seeds = range(seed, seed + (SEEDS if rows is None else 2))
    proxies = [Proxy.part(number, LEVELS["70 %"], share, prompts=prompts) for number in seeds]
    selections = {name: [Selection(proxy, name, prompts, N) for proxy in proxies] for name in SELECTORS}
    simulations = 200 if rows is None else 4
    coverages = {number: [Coverage(proxy, simulations, number, N) for proxy in proxies] for number in (prompts, 12)}
    for stage in (
        [proxy.base for proxy in proxies],
        [proxy.samples for proxy in proxies],
        proxies,
        [job for jobs in selections.values() for job in jobs],
        [job for jobs in coverages.values() for job in jobs],
    ):
        run_jobs(stage, cache, workers, log)
    measured = Measured(
        [proxy.result(cache) for proxy in proxies],
        {name: [job.result(cache) for job in jobs] for name, jobs in selections.items()},
        {number: [job.result(cache) for job in jobs] for number, jobs in coverages.items()},
    )
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    return Study(text(plan, measured), [], {}, {}, {"seeds": [*seeds], "prompts": prompts, "n": N})
