"""Study of GRPO on a pretrained language model with a reward that can be checked.

Plan, written before a completion was checked. SmolLM2-135M-Instruct (4-bit weights, dequantised to bfloat16) is trained
with LoRA of rank 16, a learning rate of 1e-4, two groups of 8 completions a step, at most 48 tokens, for 40 steps.

Question: does GRPO on a verifiable reward (five kinds of requests about 40 topics) raise the pass rate on requests
about 12 other topics? The pass rate is over one greedy and four sampled completions of 60 requests, before and after,
with an interval over requests. One seed; nothing is tuned.
"""

from pathlib import Path
from typing import NamedTuple

from .._runs.job_cache import run_jobs
from .._study import Log, Study
from ..pretrained_policies.runs import VERIFIABLE, Policy, Samples
from .report import figure, text


class Sizes(NamedTuple):
    """Sizes of the study; smaller ones are a dry run."""

    steps: int = 40
    longest: int = 48
    prompts: int = 60
    samples: int = 4


SMALL = Sizes(steps=1, longest=4, prompts=3, samples=1)


def pretrained_requests(
    cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, model: str = "smollm2", log: Log = print
) -> Study:
    """Train a policy on requests that can be checked, decode held-out ones before and after, and report.

    Results of finished jobs are read from `cache`. `rows` makes it a dry run; `model` may be the folder of another
    model.
    """
    sizes = Sizes() if rows is None else SMALL
    policy = Policy(model, VERIFIABLE, seed, sizes.steps, sizes.longest)
    before, after = (Samples(model, some, "", sizes.prompts, sizes.samples, sizes.longest) for some in (None, policy))
    for stage in ([policy], [before, after]):
        run_jobs(stage, cache, workers, log)
    curve = policy.result(cache)
    report = text(
        (__doc__ or "").split("\n\n", 1)[1].strip(), before.result(cache)["texts"], after.result(cache)["texts"], curve
    )
    facts = {"sizes": sizes._asdict(), "seconds": float(curve["seconds"])}
    return Study(report, [], {"curves": figure(curve)}, {}, facts)
