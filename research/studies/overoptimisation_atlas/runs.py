"""Policies trained on a proxy by every method, measured in gold, proxy and KL during training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....policy.rewards.r2m_controls import R2MArguments
from ....policy.rewards.r2m_online_updates import Anchor, OnlineR2M
from ....policy.step.algorithm import Algorithm
from ....policy.training.critic import CriticArguments
from ....rm.contract.labelling import reward_labeller
from ....rm.kinds.ensemble.combination import mean_std
from ....rm.kinds.r2m.model import R2MRewardModel
from ....rm.kinds.scalar.model import ScalarRewardModel
from ....rm.registry import load
from ....rm.types import Messages
from ...statistics.overoptimisation import MEASURED
from ...worlds.policies import split_prompts, unseen_prompts
from ...worlds.small_policies import (
    Completions,
    PolicyLoop,
    clipped,
    kl_from,
    proxy_rewards,
    sample_completions,
    train_policy,
)
from .._runs.job_cache import Arrays, Job
from .._runs.proxies import MEMBERS, Proxy

GRPO, RLOO, PPO, PESSIMISTIC, R2M = (
    "GRPO",
    "RLOO",
    "PPO",
    "pessimistic ensemble, GRPO",
    "R2M with 25 % gold labels, GRPO",
)
METHODS = (GRPO, RLOO, PPO, PESSIMISTIC, R2M)
ADVANTAGES: Mapping[str, str] = {RLOO: "rloo", PPO: "gae"}
PESSIMISM = 1.0
GOLD_SHARE = 0.25
ROUNDS = 36
"""Cycles in which R2M's ω falls; a run takes about as many to a KL of 12."""
CRITIC = CriticArguments(learning_rate=1e-3, hidden=64, passes=8)
R2M_SETTINGS = {"learning_rate": 1e-3, "alpha": 0.0}


@dataclass(frozen=True)
class AtlasRun(Job):
    """A policy trained without a KL penalty until its KL from the start policy reaches `furthest`."""

    proxy: Proxy
    method: str = GRPO
    gold: bool = False
    """Whether gold is the reward that the policy is trained on; the proxy is only measured."""
    cycles: int = 60
    every: int = 3
    """Cycles between measurements."""
    asked: int = 1024
    """Completions of a measurement."""
    furthest: float = 12.0
    learning_rate: float = 2e-4
    prompts: int = 8
    group: int = 8

    def __str__(self) -> str:
        return f"{self.method} on {'gold' if self.gold else f'the {self.proxy}'}, seed {self.proxy.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return KL, gold and proxy [T] at every measurement."""
        start, seed = self.proxy.base.load(cache), self.proxy.base.seed
        policy, judge, rows = self.proxy.base.load(cache), self.proxy.load(cache), []
        seen, asked = split_prompts()[0], unseen_prompts(self.asked)
        for report in train_policy(
            policy,
            self._reward(start, cache),
            algorithm(self.method),
            PolicyLoop(self.cycles, self.prompts, self.group, learning_rate=self.learning_rate),
            seen,
            seed=seed,
            critic=CRITIC if self.method == PPO else None,
        ):
            if report.cycle and report.cycle % self.every == 0:
                at = measured(policy, start, judge, asked, seed=100_000 * (seed + 1) + report.cycle)
                rows.append({"step": report.cycle} | at)
                if at["kl"] >= self.furthest:
                    break
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _reward(self, start: PreTrainedModel, cache: Path) -> Any:
        if self.gold:
            return lambda completions: garden.gold().rate(completions.examples)[:, 0]
        if self.method == PESSIMISTIC:
            return pessimistic_reward(ensemble(self.proxy), cache)
        model = self.proxy.load(cache)
        return (
            self._r2m(model, start)
            if self.method == R2M
            else lambda completions: proxy_rewards(model, completions.rows)
        )

    def _r2m(self, model: ScalarRewardModel, start: PreTrainedModel) -> OnlineR2M:
        width, seed = start.config.hidden_size, self.proxy.base.seed
        anchor = Anchor(reward_labeller(garden.gold()), max(1, round(GOLD_SHARE * self.prompts)), only=True)
        head = R2MRewardModel.on(model, width, width, zero_out=True, seed=seed)
        return OnlineR2M(head, ROUNDS, R2MArguments(**R2M_SETTINGS, seed=seed), anchor=anchor)


def algorithm(method: str) -> Algorithm:
    """Return the algorithm of a method without a KL penalty; PPO's advantages are whitened GAE of a critic."""
    white = {"white": load("policy.transforms", "whiten")()} if method == PPO else {}
    return clipped(ADVANTAGES.get(method, "grpo"), advantage_transforms=white)


def ensemble(proxy: Proxy) -> list[Proxy]:
    """Return the members of a proxy's ensemble; the first is the proxy."""
    return [replace(proxy, member=member) for member in range(MEMBERS)]


def pessimistic_reward(members: Sequence[Proxy], cache: Path) -> Any:
    """Return the reward mean_m z_m - c std_m z_m, as `EnsembleRewardModel`; z_m is 0 ± 1 on the start policy's samples.

    Coste et al. 2023, arXiv:2310.02743, eq. 4
    """
    models = [member.load(cache) for member in members]
    known = [member.result(cache)["rewards"] for member in members]

    def reward(completions: Completions) -> np.ndarray:
        pairs = zip(models, known, strict=True)
        z = np.stack([_standardised(proxy_rewards(model, completions.rows), rewards) for model, rewards in pairs])
        return mean_std(PESSIMISM)(z[..., None], None)[:, 0]

    return reward


def _standardised(rewards: Tensor, known: np.ndarray) -> np.ndarray:
    return (rewards.double().numpy() - known.mean()) / known.std()


@torch.no_grad()
def measured(
    policy: PreTrainedModel, start: PreTrainedModel, judge: ScalarRewardModel, asked: Sequence[Messages], *, seed: int
) -> dict[str, float]:
    """Return the mean log π - log π_start of sampled completions, an unbiased estimate of the KL, and mean rewards."""
    completions = sample_completions(policy, asked, seed=seed)
    gold, proxy = garden.gold().rate(completions.examples), proxy_rewards(judge, completions.rows)
    values = (kl_from(start, completions), float(gold.mean()), float(proxy.mean()))
    return dict(zip(MEASURED, values, strict=True))
