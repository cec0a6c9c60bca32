"""Study of policy training on a pretrained language model: a verifiable reward, and a reward model with held-out gold.

Plan, written before the first run. SmolLM2-135M-Instruct (4-bit weights, dequantised to bfloat16) is trained with LoRA
of rank 16, a learning rate of 1e-4, two groups of 8 completions a step, at most 48 tokens.

Primary question: does GRPO on a verifiable reward (five kinds of requests about 40 topics) raise the pass rate on
requests about 12 other topics? Two seeds of 40 steps; the pass rate is over one greedy and four sampled completions of
60 requests, before and after, with an interval over requests.

Everything else is description, of one seed and 20 steps each: GRPO, PPO and R2M on a MiniLM reward model of
helpfulness, R2M with stale states as its control; gold is a MiniLM reward model of other prompts, which no policy is
trained on. Nothing is tuned.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....rm.types import prompt_text
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from ..pretrained_guides.models import Rater
from ..pretrained_guides.plan import SEED
from ..pretrained_guides.texts import prepared as prepared_texts
from .report import Measured, figure, text
from .runs import GRPO, HELPFUL, PPO, R2M, STALE, VERIFIABLE, Policy, Proxy, Rewards, Samples


class Sizes(NamedTuple):
    """Sizes of the study; smaller ones are a dry run."""

    seeds: int = 2
    """Seeds of the verifiable reward; the other arms have one."""
    verifiable_steps: int = 40
    steps: int = 20
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
    jobs = _jobs(name, model, encoder, sizes)
    for stage in (
        jobs.models.values(),
        jobs.policies,
        [*jobs.before.values(), *jobs.after.values()],
        [job for of_samples in jobs.rewards.values() for job in of_samples.values()],
    ):
        run_jobs(stage, cache, workers, log)
    measured = _measured(jobs, cache, [prompt_text(prompt) for prompt in jobs.before[False].requests(cache)])
    facts = {
        "texts": name,
        "sizes": sizes._asdict(),
        "seconds": {str(p): float(p.result(cache)["seconds"]) for p in jobs.policies},
    }
    sources = [str(data / part) for part in ("data/MANIFEST.tsv", "data2/MANIFEST.tsv")]
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    return Study(text(plan, measured), sources, {"curves": figure(measured)}, {}, facts)


class _Jobs(NamedTuple):
    """All jobs of the study; completions and rewards of held-out prompts before and after each policy's training."""

    models: Mapping[str, Proxy | Rater]
    policies: Sequence[Policy]
    before: Mapping[bool, Samples]
    """Completions of the start policy, of the requests that can be checked and of the others."""
    after: Mapping[Policy, Samples]
    rewards: Mapping[Samples, Mapping[str, Rewards]]


def _jobs(texts: str, model: str, encoder: str, sizes: Sizes) -> _Jobs:
    models = {"proxy": Proxy(texts, encoder, SEED), "gold": Rater(texts, encoder, SEED, HELPFUL)}

    def policy(arm: str, seed: int) -> Policy:
        steps = sizes.verifiable_steps if arm == VERIFIABLE else sizes.steps
        return Policy(model, arm, seed, steps, sizes.longest, models["proxy"], models["gold"])

    def samples(policy: Policy | None, *, verifiable: bool) -> Samples:
        return Samples(model, policy, verifiable, texts, sizes.prompts, sizes.samples, sizes.longest)

    policies = [policy(VERIFIABLE, seed) for seed in range(sizes.seeds)]
    policies += [policy(arm, 0) for arm in (GRPO, PPO, R2M, STALE)]
    before = {verifiable: samples(None, verifiable=verifiable) for verifiable in (True, False)}
    after = {some: samples(some, verifiable=some.arm == VERIFIABLE) for some in policies}
    rated = [before[False], *(done for some, done in after.items() if some.arm != VERIFIABLE)]
    rewards = {done: {key: Rewards(by, done) for key, by in models.items()} for done in rated}
    return _Jobs(models, policies, before, after, rewards)


def _measured(jobs: _Jobs, cache: Path, prompts: Sequence[str]) -> Measured:
    """Return the results of all jobs, by policy."""
    verifiable = [policy for policy in jobs.policies if policy.arm == VERIFIABLE]
    on_models = [policy for policy in jobs.policies if policy.arm != VERIFIABLE]

    def texts(policies: Sequence[Policy]) -> dict[str, np.ndarray]:
        return {str(policy): jobs.after[policy].result(cache)["texts"] for policy in policies}

    def rewards(samples: Samples) -> dict[str, np.ndarray]:
        return {key: job.result(cache)["rewards"] for key, job in jobs.rewards[samples].items()}

    return Measured(
        {str(policy): policy.result(cache) for policy in jobs.policies},
        jobs.before[True].result(cache)["texts"],
        texts(verifiable),
        {key: job.result(cache)["gaps"] for key, job in jobs.models.items()},
        rewards(jobs.before[False]),
        {str(policy): rewards(jobs.after[policy]) for policy in on_models},
        texts(on_models),
        prompts,
    )
