"""Jobs of the R2M study: one run for every arm and seed, in the garden world."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....benchmarks.garden.models import Fit, fit, tokenizer
from ....policy.decoding.language_models import decoding_model
from ....policy.rewards.r2m_controls import CONTROLS, R2MArguments, stale
from ....policy.rewards.r2m_online_updates import Anchor, OnlineR2M
from ....policy.training.forward import states_of
from ....rm.backbones.tokenization import Encoder
from ....rm.data.labelling import by_reward
from ....rm.losses.bradley_terry import bradley_terry
from ....rm.models.ensemble import EnsembleRewardModel
from ....rm.models.r2m import R2MRewardModel
from ....rm.models.scalar import ScalarRewardModel
from ....rm.training.encoding import encode_pairs
from ....rm.training.trainer import ScalarTask
from ....rm.types import OVERALL, Example, Labeller, Messages, PreferencePair, RewardModel, prompt_text
from ...worlds.policies import WEAK, sample, untaught
from .._runs.job_cache import Arrays, Job
from .._runs.policies import Loop, Proxy, split_prompts, unseen_prompts, weights, with_weights

MEMBERS, PESSIMISM = 4, 1.0
JUDGE = 0.8
EPOCHS = 4
SAMPLES = 192  # of the start policy, for mapping rewards to gold's scale


# ---- external labels ----


_sure = by_reward(garden.gold())


def _coin(prompt: Messages, completions: tuple[str, str], use: str) -> float:
    """Return a pseudo-random number in [0, 1) that does not depend on the order of the responses."""
    text = "\n".join([use, prompt_text(prompt), *sorted(completions)])
    return zlib.crc32(text.encode()) / 2**32


def _judge(prompt: Messages, completions: tuple[str, str]) -> float:
    """Return gold's label, flipped in one pair of five."""
    sure = _sure(prompt, completions)
    return sure if _coin(prompt, completions, "judge") < JUDGE else 1 - sure


def _random(prompt: Messages, completions: tuple[str, str]) -> float:
    """Return a random label, independent of the responses' quality."""
    return float((_coin(prompt, completions, "random") < 0.5) == (completions[0] < completions[1]))


LABELLERS: Mapping[str, Labeller] = {"gold": _sure, "judge": _judge, "random": _random}


# ---- reward models ----


