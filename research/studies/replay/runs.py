"""Arms of the replay study and the job that trains and measures one of them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....policy.step.algorithm import Penalty
from ....policy.types import Replay
from ....rm.registry import load
from ...worlds.guides import Base
from ...worlds.policies import split_prompts, unseen_prompts
from ...worlds.small_policies import PolicyLoop, clipped, kl_from, sample_completions, train_policy
from .._runs.job_cache import Arrays, Job
from .controls import CountedReplay, ShuffledAdvantages, pipo_with_random_gains

PLAIN, EXTRA_PASS = "plain", "extra pass"
LAST_BATCH, LAST_TWO = "random, last batch", "random, last 2 batches"
PIPO, RANDOM_GAINS, CBS, SHUFFLED = "PIPO", "PIPO, random gains", "CBS", "random, shuffled advantages"


@dataclass(frozen=True)
class Arm:
    """What is trained on in a cycle besides one pass over the new completions."""

    replay: str = ""
    """Name of a replay in `policy.replays`."""
    settings: tuple[tuple[str, str | float], ...] = ()
    passes: int = 1
    """Passes over the new completions."""
    control: Literal["", "random gains", "shuffled advantages"] = ""

    def build(self, seed: int) -> Replay | None:
        """Return the replay, or None."""
        if self.control == "random gains":
            return pipo_with_random_gains(**dict(self.settings), seed=seed)
        if not self.replay:
            return None
        draws = {} if self.replay == "pipo" else {"seed": seed}
        replay = load("policy.replays", self.replay)(**dict(self.settings), **draws)
        return ShuffledAdvantages(replay, seed) if self.control == "shuffled advantages" else replay


TWO_BATCHES = (("keep", 32), ("batches", 2))
BANDIT = (("longest", 32), ("penalty", 0.1), ("ceiling", 2.0), ("warm_up", 8))
MODEL = (("model", "mlp"), ("learning_rate", 0.1), ("over", 10))
WINDOW = (("window", 8),)
ARMS: dict[str, Arm] = {
    PLAIN: Arm(),
    EXTRA_PASS: Arm(passes=2),
    LAST_BATCH: Arm("uniform", (("keep", 64), ("batches", 1))),
    LAST_TWO: Arm("uniform", TWO_BATCHES),
    PIPO: Arm("pipo", WINDOW),
    RANDOM_GAINS: Arm("pipo", WINDOW, control="random gains"),
    CBS: Arm("cbs", TWO_BATCHES + MODEL + BANDIT),
    SHUFFLED: Arm("uniform", TWO_BATCHES, control="shuffled advantages"),
}


@dataclass(frozen=True)
class ReplayRun(Job):
    """A policy trained on gold by GRPO with one arm's replay, and its gold and KL during training."""

    base: Base
    arm: Arm
    cycles: int = 200
    every: int = 20
    """Cycles between measurements."""
    learning_rate: float = 5e-5
    beta: float = 0.1
    """Coefficient of the KL in the loss."""
    prompts: int = 8
    group: int = 8
    asked: int = 1024
    """Completions of a measurement; the last one has `completions`."""
    completions: int = 4096

    def __str__(self) -> str:
        return f"{self.arm.control or self.arm.replay or f'{self.arm.passes} passes'}, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return cycle, gold and KL [T] at the measurements, and numbers of updates and replays and CPU-seconds."""
        start, policy, seed = self.base.load(cache), self.base.load(cache), self.base.seed
        replay = self.arm.build(seed)
        counted = CountedReplay(replay) if replay else None
        rows, seconds = [], 0.0
        for cycle, cost in _timed_cycles(self._train(policy, start, counted)):
            seconds += cost
            if cycle % self.every == 0:
                asked = self.completions if cycle == self.cycles else self.asked
                rows.append({"cycle": cycle} | measure(policy, start, asked, 10_000 * (seed + 1) + cycle))
        selected = np.array(counted.selected if counted else [])
        facts = {
            "updates": self.cycles * self.arm.passes + (selected > 0).sum(),
            "replayed": selected.sum(),
            "cpu": seconds,
        }
        curves = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return curves | {name: np.array(value) for name, value in facts.items()}

    def _train(self, policy: PreTrainedModel, start: PreTrainedModel, replay: Replay | None) -> Iterator[int]:
        reports = train_policy(
            policy,
            lambda completions: garden.gold().rate(completions.examples)[:, 0],
            clipped(penalty=Penalty(self.beta, "loss", "k3", corrected=False)),
            PolicyLoop(self.cycles, self.prompts, self.group, self.arm.passes, self.learning_rate),
            split_prompts()[0],
            seed=self.base.seed,
            reference=start,
            replay=replay,
        )
        return (report.cycle for report in reports)


def _timed_cycles(cycles: Iterator[int]) -> Iterator[tuple[int, float]]:
    """Yield every finished cycle and its CPU-seconds, without those of the caller."""
    before = time.process_time()
    for cycle in cycles:
        yield cycle, time.process_time() - before
        before = time.process_time()


def measure(policy: PreTrainedModel, start: PreTrainedModel, number: int, seed: int) -> dict[str, float]:
    """Return mean gold of completions of unseen prompts, and mean log π - log π_start, an estimate of the KL."""
    completions = sample_completions(policy, unseen_prompts(number), seed=seed)
    return {"gold": garden.gold().rate(completions.examples)[:, 0].mean(), "kl": kl_from(start, completions)}
