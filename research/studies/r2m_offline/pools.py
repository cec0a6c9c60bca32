"""Pools of completions of the start policy and of drifted checkpoints, with the hidden states of their readers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....rm.kinds.scalar.model import ScalarRewardModel
from ....rm.types import Messages
from ...worlds.guides import copy_weights
from ...worlds.policies import split_prompts, unseen_prompts
from ...worlds.small_policies import (
    PolicyLoop,
    clipped,
    completion_readings,
    kl_from,
    proxy_rewards,
    proxy_tokens,
    sample_completions,
    train_policy,
)
from .._runs.job_cache import Arrays, Job
from .._runs.proxies import Proxy

GROUP = 8
KL = "kl of checkpoint"


@dataclass(frozen=True)
class R2MDrift(Job):
    """Checkpoints of a policy trained against a weak proxy, by GRPO without a KL penalty."""

    proxy: Proxy
    kls: tuple[float, ...] = (3.0, 8.0)
    """KL from the start policy, in nats, at which a checkpoint is taken; the last cycle's if it is not reached."""
    cycles: int = 90
    every: int = 2
    asked: int = 512
    """Completions of a measurement of the KL."""
    learning_rate: float = 2e-4

    def __str__(self) -> str:
        return f"checkpoints drifted against the {self.proxy}"

    def work(self, cache: Path) -> Arrays:
        """Return the weights of every checkpoint, and its KL."""
        start, policy, judge = self.proxy.base.load(cache), self.proxy.base.load(cache), self.proxy.load(cache)
        seen, asked, taken, kl = split_prompts()[0], unseen_prompts(self.asked), {}, 0.0
        loop = PolicyLoop(self.cycles, learning_rate=self.learning_rate)
        reward = lambda completions: proxy_rewards(judge, completions.rows)  # noqa: E731
        for report in train_policy(policy, reward, clipped(), loop, seen, seed=self.proxy.seed):
            last = report.cycle == self.cycles
            if report.cycle % self.every and not last:
                continue
            draws = 90_000 * (self.proxy.seed + 1) + report.cycle
            kl = kl_from(start, sample_completions(policy, asked, seed=draws))
            while len(taken) < len(self.kls) and (last or kl >= self.kls[len(taken)]):
                taken[len(taken)] = _weights(policy, len(taken)) | {f"{KL} {len(taken)}": np.array(kl)}
            if len(taken) == len(self.kls):
                break
        return {name: value for arrays in taken.values() for name, value in arrays.items()}

    def policies(self, cache: Path) -> list[PreTrainedModel]:
        """Return the start policy and every checkpoint."""
        stored, policies = self.result(cache), [self.proxy.base.load(cache)]
        for index in range(len(self.kls)):
            policies.append(self.proxy.base.load(cache))
            prefix = f"{index} "
            weights = {name.removeprefix(prefix): stored[name] for name in stored if name.startswith(prefix)}
            copy_weights(dict(policies[-1].named_parameters()), weights)
        return policies


def _weights(policy: PreTrainedModel, index: int) -> Arrays:
    return {f"{index} {name}": weight.detach().numpy().copy() for name, weight in policy.named_parameters()}


# ---- pools ----


class Pool(NamedTuple):
    """N completions in groups of `GROUP` with the same prompt, by row."""

    tokens: Float[Tensor, "N D"]
    """Reward tokens of the proxy's frozen body."""
    gold: Float[Tensor, " N"]
    current: Float[Tensor, "N W P"]
    """Last hidden states of the policy that wrote the completion, prompt included."""
    stale: Float[Tensor, "N W P"]
    """Those of the start policy, which reads the same text."""
    mask: Bool[Tensor, "N W"]
    """Positions that predict a token."""

    def states(self, name: str, seed: int) -> Float[Tensor, "N W P"]:
        """Return the states that an arm reads: own, stale, shuffled (of another completion of the group) or noise."""
        if name == "shuffled":
            return self.current.unflatten(0, (-1, GROUP)).roll(1, 1).flatten(0, 1)
        return self._noise(seed) if name == "noise" else {"own": self.current, "stale": self.stale}[name]

    def state_mask(self, name: str) -> Bool[Tensor, "N W"]:
        """Return the mask of `states`."""
        return self.mask.unflatten(0, (-1, GROUP)).roll(1, 1).flatten(0, 1) if name == "shuffled" else self.mask

    def _noise(self, seed: int) -> Float[Tensor, "N W P"]:
        """Return normal noise with the mean and the standard deviation of each dimension."""
        std, mean = torch.std_mean(self.current[self.mask], 0, correction=0)
        return mean + std * torch.randn(self.current.shape, generator=Generator().manual_seed(seed))


@torch.no_grad()
def sample_pool(
    writer: PreTrainedModel, start: PreTrainedModel, body: ScalarRewardModel, prompts: Sequence[Messages], *, seed: int
) -> Pool:
    """Sample a completion of every prompt; consecutive `GROUP` prompts are the same one."""
    completions = sample_completions(writer, prompts, seed=seed)
    rows = completions.rows
    current, stale = (completion_readings(policy, rows).states for policy in (writer, start))
    mask = torch.arange(rows.tokens.shape[1]) < rows.attention.sum(1, keepdim=True) - 1
    gold = torch.from_numpy(garden.gold().rate(completions.examples)[:, 0])
    return Pool(proxy_tokens(body, rows), gold, current, stale, mask)


def private(pool: Pool, *, share: float, strength: float, seed: int) -> Pool:
    """Return the pool of a world where the writer's states hold a private sign that the text does not.

    Every completion has a fair sign z, drawn independently of its text. The writer's states have h · u = strength z for
    a fixed unit vector u, so that z = sign(h · u) is a function of the writer's state at every position; its gold
    reward is gold + share std(gold) z. The start policy reads the text, so its states know nothing of z.
    """
    generator = Generator().manual_seed(seed)
    z = torch.randint(2, (len(pool.gold),), generator=generator) * 2.0 - 1
    u = private_direction(pool.current.shape[-1])
    current = pool.current + (strength * z[:, None] - pool.current @ u)[..., None] * u
    return pool._replace(current=current, gold=pool.gold + share * pool.gold.std() * z)


def private_direction(width: int) -> Float[Tensor, " P"]:
    """Return the unit vector on which the private sign is written: the same in all pools and seeds."""
    u = torch.randn(width, generator=Generator().manual_seed(0))
    return u / u.norm()
