"""Any reward model as a judge."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...rm.errors import UsageError
from ...rm.types import Example, RewardModel
from ..types import Case, Judgment, scored


class RewardScorer:
    """Score each response with one objective of a reward model, by default with the mean of all."""

    def __init__(self, name: str, model: RewardModel, *, role: str = "model", objective: str | None = None):
        self.name, self.model, self.role = name, model, role
        self.contract = model.contract.hash()
        self.column = None if objective is None else _column(model, objective)

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case."""
        rewards = self._step_scores(cases)
        if rewards is None:
            rewards = self.model.rate([Example(case.prompt, answer) for case in cases for answer in case.answers])
        values = iter((rewards.mean(axis=1) if self.column is None else rewards[:, self.column]).tolist())
        return [scored(case, [next(values) for _ in case.answers]) for case in cases]

    def _step_scores(self, cases: Sequence[Case]) -> np.ndarray | None:
        """Return a process reward model's scores of the last step of every response [N, K], if responses are prefixes.

        They need one forward pass for each solution, instead of one for each of its steps.
        """
        score: Any = getattr(self.model, "step_scores", None)
        if score is None or not all(map(_are_prefixes, cases)):
            return None
        return np.concatenate(score([Example(case.prompt, case.answers[-1]) for case in cases]))


def reward_model(
    model: RewardModel, *, objective: str | None = None, role: str = "model", name: str = ""
) -> RewardScorer:
    """s_i = r(x, y_i) of one objective, or the mean over all objectives where none is named.

    A reward that is not a finite number is an abstention.
    """
    return RewardScorer(name or model.contract.kind, model, role=role, objective=objective)


def _are_prefixes(case: Case) -> bool:
    """Return whether the responses are a solution up to each of its steps."""
    steps = getattr(case.answers[-1], "steps", ())
    return [getattr(answer, "steps", None) for answer in case.answers] == [
        steps[: index + 1] for index in range(len(case.answers))
    ]


def _column(model: RewardModel, objective: str) -> int:
    """Return the index of the objective; the only objective of a model is used whatever its name."""
    if len(model.contract.objectives) == 1:
        return 0
    if objective not in model.contract.objectives:
        raise UsageError(f"no objective '{objective}'; the model has {', '.join(model.contract.objectives)}")
    return model.contract.objectives.index(objective)
