"""Judge that scores responses with a reward model."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from ...rm.contract.readings import Rated, rate_with_readings, readings
from ...rm.errors import DataError, UsageError
from ...rm.load import load_reward_model
from ...rm.types import Example, RewardModel, Steps
from ..types import Case, Judgment, Reason, judgment_from_scores

EXCERPT_LENGTH = 200  # characters of a text that is not read, in a judgment


@runtime_checkable
class StepScorer(Protocol):
    """A reward model that scores every step of a completion (process reward model)."""

    def step_scores(self, examples: Sequence[Example]) -> Sequence[np.ndarray]:
        """Return the step scores [S, K] of each example: S steps, K objectives."""
        ...


class RewardScorer:
    """Score each response with one objective of a reward model, by default with the mean of all objectives.

    A judgment states whether the model read the full case. If truncation or the chat template makes a right and a wrong
    response identical to the model, the judge abstains. If the chat template is the cause and `on_bad_row="refuse"`, it
    raises a `DataError`. With `on_long="refuse"`, a truncated response raises a `DataError`.
    """

    def __init__(
        self,
        name: str,
        model: RewardModel,
        *,
        role: str = "model",
        objective: str | None = None,
        on_long: Literal["refuse", "truncate"] = "truncate",
        on_bad_row: Literal["refuse", "skip"] = "skip",
    ):
        self.name, self.model, self.role = name, model, role
        self.contract = model.contract.hash()
        self.column = None if objective is None else _column(model, objective)
        self.on_long, self.on_bad_row = on_long, on_bad_row

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case."""
        if (steps := self._step_scores(cases)) is not None:
            read = readings(self.model, [Example(case.prompt, case.answers[-1]) for case in cases])
            result = Rated(steps, [reading for case, reading in zip(cases, read, strict=True) for _ in case.answers])
        else:
            result = rate_with_readings(
                self.model, [Example(case.prompt, answer) for case in cases for answer in case.answers]
            )
        rewards = result.rewards
        values = (rewards.mean(axis=1) if self.column is None else rewards[:, self.column]).tolist()
        starts = accumulate((len(case.answers) for case in cases), initial=0)
        return [
            self._judgment(case, values[start : start + len(case.answers)], result, start)
            for case, start in zip(cases, starts, strict=False)
        ]

    def _judgment(self, case: Case, scores: Sequence[float], result: Rated, start: int) -> Judgment:
        read = result.readings[start : start + len(case.answers)]
        truncated = any(reading.truncated for reading in read)
        omitted = next((reading.omitted for reading in read if reading.omitted), "")
        if truncated and self.on_long == "refuse":
            raise DataError(
                f"{self.name}: case '{case.id}' is longer than the {self.model.contract.max_length} tokens that the "
                "model reads; leave the case out, or truncate it with --on_long truncate"
            )
        judgment = judgment_from_scores(case, scores)
        if _has_identical_inputs(case, result, start):
            why = "after truncation" if truncated else f"the chat template leaves out {omitted[:60]!r}"
            if not truncated and self.on_bad_row == "refuse":
                raise DataError(
                    f"{self.name}: a right and a wrong response of case '{case.id}' have the same tokens, since {why}; "
                    "leave the case out, or have the model abstain with --on_bad_row skip"
                )
            judgment = Judgment(case.id, abstained=f"{Reason.ALIKE}: {why}")
        return replace(judgment, truncated=truncated, omitted=omitted[:EXCERPT_LENGTH])

    def _step_scores(self, cases: Sequence[Case]) -> np.ndarray | None:
        """Return the last steps' scores [N, K] from one pass of a process reward model, if responses are prefixes."""
        if not isinstance(self.model, StepScorer) or not all(map(_are_prefixes, cases)):
            return None
        examples = [Example(case.prompt, case.answers[-1]) for case in cases]
        return np.concatenate(self.model.step_scores(examples))


def load_scorer(source: str, *, objective: str | None = None, **options: Any) -> RewardScorer:
    """Load a scorer from a reward model's folder or Hub id."""
    return RewardScorer(source.rstrip("/"), load_reward_model(source, **options), objective=objective)


def reward_model(
    model: RewardModel, *, objective: str | None = None, role: str = "model", name: str = ""
) -> RewardScorer:
    """Return a judge that scores with a reward model: s_i = r(x, y_i) for prompt x and response y_i.

    r is one objective, by default the mean of all. The judge abstains if a score is not finite.
    """
    return RewardScorer(name or model.contract.kind, model, role=role, objective=objective)


def _has_identical_inputs(case: Case, result: Rated, start: int) -> bool:
    """Return whether the model's inputs are identical for a right and a wrong response with different texts."""
    wrong = [index for index in range(len(case.answers)) if index not in case.best]
    pairs = ((right, other) for right in case.best for other in wrong if case.answers[right] != case.answers[other])
    return any(result.alike(start + right, start + other) for right, other in pairs)


def _are_prefixes(case: Case) -> bool:
    """Return whether response k consists of the first k steps of one solution."""
    steps = [answer.steps if isinstance(answer, Steps) else None for answer in case.answers]
    longest = steps[-1] or ()
    return steps == [longest[: index + 1] for index in range(len(steps))]


def _column(model: RewardModel, objective: str) -> int:
    """Return the index of an objective. The only objective of a model is used whatever its name."""
    if len(model.contract.objectives) == 1:
        return 0
    if objective not in model.contract.objectives:
        raise UsageError(f"no objective '{objective}'; the model has {', '.join(model.contract.objectives)}")
    return model.contract.objectives.index(objective)
