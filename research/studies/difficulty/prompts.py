"""Garden prompts of graded difficulty: bars of gold that the start policy reaches at planned pass rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....benchmarks import garden
from ....benchmarks.garden.gold_reward import TOPICS
from ....rm.types import Example, Messages, prompt_text
from ...worlds.guides import Base
from ...worlds.policies import unseen_prompts
from ...worlds.small_policies import sample_completions
from .._runs.job_cache import Arrays, Job

TARGETS = np.array([0.03, *np.geomspace(0.05, 0.3, 16), 0.6])
"""Planned pass rates of the start policy; each question has one, which its openings share."""
BANDS = {"below .05": 0.05, "hard": 0.12, "middle": 0.31, "above .3": 1.0}
"""Planned pass rate that a band's prompts do not reach; the band begins where the one before ends."""
HARD = "hard"
_PROMPTS = [prompt_text(prompt) for prompt in garden.questions()]
_QUESTION = {text: index // len(garden.OPENINGS) for index, text in enumerate(_PROMPTS)}
_TARGET = [float(TARGETS[question * 7 % len(TARGETS)]) for question in range(len(TOPICS) * len(garden.QUESTIONS))]
"""By question: topics have different ones of the targets, so that none is easy throughout."""


def target_of(prompt: Messages) -> float:
    """Return the pass rate that is planned for a prompt of the garden."""
    return _TARGET[_QUESTION[prompt_text(prompt)]]


def band_of(prompt: Messages) -> str:
    """Return the band of a prompt's planned pass rate."""
    target = target_of(prompt) + 1e-9  # the lowest target of a band is its limit up to rounding errors
    return next(name for name, end in BANDS.items() if target < end)


@dataclass(frozen=True)
class PassBars(Job):
    """Bars of gold by question, estimated from the start policy's completions of its topic, and the start's pass rates.

    The estimate is by topic, since gold depends on nothing else of the prompt.
    """

    base: Base
    samples: int = 64
    """Completions of each of the 192 prompts."""
    completions: int = 4096
    """New completions of unseen prompts, from which the pass rates are estimated."""

    def __str__(self) -> str:
        """Return the label in progress messages."""
        return f"bars, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return bars [questions] and pass rates [bands + 1] as by `pass_rates`."""
        start = self.base.load(cache)
        prompts = [prompt for prompt in garden.questions() for _ in range(self.samples)]
        completions = sample_completions(start, prompts, seed=77_000 + self.base.seed)
        gold = garden.gold().rate(completions.examples)[:, 0].reshape(len(TOPICS), -1)
        by_question = np.repeat(gold, len(garden.QUESTIONS), axis=0)
        bars = np.array([np.quantile(row, 1 - target) for row, target in zip(by_question, _TARGET, strict=True)])
        return {"bars": bars, "start": pass_rates(start, bars, self.completions, 78_000 + self.base.seed)}


def verdicts(examples: Sequence[Example], bars: np.ndarray) -> np.ndarray:
    """Return 1 for each completion whose gold reaches its question's bar, and 0 for the others [N]."""
    reached = bars[[_QUESTION[prompt_text(example.prompt)] for example in examples]]
    return (garden.gold().rate(examples)[:, 0] >= reached - 1e-9).astype(np.float64)  # 1e-9: rounding errors


def pass_rates(policy: Any, bars: np.ndarray, completions: int, seed: int) -> np.ndarray:
    """Return the share of right completions of unseen prompts in every band, and of all bands [bands + 1]."""
    asked = unseen_prompts(completions)
    right = verdicts(sample_completions(policy, asked, seed=seed).examples, bars)
    bands = np.array([band_of(prompt) for prompt in asked])
    return np.array([*(right[bands == band].mean() for band in BANDS), right.mean()])
