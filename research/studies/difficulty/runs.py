"""Arms of the difficulty study, the control with shuffled weights, and the job that trains and measures one arm."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ....policy.step.algorithm import Algorithm
from ....policy.transforms.ha_dw import ha_dw
from ....policy.types import Rollout, State, Transform
from ...worlds.policies import split_prompts
from ...worlds.small_policies import PolicyLoop, clipped, train_policy
from .._runs.job_cache import Arrays, Job
from .prompts import BANDS, HARD, PassBars, pass_rates, target_of, verdicts

GROUPS = (4, 8)
HA_DW = "ha_dw"
NOT_HARD = BANDS[HARD]


@dataclass(frozen=True)
class Arm:
    """How verdicts become advantages."""

    group: int
    advantage: str
    """Name in `policy.advantages`."""
    weights: Literal["", "HA-DW", "shuffled"] = ""
    lowest: float = 0.0
    """Lowest planned pass rate of the prompts that are trained on."""
    halfway: bool = False
    """Whether the policy is also measured after half of the cycles."""

    def algorithm(self, seed: int) -> Algorithm:
        """Return the algorithm, without a KL."""
        transform = {"": None, "HA-DW": ha_dw(), "shuffled": shuffled_ha_dw(seed)}[self.weights]
        return clipped(self.advantage, advantage_transforms={HA_DW: transform} if transform else {})


def arms_of(group: int) -> dict[str, Arm]:
    """Return the arms of one group size by name."""
    arms = {
        "GRPO": Arm(group, "grpo", halfway=True),
        "HA-DW": Arm(group, "grpo", "HA-DW"),
        "shuffled HA-DW": Arm(group, "grpo", "shuffled"),
        "Dr. GRPO": Arm(group, "dr_grpo"),
        "bias inversion": Arm(group, "debiased"),
    }
    if group == min(GROUPS):
        arms |= {
            "HA-DW on Dr. GRPO": Arm(group, "dr_grpo", "HA-DW"),
            "GRPO without hard prompts": Arm(group, "grpo", lowest=NOT_HARD),
        }
    return {named(name, group): arm for name, arm in arms.items()}


def named(name: str, group: int) -> str:
    """Return the name of an arm at a group size."""
    return f"{name}, G = {group}"


ARMS = {name: arm for group in GROUPS for name, arm in arms_of(group).items()}


def shuffled_ha_dw(seed: int) -> Transform:
    """HA-DW whose weights are exchanged at random among the step's completions with an advantage.

    Their distribution and mean are HA-DW's at every step; difficulty and verdict no longer determine them.
    """
    original = ha_dw()

    def change(state: State, advantages: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Tensor]:
        after, weighted = original.change({"anchors": state["anchors"]}, advantages, rollout)
        rows = advantages.nonzero().squeeze(1)
        weights = (weighted / advantages)[rows]
        calls = state["calls"] + 1
        order = torch.randperm(len(rows), generator=Generator().manual_seed(1_000_003 * seed + calls))
        shuffled = advantages.clone()
        shuffled[rows] *= weights[order]
        return {**after, "calls": calls}, shuffled

    return Transform("advantage", change, stage=1, start={**original.start, "calls": 0})


@dataclass(frozen=True)
class VerdictRun(Job):
    """A policy trained on verdicts by one arm, and its pass rates by band."""

    bars: PassBars
    arm: Arm
    cycles: int = 200
    batch: int = 32
    """Completions of a cycle."""
    learning_rate: float = 2e-4
    completions: int = 4096
    """Completions of a measurement."""

    def __str__(self) -> str:
        """Return the label in progress messages."""
        about = ", ".join(filter(None, (self.arm.weights, "without hard prompts" if self.arm.lowest else "")))
        return f"{self.arm.advantage} {about} G = {self.arm.group}, seed {self.bars.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return pass rates [T, bands + 1], their cycles [T], and by cycle [cycles] verdicts, mixed groups and C."""
        policy, bars, seed = self.bars.base.load(cache), self.bars.result(cache)["bars"], self.bars.base.seed
        algorithm, group = self.arm.algorithm(seed), self.arm.group
        loop = PolicyLoop(self.cycles, self.batch // group, group, learning_rate=self.learning_rate)
        prompts = [prompt for prompt in split_prompts()[0] if target_of(prompt) + 1e-9 >= self.arm.lowest]
        measured = {self.cycles, self.cycles // 2} if self.arm.halfway else {self.cycles}
        rates, rows, before, seconds = {}, [], time.process_time(), 0.0
        reports = train_policy(
            policy, lambda batch: verdicts(batch.examples, bars), algorithm, loop, prompts, seed=seed
        )
        for report in reports:
            seconds += time.process_time() - before
            if report.scored:
                rows.append(_facts(report.scored.total, group, algorithm))
            if report.cycle in measured:
                rates[report.cycle] = pass_rates(policy, bars, self.completions, 10_000 * (seed + 1) + report.cycle)
            before = time.process_time()
        by_cycle = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return by_cycle | {"cycle": np.array([*rates]), "rates": np.stack([*rates.values()]), "cpu": np.array(seconds)}


def _facts(total: Float[Tensor, " N"], group: int, algorithm: Algorithm) -> dict[str, float]:
    """Return a cycle's share of right completions and of mixed groups, and HA-DW's C after it, NaN without HA-DW."""
    shares = total.view(-1, group).mean(1)
    anchors = algorithm.state["advantages"].get(HA_DW, {}).get("anchors", [])
    mixed = ((shares > 0) & (shares < 1)).double().mean().item()
    return {"right": shares.mean().item(), "mixed": mixed, "anchor": anchors[-1] if anchors else np.nan}
