"""Policies trained on R2M and its controls until they reach a KL, with the accuracy of the labels of every update."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....policy.decoding.engines import decoding_model
from ....policy.rewards.r2m_controls import CONTROLS, R2MArguments, stale
from ....policy.rewards.r2m_online_updates import Anchor, OnlineR2M
from ....rm.contract.labelling import reward_labeller
from ....rm.kinds.r2m.model import R2MRewardModel
from ....rm.kinds.scalar.model import ScalarRewardModel
from ....rm.losses.grebt import GroupLosses, Pairs
from ....rm.types import Labeller
from ...worlds.policies import Teaching, split_prompts
from ...worlds.small_policies import PolicyLoop, train_policy
from .._runs.job_cache import Arrays, Job
from .._runs.proxies import LEVELS, Proxy
from ..overoptimisation_atlas.runs import GRPO, algorithm
from ..r2m_offline.refits import label_accuracy
from ..replay.runs import measure

LEVEL_75, LEVEL_85 = "75 %", "85 %"
PROXIES: Mapping[str, Teaching] = {
    LEVEL_75: Teaching(pairs=2_000, steps=100, learning_rate=1.5e-3, votes="many"),
    LEVEL_85: LEVELS["80 %"],
}
"""Training of the proxies, by the accuracy on held-out pairs that it was chosen for on the pilot's seeds."""


@dataclass(frozen=True)
class Arm:
    """What the reward model reads, and which labels its updates use."""

    control: str = ""
    """Name in `CONTROLS`, or "stale" for the start policy's states of the same text; empty: R2M."""
    labels: Literal["own", "gold", "random"] = "own"
    """Source of the label of a group's best and worst completion; own: the reward model's order, as published."""


FROZEN, R2M, HEAD, STALE, SHUFFLED = "frozen", "R2M", "head only", "stale states", "shuffled states"
GOLD, RANDOM = "R2M, gold labels", "R2M, random labels"
ARMS: Mapping[str, Arm] = {
    FROZEN: Arm("frozen"),
    R2M: Arm(),
    HEAD: Arm("iterative_head"),
    STALE: Arm("stale"),
    SHUFFLED: Arm("shuffled"),
    GOLD: Arm(labels="gold"),
    RANDOM: Arm(labels="random"),
}
ONE_PROXY = (SHUFFLED, GOLD, RANDOM)
"""Controls that run on the weaker proxy only."""


class LoggedR2M(OnlineR2M):
    """OnlineR2M that records the share of each update's labels that agree with gold.

    A frozen model has no updates; recorded is its own order, the labels that it would give.
    """

    def __init__(self, model: R2MRewardModel, rounds: int, arguments: R2MArguments, *, anchor: Anchor | None = None):
        super().__init__(model, rounds, arguments, anchor=anchor)
        self.label_accuracy: list[float] = []

    def _update(self, batch: Any, pairs: Pairs, random: Any) -> GroupLosses:
        gold = garden.gold().rate(batch.examples)[:, 0][batch.rows]
        self.label_accuracy.append(label_accuracy(pairs, pairs.wins.new_tensor(gold)))
        return super()._update(batch, pairs, random)


@dataclass(frozen=True)
class R2MOnlineRun(Job):
    """A policy trained without a KL penalty on one arm's reward model until its KL from the start policy is `kl`."""

    proxy: Proxy
    arm: Arm
    kl: float = 6.0
    cycles: int = 40
    every: int = 4
    """Cycles between measurements."""
    rounds: int = 32
    """Cycles in which ω falls, about as many as a run takes."""
    asked: int = 256
    """Completions of a measurement during training."""
    completions: int = 4096
    """Completions of each of the two measurements for the reading."""
    head_rate: float = 3e-3
    """Learning rate of the head, which takes one step in each cycle."""
    learning_rate: float = 2e-4
    prompts: int = 8
    group: int = 8

    def __str__(self) -> str:
        return f"{self.arm.control or 'r2m'}, {self.arm.labels} labels, {self.proxy}"

    def work(self, cache: Path) -> Arrays:
        """Return step, KL and gold [T] by measurement, label accuracy by cycle, and gold and KL at the reading.

        The reading is at a KL of `kl`: linear between the first measured policy that reaches it and the one before,
        each measured on `completions` again. A run that has not reached it is read at the nearer one.
        """
        start, seed = self.proxy.base.load(cache), self.proxy.base.seed
        policy, source = self.proxy.base.load(cache), self.source(start, self.proxy.load(cache))
        loop = PolicyLoop(self.cycles, self.prompts, self.group, learning_rate=self.learning_rate)
        draws = 100_000 * (seed + 1)
        rows, below = [], start
        for report in train_policy(policy, source, algorithm(GRPO), loop, split_prompts()[0], seed=seed):
            if report.cycle % self.every and report.cycle < self.cycles:
                continue
            rows.append({"step": report.cycle} | measure(policy, start, self.asked, draws + report.cycle))
            if rows[-1]["kl"] >= self.kl or report.cycle == self.cycles:
                break
            below = deepcopy(policy)
        ends = [
            measure(model, start, self.completions, draws + 50_000 + at) for at, model in enumerate((below, policy))
        ]
        kl, gold = read_at(ends, self.kl)
        curves = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        reading = {"read_kl": np.array(kl), "read_gold": np.array(gold)}
        return curves | reading | {"label_accuracy": np.array(source.label_accuracy)}

    def source(self, start: PreTrainedModel, judge: ScalarRewardModel) -> LoggedR2M:
        """Return the arm's reward model; with W_o = 0 it orders completions as the proxy does before its updates."""
        width, seed = start.config.hidden_size, self.proxy.base.seed
        arguments = R2MArguments(learning_rate=self.head_rate, seed=seed)
        if self.arm.control == "stale":
            arguments = replace(arguments, reads=stale(start, decoding_model(start, tokenizer()).encoder))
        elif self.arm.control:
            arguments = replace(arguments, **CONTROLS[self.arm.control])
        anchor = None
        if self.arm.labels != "own":
            labeller = reward_labeller(garden.gold()) if self.arm.labels == "gold" else random_labeller(seed)
            anchor = Anchor(labeller, self.prompts, only=True)
        model = R2MRewardModel.on(judge, width, width, zero_out=True, seed=seed)
        return LoggedR2M(model, self.rounds, arguments, anchor=anchor)


def random_labeller(seed: int) -> Labeller:
    """Return a labeller whose labels are fair coins."""
    random = np.random.default_rng([seed, 7])
    return lambda prompt, completions: float(random.integers(2))


def read_at(ends: list[dict[str, float]], kl: float) -> tuple[float, float]:
    """Return KL and gold at `kl`, linear between two measurements; those of the nearer one if it is not between them.

    >>> read_at([{"kl": 5.0, "gold": 1.0}, {"kl": 7.0, "gold": 2.0}], 6.0)
    (6.0, 1.5)
    """
    kls, gold = zip(*sorted((end["kl"], end["gold"]) for end in ends), strict=True)
    return float(np.clip(kl, kls[0], kls[-1])), float(np.interp(kl, kls, gold))
