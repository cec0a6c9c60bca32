"""Study of a generative judge from a small language model: Auto-J's critiques, then the verdict reward.

Plan, written before the first run. SmolLM2-135M-Instruct (4-bit weights, dequantised to bfloat16) is trained with LoRA
on replies of the judge's form: the first sentence of Auto-J's critique of each response, then the verdict of its two
ratings, in both orders. Then follow 50 steps of GRPO on the verdict reward, 8 completions a step, on short pairs of
other sources. The test is Auto-J's pairs without a tie that are short, each in both orders.

Figures: share of cases with a verdict, accuracy on them, and how often the verdict flips with the order, of the start
model, after the critiques and after the reward. With 120 cases an accuracy of 0.63 is told from 0.5 with 80 % power.
One seed; nothing is tuned.
"""

from pathlib import Path

from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .report import figure, text
from .runs import Critiqued, Judged, Rewarded
from .texts import CRITIQUES, TEST, load_texts, prepared


def pretrained_judge(
    data: Path,
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    model: str = "smollm2",
    log: Log = print,
) -> Study:
    """Train a judge on critiques and on the verdict reward, judge the test before and after, and report.

    `data` holds the folders `data` and `data2`; results of finished jobs are read from `cache`. `rows` makes it a dry
    run; `model` may be the folder of another language model.
    """
    small = rows is not None
    name = prepared(data, cache, 4 if small else 400, 3 if small else 120, seed)
    critiqued = Critiqued(name, model, seed, 0.02 if small else 2.0)
    rewarded = Rewarded(critiqued, 1 if small else 50)
    judges = {"start": None, "critiques": critiqued, "verdict reward": rewarded}
    judgments = {key: Judged(name, model, judge) for key, judge in judges.items()}
    for stage in ([critiqued], [rewarded], [*judgments.values()]):
        run_jobs(stage, cache, workers, log)
    results = {key: job.result(cache) for key, job in judgments.items()}
    reward, texts = rewarded.result(cache)["reward"], load_texts(cache, name)
    counts = {"traces": len(texts.traces), "training pairs": len(texts.training), "test pairs": len(texts.test)}
    facts = {
        "texts": name,
        "counts": counts,
        "seconds": {str(job): float(job.result(cache)["seconds"]) for job in (critiqued, rewarded)},
    }
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    sources = [str(data / file) for file in (CRITIQUES, TEST)]
    return Study(text(plan, counts, results, reward), sources, {"reward": figure(reward)}, {}, facts)
