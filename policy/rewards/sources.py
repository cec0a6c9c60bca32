"""Rewards of completions from several reward models and functions, with a record of failed rewards."""

import json
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from inspect import isawaitable
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...rm.contract.readings import UNREAD, Rated, rate_with_readings, readings, unread_shares
from ...rm.errors import CheckFailed, DataError, UsageError
from ...rm.io.coroutines import gather_all
from ...rm.registry.specs import check_ordered
from ...rm.types import Example, ReportsSpread
from ..types import (
    ComparesCompletions,
    HasMetrics,
    HasVersion,
    LearnsOnline,
    RatesCompletions,
    ReadsFinished,
    ReadsRows,
    ReadsStates,
    Rewards,
    RewardSource,
    RewardsSteps,
)
from .step_rewards import CompletionTokens, rewards_at_tokens

EXCERPT = 60  # characters of a completion in an error message


class Fault(NamedTuple):
    """A fault: a reward source that failed or returned an unusable value."""

    reward: str
    row: int | None
    """Row of the completion. None if the fault concerns all completions."""
    reason: str
    example: Example | None
    """The completion without a usable reward."""

    def __str__(self) -> str:
        """Return the fault as a sentence without a full stop."""
        if self.row is None or self.example is None:
            return f"reward '{self.reward}' {self.reason}"
        return f"reward '{self.reward}' {self.reason} for completion {self.row}, {self.example.text[:EXCERPT]!r}"