@dataclass(frozen=True)
class Pretrained(Job):
    """The frozen reward model, trained further on gold labels of the start policy's completions before the run."""

    proxy: Proxy
    labels: int

    def __str__(self) -> str:
        return f"{self.proxy}, taught {self.labels} pairs more"

    def work(self, cache: Path) -> Arrays:
        """Return its weights."""
        seed, seen, model = self.proxy.seed, split_prompts()[0], self.proxy.load(cache)
        prompts = [seen[index % len(seen)] for index in range(self.labels) for _ in range(2)]
        completions = sample(self.proxy.base.load(cache), prompts, seed=100 + seed)
        rows = encode_pairs(model.encoder, [*map(_labelled, completions[::2], completions[1::2])], OVERALL).rows
        steps = max(1, EPOCHS * len(rows) // WEAK.batch)
        fit(model, ScalarTask(bradley_terry()), rows, Fit(steps, WEAK.learning_rate, WEAK.batch, seed))
        return weights(model)

    def load(self, cache: Path) -> ScalarRewardModel:
        """Load the trained model."""
        return with_weights(untaught(self.proxy.base.load(cache), self.proxy.seed), self.result(cache))


def _labelled(first: Example, second: Example) -> PreferencePair:
    chance = _sure(first.prompt, (first.completion, second.completion))
    return PreferencePair("", first.prompt, first.completion, second.completion, wins={OVERALL: chance})


@dataclass(frozen=True)
class Arm:
    """Architecture, inputs and labels of a run's reward model."""

    control: str = ""
    """Name in `CONTROLS`, or "stale" for the start policy's states; empty: R2M."""
    labels: Literal["own", "gold", "judge", "random"] = "own"
    """Source of the label of a group's best and worst completion; own: the reward model itself."""
    share: float = 1.0
    """Fraction of groups with an external label; the others are left out."""
    body: Literal["weak", "pretrained", "ensemble"] = "weak"
    learning_rate: float = 1e-3
    alpha: float = 0.3
    floor: float = 0.6
    spread: str = "full"
    zero_out: bool = False
    batch_groups: int = 6

    def proxies(self, loop: Loop) -> list[Proxy]:
        """Return the proxies that have to be trained first."""
        assert loop.reward is not None
        members = range(MEMBERS if self.body == "ensemble" else 1)
        return [replace(loop.reward, member=member) for member in members]

    def taught(self, loop: Loop) -> Pretrained:
        """Return the pretraining job, with as many labels as a quarter of all groups."""
        return Pretrained(self.proxies(loop)[0], loop.rows // loop.group * (loop.steps // loop.passes) // 4)

    def source(self, loop: Loop, start: PreTrainedModel, cache: Path) -> "OnlineR2M | EnsembleRewardModel":
        """Build the reward on which the policy is trained."""
        models = [proxy.load(cache) for proxy in self.proxies(loop)]
        if self.body == "ensemble":
            return EnsembleRewardModel(models, [str(proxy) for proxy in self.proxies(loop)], PESSIMISM)
        body = self.taught(loop).load(cache) if self.body == "pretrained" else models[0]
        width, seed = start.config.hidden_size, loop.base.seed
        model = R2MRewardModel.on(body, width, width, zero_out=self.zero_out, seed=seed)
        groups = max(1, round(self.share * loop.rows / loop.group))
        anchor = None if self.labels == "own" else Anchor(LABELLERS[self.labels], groups, only=True)
        return OnlineR2M(model, loop.steps // loop.passes, self._arguments(start, seed), anchor=anchor)

    def _arguments(self, start: PreTrainedModel, seed: int) -> R2MArguments:
        arguments = R2MArguments(
            learning_rate=self.learning_rate,
            alpha=self.alpha,
            floor=self.floor,
            spread=self.spread,
            batch_groups=self.batch_groups,
            seed=seed,
        )
        if self.control == "stale":
            return replace(arguments, reads=stale(start, decoding_model(start, tokenizer()).encoder))
        return replace(arguments, **CONTROLS[self.control]) if self.control else arguments


@dataclass(frozen=True)
class R2MRun(Job):
    """A policy trained on one arm's reward model."""

    libraries = Loop.libraries
    loop: Loop
    """Training loop, with the initial proxy of every arm."""
    arm: Arm

    def __str__(self) -> str:
        control = self.arm.control or "r2m"
        share = "" if self.arm.labels == "own" else f" of {self.arm.share:.2g} of the groups"
        return f"{control}, {self.arm.labels} labels{share}, {self.arm.body} body, seed {self.loop.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the curves [T] over the measured steps, and the number of labeller calls."""
        start = self.loop.base.load(cache)
        source = self.arm.source(self.loop, start, cache)
        frozen = self.arm.proxies(self.loop)[0].load(cache)
        judged = _Judged(source, frozen, start, self.loop.base.seed)
        curves = self.loop.train(start, source, judged)
        return curves | {"calls": np.array(source.calls if isinstance(source, OnlineR2M) else 0)}


# ---- evaluation of a policy ----


class _Judged:
    """Evaluate the policy's completions by the current reward model, the frozen one and gold.

    `proxy` is mapped to gold's scale by the least-squares line on the start policy's samples, so that models of any
    scale can be compared; the samples are scored again at every evaluation, as the model changes.
    """

    def __init__(self, source: Any, frozen: RewardModel, start: PreTrainedModel, seed: int):
        self.source, self.frozen = source, frozen
        self.encoder: Encoder = decoding_model(start, tokenizer()).encoder
        self.samples = sample(start, unseen_prompts(SAMPLES), seed=500 + seed)
        self.truth = garden.gold().rate(self.samples)[:, 0]

    def __call__(self, policy: PreTrainedModel, answers: list[Example], gold: np.ndarray) -> dict[str, float]:
        """Return the metrics; completions of one prompt are grouped, as in training."""
        texts = [prompt_text(answer.prompt) for answer in answers]
        order = sorted(range(len(answers)), key=texts.__getitem__)
        answers, gold = [answers[index] for index in order], gold[order]
        group = np.unique([texts[index] for index in order], return_inverse=True)[1]
        earned, known = self._rate(policy, answers), self._rate(policy, self.samples)
        return {
            "proxy": expected_gold(earned, known, self.truth).mean(),
            "proxy_std": gold.std(ddof=1),
            "reward": earned.mean(),
            "accuracy": pair_accuracy(earned, gold, group),
            "frozen_accuracy": pair_accuracy(self.frozen.rate(answers)[:, 0], gold, group),
        }

    def _rate(self, policy: PreTrainedModel, answers: list[Example]) -> np.ndarray:
        states = [states_of(policy, self.encoder, answers)] if isinstance(self.source, OnlineR2M) else []
        rate: Callable[..., np.ndarray] = self.source.rate
        return rate(answers, *states)[:, 0]


def expected_gold(rewards: np.ndarray, known: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Map rewards r to a r + b, the least-squares line of gold [M] on the rewards [M] of known completions.

    >>> expected_gold(np.array([2.0]), np.array([0.0, 1.0]), np.array([5.0, 7.0])).round(6).tolist()
    [9.0]
    """
    slope, offset = np.polyfit(known, gold, 1)
    return slope * rewards + offset


def pair_accuracy(rewards: np.ndarray, truth: np.ndarray, group: Sequence[int] | np.ndarray) -> float:
    """Compute the share of pairs in groups ordered as by the truth, except the truth's ties; tied rewards are wrong.

    NaN if the truth has only ties.

    >>> pair_accuracy(np.array([1.0, 2.0, 0.0, 9.0]), np.array([0.0, 3.0, 1.0, 0.0]), [0, 0, 0, 1]).__round__(3)
    0.667
    """
    same_group = np.triu(np.equal.outer(group, group), 1)
    right, decided = np.subtract.outer(rewards, rewards), np.subtract.outer(truth, truth)
    counts = same_group & (abs(decided) > 1e-9)
    return float(((right * decided)[counts] > 0).mean()) if counts.any() else np.nan
