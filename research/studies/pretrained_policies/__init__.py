"""Study of policy training on a pretrained language model: a verifiable reward, and a reward model with held-out gold.

Plan, written before the first run. SmolLM2-135M-Instruct (4-bit weights, dequantised) is trained with LoRA of rank 16,
a learning rate of 1e-4, two groups of 8 completions a step, at most 48 tokens.

Primary question: does GRPO on a verifiable reward (five kinds of requests about 40 topics) raise the pass rate on
requests about 12 other topics? Two seeds of 50 steps; the pass rate is over one greedy and four sampled completions of
60 requests, before and after, with an interval over requests.

Everything else is description, of one seed and 30 steps each: GRPO, PPO and R2M on a MiniLM reward model of
helpfulness, R2M with stale states as its control; gold is a MiniLM reward model of other prompts, which no policy is
trained on. Nothing is tuned.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....rm.types import prompt_text
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from ..pretrained_guides.models import Rater
from ..pretrained_guides.plan import SEED
from ..pretrained_guides.texts import load_texts
from ..pretrained_guides.texts import prepared as prepared_texts
from .report import Measured, figure, text
from .runs import GRPO, HELPFUL, PPO, R2M, STALE, VERIFIABLE, Policy, Proxy, Rewards, Samples


class Sizes(NamedTuple):
    """Sizes of the study; smaller ones are a dry run."""

    seeds: int = 2
    """Seeds of the verifiable reward; the other arms have one."""
    verifiable_steps: int = 50
    steps: int = 30
    longest: int = 48
    prompts: int = 60
    samples: int = 4


SMALL = Sizes(seeds=1, verifiable_steps=1, steps=1, longest=4, prompts=3, samples=1)


def pretrained_policies(
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
    """Train policies on a language model, decode held-out prompts before and after, rate them, and report.

    `data` holds the folders `data` and `data2`; results of finished jobs are read from `cache`. `rows` makes it a dry
    run; `model` and `encoder` may be folders of other models. `seed` has no effect: the seeds are in the plan.
    """
    sizes = Sizes() if rows is None else SMALL
    name, _ = prepared_texts(data, cache, rows)
    proxy, gold = Proxy(name, encoder, SEED), Rater(name, encoder, SEED, HELPFUL)
    policies = {
        arm: [
            Policy(
                model,
                arm,
                number,
                sizes.verifiable_steps if arm == VERIFIABLE else sizes.steps,
                sizes.longest,
                proxy,
                gold,
            )
            for number in range(sizes.seeds if arm == VERIFIABLE else 1)
        ]
        for arm in (VERIFIABLE, GRPO, PPO, R2M, STALE)
    }
    of_all = [policy for of_arm in policies.values() for policy in of_arm]

    def samples(policy: Policy | None, *, verifiable: bool) -> Samples:
        return Samples(model, policy, verifiable, name, sizes.prompts, sizes.samples, sizes.longest)

    before = {verifiable: samples(None, verifiable=verifiable) for verifiable in (True, False)}
    after = {policy: samples(policy, verifiable=policy.arm == VERIFIABLE) for policy in of_all}
    rated = [before[False], *(done for policy, done in after.items() if policy.arm != VERIFIABLE)]
    rewards = {some: {key: Rewards(by, some) for key, by in (("proxy", proxy), ("gold", gold))} for some in rated}
    for stage in (
        [proxy, gold],
        of_all,
        [*before.values(), *after.values()],
        [job for of_samples in rewards.values() for job in of_samples.values()],
    ):
        run_jobs(stage, cache, workers, log)

    def numbers(some: Samples) -> Mapping[str, np.ndarray]:
        return {key: job.result(cache)["rewards"] for key, job in rewards[some].items()}

    measured = Measured(
        {str(policy): policy.result(cache) for policy in of_all},
        before[True].result(cache)["texts"],
        {str(policy): after[policy].result(cache)["texts"] for policy in policies[VERIFIABLE]},
        {key: job.result(cache)["gaps"] for key, job in (("proxy", proxy), ("gold", gold))},
        numbers(before[False]),
        {str(policy): numbers(after[policy]) for policy in of_all if policy.arm != VERIFIABLE},
        {some: job.result(cache)["texts"] for some, job in ((str(p), after[p]) for p in of_all if p.arm != VERIFIABLE)},
        [prompt_text(prompt) for prompt in load_texts(cache, name).prompts(2 * sizes.prompts)[::2]],
    )
    facts = {
        "texts": name,
        "sizes": sizes._asdict(),
        "seconds": {str(p): float(p.result(cache)["seconds"]) for p in of_all},
    }
    sources = [str(data / part) for part in ("data/MANIFEST.tsv", "data2/MANIFEST.tsv")]
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    return Study(text(plan, measured), sources, {"curves": figure(measured)}, {}, facts)