class RewardSources:
    """Reward models and functions by name. Each model scores by its own scoring contract (template, length, version).

    A reward model with several objectives gives one component per objective, `name.objective`. A fault is an exception
    in a source, the wrong number of values or components, a value other than a number or None, or an infinite reward.
    With `skip`, the reward becomes NaN and the fault is returned; otherwise `DataError` is raised. In both cases the
    fault is appended to the file `record`, with the completion. A function may return a list, an array or a tensor on
    any device. Coroutine functions run concurrently.

    The protocols in `policy.types` describe optional abilities of a source.
    """

    def __init__(
        self,
        sources: Mapping[str, RewardSource],
        *,
        watched: Collection[str] = (),
        skip: bool = False,
        record: Path | None = None,
    ):
        if not sources:
            raise UsageError("no reward is set; name at least one reward model or function")
        self.sources, self.skip, self.record = dict(sources), skip, record
        self.unread: dict[str, float] = {}
        """Share of completions of the last call that a reward model truncated or read in part, as `NAME/truncated`."""
        self._warned: set[str] = set()
        self.names = tuple(name for source in self.sources for name in self._components(source))
        self.reads_states = any(
            isinstance(source, ReadsStates) and source.reads_states for source in self.sources.values()
        )
        self._of_steps = [name for name, source in self.sources.items() if isinstance(source, RewardsSteps)]
        if len(self._of_steps) > 1:
            raise UsageError("two sources reward single steps; use only one of them")
        self.learners: dict[str, Any] = {name: s for name, s in self.sources.items() if isinstance(s, LearnsOnline)}
        if unused := [name for name in watched if name in self._of_steps]:
            raise UsageError(f"'{unused[0]}' rewards steps but is named with --watch; name it with --reward")
        if unused := [name for name in watched if name in self.learners]:
            raise UsageError(f"'{unused[0]}' learns from its own rewards but is named with --watch; use --reward")
        self.watched = tuple(name for source in watched for name in self._components(source))
        """Reward components that are logged but not trained on."""
        self.trained = tuple(name for name in self.names if name not in self.watched)

    def __call__(
        self,
        examples: Sequence[Example],
        states: Sequence[Float[Tensor, "S D"]] | None = None,
        rows: Sequence[int] | None = None,
        tokens: CompletionTokens | None = None,
        finished: Sequence[bool] | None = None,
    ) -> tuple[Rewards, list[Fault]]:
        """Return the rewards of all components, and the faults.

        `states` are the policy's hidden states, `rows` the data rows of the prompts, and `finished` is False for
        truncated completions. `tokens` are the completions' tokens, which step rewards are assigned to; without
        `tokens` there are no step rewards.
        """
        columns, members, faults = [], {}, []
        self.unread = {}
        inputs = {name: _inputs(source, examples, states, rows, finished) for name, source in self.sources.items()}
        returned = self._call_all(inputs)
        for name, source in self.sources.items():
            values, member_values = self._read(name, returned[name], examples)
            if isinstance(source, ReportsSpread):
                members[name], values, member_values = self._member_scores(
                    name, source, examples, values, member_values
                )
            columns.append(values)
            faults += member_values
        if self.record is not None:
            _append(self.record, faults)
        if faults and not self.skip:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise DataError(f"{faults[0]}{more}; fix the reward, or skip faults to train on the other completions")
        values = torch.from_numpy(np.concatenate(columns, 1))
        steps = self._steps(examples, values, tokens) if self._of_steps and tokens else None
        step_names = self.step_names if steps is not None else ()
        return Rewards(values, self.names, steps, self._members(members, len(examples)), step_names), faults

    @property
    def compares(self) -> list[str]:
        """Names of the sources that compare the completions of a prompt and therefore need all of them in one call."""
        return [name for name, s in self.sources.items() if isinstance(s, ComparesCompletions) and s.compares]

    @property
    def process_rewards(self) -> bool:
        """Whether a source gives process rewards, one per reasoning step."""
        return bool(self._of_steps)

    @property
    def step_names(self) -> tuple[str, ...]:
        """Names of the components of the source of process rewards; empty if there is none."""
        return tuple(name for source in self._of_steps for name in self._components(source))

    def _steps(
        self, examples: Sequence[Example], values: Float[Tensor, "N K"], tokens: CompletionTokens
    ) -> Float[Tensor, "N L"]:
        """Return step rewards at tokens. All are NaN if the source of step rewards failed."""
        source: Any = self.sources[self._of_steps[0]]
        failed = values[:, self.names.index(self.step_names[0])].isnan().all()
        return rewards_at_tokens([[] for _ in examples] if failed else source.step_rewards(examples), tokens)

    @property
    def contracts(self) -> dict[str, str]:
        """Hashes of the scoring contracts of the reward models, by name."""
        return {name: s.contract.hash() for name, s in self.sources.items() if isinstance(s, RatesCompletions)}

    @property
    def versions(self) -> dict[str, dict[str, Any]]:
        """Current versions of online reward models, which determine their rewards together with the text."""
        return {name: s.version._asdict() for name, s in self.learners.items() if isinstance(s, HasVersion)}

    def facts(self) -> dict[str, float]:
        """Return the metrics of the sources for the last call, as `NAME/METRIC`."""
        sources = [(name, source) for name, source in self.sources.items() if isinstance(source, HasMetrics)]
        return {
            f"{name}/{fact}": value for name, source in sources for fact, value in source.facts().items()
        } | self.unread

    @property
    def recorded(self) -> int:
        """Size of the file `record` in bytes, for a checkpoint."""
        return self.record.stat().st_size if self.record and self.record.exists() else 0

    def truncate_record(self, recorded: int) -> None:
        """Truncate the file `record` to its size at a checkpoint, since the later steps are repeated."""
        if self.record and self.recorded > recorded:
            os.truncate(self.record, recorded)

    def _components(self, name: str) -> list[str]:
        """Return the names of a source's reward components."""
        source: Any = self.sources[name]
        objectives = source.contract.objectives if isinstance(source, RatesCompletions) else (name,)
        return [name] if len(objectives) == 1 else [f"{name}.{objective}" for objective in objectives]

    def _call_all(self, inputs: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Call all sources. Return the result of each source, or the exception that it raised."""
        returned: dict[str, Any] = {name: self._call(name, arguments) for name, arguments in inputs.items()}
        waiting = [name for name, value in returned.items() if isawaitable(value)]
        return returned | dict(zip(waiting, gather_all([returned[name] for name in waiting]), strict=True))

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        source: Any = self.sources[name]
        try:
            return self._rate(name, source, arguments) if isinstance(source, RatesCompletions) else source(*arguments)
        except Exception as error:  # user functions raise arbitrary errors
            return error

    def _read(self, name: str, returned: Any, examples: Sequence[Example]) -> tuple[np.ndarray, list[Fault]]:
        """Convert the result of one source to rewards [N, K] and faults."""
        rewards = np.full((len(examples), len(self._components(name))), np.nan)
        try:
            if isinstance(returned, BaseException):
                raise returned
            rows = [_components_of(row, rewards.shape[1]) for row in check_ordered(returned)]
        except CheckFailed:  # such as a server whose contract has changed: this must end the run
            raise
        except Exception as error:  # user functions raise arbitrary errors
            return rewards, [Fault(name, None, f"raised {type(error).__name__}: {error}", None)]
        if len(rows) != len(examples):
            return rewards, [Fault(name, None, f"returned {len(rows)} values for {len(examples)} completions", None)]
        faults = []
        for index, row in enumerate(rows):
            reasons = [reason for value in row if (reason := _reward_fault(value))]
            if len(row) != rewards.shape[1]:
                reasons.append(f"returned a row of length {len(row)} instead of {rewards.shape[1]}")
            if reasons:
                faults.append(Fault(name, index, reasons[0], examples[index]))
            else:
                rewards[index] = [np.nan if value is None else float(value) for value in row]
        return rewards, faults

    def _rate(self, name: str, source: Any, arguments: tuple[Any, ...]) -> np.ndarray:
        """Return the rewards of a reward model, and update the share of completions that it truncates."""
        examples, *more = arguments
        result = (
            Rated(source.rate(*arguments), readings(source, examples)) if more else rate_with_readings(source, examples)
        )
        for what, share in unread_shares(result.readings).items():
            fact = f"{name}/{what}"
            if fact not in self._warned:
                warnings.warn(f"reward '{name}': {UNREAD[what].format(share)}", stacklevel=2)
            self._warned.add(fact)
            self.unread[fact] = share
        return result.rewards

    @property
    def ensembles(self) -> list[str]:
        """Names of the reward components of ensembles."""
        ensembles = [name for name, source in self.sources.items() if isinstance(source, ReportsSpread)]
        return [component for name in ensembles for component in self._components(name)]

    def _member_scores(
        self, name: str, source: Any, examples: Sequence[Example], values: np.ndarray, faults: list[Fault]
    ) -> tuple[np.ndarray, np.ndarray, list[Fault]]:
        """Return member scores [M, N, K] of an ensemble, its rewards [N, K], and faults.

        Member scores are NaN where the reward is NaN.
        """
        nothing = np.full((1, *values.shape), np.nan)
        if np.isnan(values).all():
            return nothing, values, faults
        try:
            members = np.asarray(source.spread(examples), dtype=float)
        except CheckFailed:
            raise
        except Exception as error:  # user models raise arbitrary errors, as in `_read`
            return nothing, nothing[0], [*faults, Fault(name, None, f"raised {type(error).__name__}: {error}", None)]
        if members.shape[1:] != values.shape:
            reason = f"returned member scores of shape {members.shape} for {len(examples)} completions"
            return nothing, nothing[0], [*faults, Fault(name, None, reason, None)]
        return np.where(np.isnan(values), np.nan, members), values, faults

    def _members(self, scores: Mapping[str, np.ndarray], number: int) -> Float[Tensor, "N K M"] | None:
        """Return the scores of ensemble members. NaN for single models, and for members beyond an ensemble's size."""
        if not scores:
            return None
        most = max(len(score) for score in scores.values())
        members = np.full((number, len(self.names), most), np.nan)
        for name, member_scores in scores.items():
            columns = [self.names.index(component) for component in self._components(name)]
            members[:, columns, : len(member_scores)] = np.moveaxis(member_scores, 0, 2)
        return torch.from_numpy(members)


def _inputs(
    source: Any,
    examples: Sequence[Example],
    states: Sequence[Tensor] | None,
    rows: Sequence[int] | None,
    finished: Sequence[bool] | None,
) -> tuple[Any, ...]:
    """Return the arguments with which a source is called, according to the protocols that the source implements."""
    if isinstance(source, ReadsStates) and source.reads_states:
        return examples, states
    if isinstance(source, ReadsFinished) and source.reads_finished:
        return examples, rows, finished
    return (examples, rows) if isinstance(source, ReadsRows) and source.reads_rows else (examples,)


def _append(path: Path, faults: Sequence[Fault]) -> None:
    """Append faults to the record, one JSON line each."""
    with path.open("a", encoding="utf-8") as file:
        for fault in faults:
            row = {"reward": fault.reward, "row": fault.row, "reason": fault.reason}
            row |= {} if fault.example is None else {"prompt": fault.example.prompt, "completion": fault.example.text}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _components_of(row: Any, number: int) -> list[Any]:
    """Return the rewards of one completion by component. A row of None means that all are missing."""
    if row is None:
        return [None] * number
    value = row.tolist() if isinstance(row, Tensor | np.ndarray | np.generic) else row
    return value if isinstance(value, list) and value is not row else [value]


def _reward_fault(value: object) -> str:
    """Return a description of the fault of a reward. Empty if the reward is usable."""
    if value is None:
        return ""
    if not isinstance(value, (Real, np.number)):
        return f"is {value!r}, which is no number,"
    return f"is {value}" if np.isinf(float(value)) else ""
