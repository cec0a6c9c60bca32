"""Reward sources: rewards of a step's completions by component, from reward models and functions, with faults."""

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

from ...rm.contract.readings import UNREAD, Rated, rated, readings, unread_shares
from ...rm.errors import CheckFailed, DataError, UsageError
from ...rm.io.coroutines import gathered
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
from .step_rewards import CompletionTokens, at_tokens

EXCERPT = 60  # characters of a completion in an error message


class Fault(NamedTuple):
    """A reward that could not be used."""

    reward: str
    row: int | None
    """Row of the completion; None: all of them."""
    reason: str
    example: Example | None
    """The completion to be rated."""

    def __str__(self) -> str:
        """Return the fault as a sentence without a full stop."""
        if self.row is None or self.example is None:
            return f"reward '{self.reward}' {self.reason}"
        return f"reward '{self.reward}' {self.reason} for completion {self.row}, {self.example.completion[:EXCERPT]!r}"


class RewardSources:
    """Named reward models and functions; every model scores by its own contract.

    A reward model with several objectives gives one component for each, `name.objective`. A completion without a usable
    reward is NaN. Faults are a function that raises, returns the wrong number of values or of components, or returns
    anything but numbers and None, and infinite rewards: with `skip` they become NaN and are returned, otherwise they
    raise `DataError`. In both cases they are appended to the file `record`, with the completion. Numbers are those of a
    list, an array or a tensor on any device. Coroutine functions are awaited, all of a call concurrently.

    Optional abilities of a source are the protocols in `policy.types`.
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
            raise UsageError("there is no reward; name at least one reward model or function")
        self.sources, self.skip, self.record = dict(sources), skip, record
        self.unread: dict[str, float] = {}
        """Shares of the completions rated last that a reward model reads cut or in part, as `NAME/truncated`."""
        self._warned: set[str] = set()
        self.names = tuple(name for source in self.sources for name in self._components(source))
        self.reads_states = any(
            isinstance(source, ReadsStates) and source.reads_states for source in self.sources.values()
        )
        self._of_steps = [name for name, source in self.sources.items() if isinstance(source, RewardsSteps)]
        if len(self._of_steps) > 1:
            raise UsageError("two sources reward single steps; name one of them")
        self.learners: dict[str, Any] = {name: s for name, s in self.sources.items() if isinstance(s, LearnsOnline)}
        if unused := [name for name in watched if name in self._of_steps]:
            raise UsageError(f"'{unused[0]}' rewards steps and is only watched; name it with --reward")
        if unused := [name for name in watched if name in self.learners]:
            raise UsageError(f"'{unused[0]}' learns from its own rewards and is only watched; name it with --reward")
        self.watched = tuple(name for source in watched for name in self._components(source))
        """Components that are only logged."""
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

        `states` are the policy's hidden states, `rows` the row of the data that each completion's prompt comes from,
        `finished` whether each completion ended by itself. `tokens` are the completions' own, which the rewards of
        steps are placed at; without them there are none.
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
            raise DataError(f"{faults[0]}{more}; mend the reward, or skip faults to train on the other completions")
        values = torch.from_numpy(np.concatenate(columns, 1))
        steps = self._steps(examples, values, tokens) if self._of_steps and tokens else None
        step_names = self._step_names if steps is not None else ()
        return Rewards(values, self.names, steps, self._members(members, len(examples)), step_names), faults

    @property
    def compares(self) -> list[str]:
        """Sources whose rewards compare the completions of a prompt, so that they have to rate all of them at once."""
        return [name for name, s in self.sources.items() if isinstance(s, ComparesCompletions) and s.compares]

    @property
    def process_rewards(self) -> bool:
        """Whether a source rewards single steps."""
        return bool(self._of_steps)

    @property
    def _step_names(self) -> tuple[str, ...]:
        """Names of the components of the source that rewards steps."""
        return tuple(self._components(self._of_steps[0]))

    def _steps(
        self, examples: Sequence[Example], values: Float[Tensor, "N K"], tokens: CompletionTokens
    ) -> Float[Tensor, "N L"]:
        """Return rewards of steps; none at all if the source has failed, which left its component without a value."""
        source: Any = self.sources[self._of_steps[0]]
        failed = values[:, self.names.index(self._step_names[0])].isnan().all()
        return at_tokens([[] for _ in examples] if failed else source.step_rewards(examples), tokens)

    @property
    def contracts(self) -> dict[str, str]:
        """Hashes of the scoring contracts of reward models."""
        return {name: s.contract.hash() for name, s in self.sources.items() if isinstance(s, RatesCompletions)}

    @property
    def versions(self) -> dict[str, dict[str, Any]]:
        """Current versions of online reward models: what determines their rewards besides the text."""
        return {name: s.version._asdict() for name, s in self.learners.items() if isinstance(s, HasVersion)}

    def facts(self) -> dict[str, float]:
        """Return the metrics of sources on the completions rated last, as `NAME/FACT`."""
        sources = [(name, source) for name, source in self.sources.items() if isinstance(source, HasMetrics)]
        return {
            f"{name}/{fact}": value for name, source in sources for fact, value in source.facts().items()
        } | self.unread

    @property
    def recorded(self) -> int:
        """Size of the file `record` in bytes, for a checkpoint."""
        return self.record.stat().st_size if self.record and self.record.exists() else 0

    def forget_after(self, recorded: int) -> None:
        """Cut the file `record` to the size at a checkpoint: later faults happen again."""
        if self.record and self.recorded > recorded:
            os.truncate(self.record, recorded)

    def _components(self, name: str) -> list[str]:
        source: Any = self.sources[name]
        objectives = source.contract.objectives if isinstance(source, RatesCompletions) else (name,)
        return [name] if len(objectives) == 1 else [f"{name}.{objective}" for objective in objectives]

    def _call_all(self, inputs: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Return what each source returns for its inputs, or the error that it raises."""
        returned: dict[str, Any] = {name: self._call(name, arguments) for name, arguments in inputs.items()}
        waiting = [name for name, value in returned.items() if isawaitable(value)]
        return returned | dict(zip(waiting, gathered([returned[name] for name in waiting]), strict=True))

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        source: Any = self.sources[name]
        try:
            return self._rate(name, source, arguments) if isinstance(source, RatesCompletions) else source(*arguments)
        except Exception as error:  # user functions raise arbitrary errors
            return error

    def _read(self, name: str, returned: Any, examples: Sequence[Example]) -> tuple[np.ndarray, list[Fault]]:
        """Return the rewards [N, K] of one source, and its faults."""
        nothing = np.full((len(examples), len(self._components(name))), np.nan)
        try:
            if isinstance(returned, BaseException):
                raise returned
            rows = [_components_of(row, nothing.shape[1]) for row in returned]
        except CheckFailed:  # such as a server whose contract has changed: this must end the run
            raise
        except Exception as error:  # user functions raise arbitrary errors
            return nothing, [Fault(name, None, f"raised {type(error).__name__}: {error}", None)]
        if len(rows) != len(examples):
            return nothing, [Fault(name, None, f"gave {len(rows)} values for {len(examples)} completions", None)]
        faults = []
        for index, row in enumerate(rows):
            reasons = [reason for value in row if (reason := _wrong(value))]
            if len(row) != nothing.shape[1]:
                reasons.append(f"gave a row of length {len(row)} instead of {nothing.shape[1]}")
            if reasons:
                faults.append(Fault(name, index, reasons[0], examples[index]))
            else:
                nothing[index] = [np.nan if value is None else float(value) for value in row]
        return nothing, faults

    def _rate(self, name: str, source: Any, arguments: tuple[Any, ...]) -> np.ndarray:
        """Return a reward model's rewards, and note how much of the completions it does not read."""
        examples, *more = arguments
        result = Rated(source.rate(*arguments), readings(source, examples)) if more else rated(source, examples)
        for what, share in unread_shares(result.readings).items():
            fact = f"{name}/{what}"
            if fact not in self._warned:
                warnings.warn(f"reward '{name}': {UNREAD[what].format(share)}", stacklevel=2)
            self._warned.add(fact)
            self.unread[fact] = share
        return result.rewards

    @property
    def ensembles(self) -> list[str]:
        """Components of sources with several members."""
        ensembles = [name for name, source in self.sources.items() if isinstance(source, ReportsSpread)]
        return [component for name in ensembles for component in self._components(name)]

    def _member_scores(
        self, name: str, source: Any, examples: Sequence[Example], values: np.ndarray, faults: list[Fault]
    ) -> tuple[np.ndarray, np.ndarray, list[Fault]]:
        """Return an ensemble's member scores [M, N, K], NaN where a value is, values [N, K], and faults."""
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
            reason = f"gave members' scores of shape {members.shape} for {len(examples)} completions"
            return nothing, nothing[0], [*faults, Fault(name, None, reason, None)]
        return np.where(np.isnan(values), np.nan, members), values, faults

    def _members(self, scores: Mapping[str, np.ndarray], number: int) -> Float[Tensor, "N K M"] | None:
        """Return the scores of ensemble members; NaN for single models and for members that are missing."""
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
    """Return what a source reads, by its attributes."""
    if isinstance(source, ReadsStates) and source.reads_states:
        return examples, states
    if isinstance(source, ReadsFinished) and source.reads_finished:
        return examples, rows, finished
    return (examples, rows) if isinstance(source, ReadsRows) and source.reads_rows else (examples,)


def _append(path: Path, faults: Sequence[Fault]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for fault in faults:
            row = {"reward": fault.reward, "row": fault.row, "reason": fault.reason}
            row |= {} if fault.example is None else fault.example._asdict()
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _components_of(row: Any, number: int) -> list[Any]:
    """Return one completion's rewards; None instead of a row means that all of them are missing."""
    if row is None:
        return [None] * number
    value = row.tolist() if isinstance(row, Tensor | np.ndarray | np.generic) else row
    return value if isinstance(value, list) and value is not row else [value]


def _wrong(value: object) -> str:
    """Return what is wrong with a reward; empty if nothing."""
    if value is None:
        return ""
    if not isinstance(value, (Real, np.number)):
        return f"says {value!r}, which is no number,"
    return f"is {value}" if np.isinf(float(value)) else ""
