"""Study of policy training on a pretrained language model by a reward model with held-out gold.

Plan, written before the first run. SmolLM2-135M-Instruct (4-bit weights, dequantised to bfloat16) is trained with LoRA
of rank 16, a learning rate of 1e-4, two groups of 8 completions a step, at most 48 tokens, for 20 steps.

GRPO, PPO and R2M are trained on a MiniLM reward model of helpfulness, R2M with stale states as its control; gold is a
MiniLM reward model of other prompts, which no policy is trained on. Does gold rise with the reward? Everything is
description, of one seed. Nothing is tuned.
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
from ..pretrained_guides.texts import prepared as prepared_texts
from .report import Measured, figure, text
from .runs import GRPO, HELPFUL, PPO, R2M, STALE, Policy, Proxy, Rewards, Samples


class Sizes(NamedTuple):
    """Sizes of the study; smaller ones are a dry run."""

    steps: int = 20
    longest: int = 48
    prompts: int = 60
    samples: int = 4


SMALL = Sizes(steps=1, longest=4, prompts=3, samples=1)


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
    completions = [jobs.before, *jobs.after.values()]
    rewards = [job for samples in completions for job in jobs.rewards(samples).values()]
    for stage in (jobs.models.values(), jobs.after, completions, rewards):
        run_jobs(stage, cache, workers, log)
    measured = _measured(jobs, cache)
    seconds = {str(policy): float(policy.result(cache)["seconds"]) for policy in jobs.after}
    facts = {"texts": name, "sizes": sizes._asdict(), "seconds": seconds}
    sources = [str(data / part) for part in ("data/MANIFEST.tsv", "data2/MANIFEST.tsv")]
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    return Study(text(plan, measured), sources, {"curves": figure(measured.curves)}, {}, facts)


class _Jobs(NamedTuple):
    """All jobs of the study; completions of held-out prompts before and after each policy's training."""

    models: Mapping[str, Proxy | Rater]
    before: Samples
    after: Mapping[Policy, Samples]

    def rewards(self, samples: Samples) -> dict[str, Rewards]:
        """Return the jobs of the completions' rewards, by reward model."""
        return {key: Rewards(model, samples) for key, model in self.models.items()}


def _jobs(texts: str, model: str, encoder: str, sizes: Sizes) -> _Jobs:
    proxy, gold = Proxy(texts, encoder, SEED), Rater(texts, encoder, SEED, HELPFUL)

    def samples(policy: Policy | None) -> Samples:
        return Samples(model, policy, texts, sizes.prompts, sizes.samples, sizes.longest)

    policies = [Policy(model, arm, SEED, sizes.steps, sizes.longest, proxy, gold) for arm in (GRPO, PPO, R2M, STALE)]
    return _Jobs({"proxy": proxy, "gold": gold}, samples(None), {policy: samples(policy) for policy in policies})


def _measured(jobs: _Jobs, cache: Path) -> Measured:
    """Return the results of all jobs, by policy."""

    def rewards(samples: Samples) -> dict[str, np.ndarray]:
        return {key: job.result(cache)["rewards"] for key, job in jobs.rewards(samples).items()}

    return Measured(
        {str(policy): policy.result(cache) for policy in jobs.after},
        {key: job.result(cache)["gaps"] for key, job in jobs.models.items()},
        rewards(jobs.before),
        {str(policy): rewards(samples) for policy, samples in jobs.after.items()},
        {str(policy): samples.result(cache)["texts"] for policy, samples in jobs.after.items()},
        [prompt_text(prompt) for prompt in jobs.before.requests(cache)],
    )
