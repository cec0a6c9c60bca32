"""Reward models as scorers of cases; a reward that is not a finite number abstains."""

import math
import re
from collections.abc import Sequence

import numpy as np

from ..judges.types import Case, Judgment
from ..rm.checkpoint import load_reward_model
from ..rm.errors import UsageError
from ..rm.plugins import load
from ..rm.types import Example, RewardModel


class RewardScorer:
    """Scores each answer with one objective of a reward model, or with their mean where none is named."""

    def __init__(self, name: str, model: RewardModel, *, role: str = "model", objective: str | None = None):
        self.name, self.model, self.role = name, model, role
        self.contract = model.contract.hash()
        self.column = None if objective is None else _column(model, objective)

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """One judgment per case."""
        examples = [Example(case.prompt, answer) for case in cases for answer in case.answers]
        rewards = self.model.rate(examples)
        values = rewards.mean(axis=1) if self.column is None else rewards[:, self.column]
        ends = np.cumsum([len(case.answers) for case in cases])[:-1]
        return [_judgment(case, scores.tolist()) for case, scores in zip(cases, np.split(values, ends), strict=True)]


def _column(model: RewardModel, objective: str) -> int:
    """The objective's place; a model with a single objective is read by it, whatever it is called."""
    if len(model.contract.objectives) == 1:
        return 0
    if objective not in model.contract.objectives:
        raise UsageError(f"no objective '{objective}'; the model has {', '.join(model.contract.objectives)}")
    return model.contract.objectives.index(objective)


def _judgment(case: Case, scores: list[float]) -> Judgment:
    if all(math.isfinite(score) for score in scores):
        return Judgment(case.id, scores=tuple(scores))
    return Judgment(case.id, abstained="the reward is not a finite number")


def open_scorer(source: str, *, role: str = "model", objective: str | None = None, **options) -> RewardScorer:
    """A scorer from a model folder, a Hub id, or `"package.module:factory"` that returns a reward model."""
    model = load("rm.models", source)() if ":" in source else load_reward_model(source, **options)
    return RewardScorer(source.rstrip("/"), model, role=role, objective=objective)


def short_names(scorers: Sequence[RewardScorer]) -> None:
    """Call each scorer by the last part of its path or Hub id, where that is no other's."""
    last = [re.split("[/:]", scorer.name)[-1] for scorer in scorers]
    for scorer, short in zip(scorers, last, strict=True):
        if last.count(short) == 1:
            scorer.name = short
