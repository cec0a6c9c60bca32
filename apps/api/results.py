"""Results of the Python API: typed, convertible to pandas, and displayed as tables and figures in notebooks."""

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...rm.errors import DataError, UsageError
from ...rm.io.checked_files import from_json_lines
from ...rm.types import Example
from .display import facts_table, figure_image, frame_of, heading, plain_facts, short_repr, table, text_table
from .inputs import conversation_rows, note_loaded

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ...benchmarks.compare import ScorerComparison
    from ...benchmarks.types import Interval, Report, Row
    from ...rm.types import RewardModel


RUN = "run"
"""Name of the run folder inside the temporary folder of an evaluation without an output."""


class LoadedModel:
    """A reward model that rates prompts and completions. Other calls accept it in place of a path."""

    def __init__(self, path: str | os.PathLike[str], **options: Any):
        self.path, self._options = Path(path), options
        self._model: RewardModel | None = None

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return short_repr(self, path=self.path)

    @property
    def model(self) -> "RewardModel":
        """The reward model, loaded on first use."""
        if self._model is None:
            from ...rm.load import load_reward_model

            self._model = load_reward_model(str(self.path), **self._options)
            note_loaded(self._model, str(self.path))
        return self._model

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the K rewards."""
        return self.model.contract.objectives

    def rate(self, prompts: Sequence[Any], completions: Sequence[Any] | None = None) -> "np.ndarray":
        """Return rewards [N, K] in float64: N completions, K objectives. Without completions, pass a list of `Example`.

        A prompt is a string, a list of messages or a row with a column `prompt`; a completion is a string or messages.
        A warning states the share of conversations that the model truncates or reads in part.
        """
        if completions is None:
            examples = list(prompts)
            if not all(isinstance(example, Example) for example in examples):
                raise UsageError("rate takes prompts and completions, or a list of Example; completions are missing")
            return self._rate(examples)
        from ...rm.data.pairs import parse_examples

        examples = []
        for index, row in enumerate(conversation_rows(prompts, completions)):
            try:
                examples += [example for _, example in parse_examples(row)]
            except ValueError as error:
                raise DataError(f"prompts[{index}] and completions[{index}]: {error}") from error
        return self._rate(examples)

    def _rate(self, examples: list[Example]) -> "np.ndarray":
        from ...rm.contract.readings import UNREAD, rate_with_readings, unread_shares

        rewards, readings = rate_with_readings(self.model, examples)
        for what, share in unread_shares(readings).items():
            warnings.warn(UNREAD[what].format(share), stacklevel=3)
        return rewards

    def _repr_html_(self) -> str:
        contract = self.model.contract
        facts = {"path": str(self.path), "kind": contract.kind, "objectives": ", ".join(contract.objectives)}
        return heading("Reward model") + facts_table(facts | {"contract": contract.hash()})


class TrainedModel(LoadedModel):
    """Reward model returned by `train`: a `LoadedModel` with training metrics."""

    def __init__(self, path: str | os.PathLike[str], metrics: Mapping[str, Any], **options: Any):
        super().__init__(path, **options)
        self.metrics = dict(metrics)
        """Summary of the training, such as `train_loss`, `eval_accuracy` and `pairs`."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return the metrics as a table of one row."""
        return frame_of([self.metrics])

    def _repr_html_(self) -> str:
        return heading("Trained reward model") + facts_table(self.metrics)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Results of every scorer (model, reference or baseline) on a benchmark, with 95 % confidence intervals."""

    report: "Report"
    path: Path | None = None
    """Run folder, if one was written."""
    kept: "tempfile.TemporaryDirectory[str] | None" = field(default=None, compare=False)
    """Temporary run folder of an evaluation without an output. `compare` reads it."""

    def __repr__(self) -> str:
        return short_repr(self, self.report.suite, f"{self.report.cases} cases", path=self.path)

    def __str__(self) -> str:
        return text_table(self._title, [[row.scorer, str(row.overall)] for row in self.report.rows])

    @property
    def _title(self) -> str:
        from ...benchmarks.types import part_of

        part = part_of(self.report.notes)
        title = f"{self.report.suite}: accuracy in % with 95 % intervals, {self.report.cases} cases"
        return f"{title}. {part}" if part else title

    @property
    def overall(self) -> "dict[str, Interval]":
        """Overall accuracy of each scorer."""
        return {row.scorer: row.overall for row in self.report.rows}

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per scorer and area; `kind` says if the area is all cases, a section or a subset."""
        return frame_of([line for row in self.report.rows for line in _areas(row)])

    def __fspath__(self) -> str:
        if self.path is None and self.kept is not None:
            return str(Path(self.kept.name) / RUN)
        if self.path is None:
            raise UsageError("this evaluation has no run folder; give evaluate() an output")
        return str(self.path)

    def _repr_html_(self) -> str:
        from ...benchmarks.report import figure
        from ..runs.summaries import areas

        rows = [
            {"scorer": row.scorer} | {name: str(interval) for name, interval in areas(row).items()}
            for row in self.report.rows
        ]
        return heading(self._title) + table(frame_of(rows)) + figure_image(figure(self.report))


def _areas(row: "Row") -> Iterator[dict[str, Any]]:
    areas = [("overall", "overall", row.overall)]
    areas += [("section", name, interval) for name, interval in row.sections.items()]
    areas += [("subset", name, interval) for name, interval in row.subsets.items()]
    for kind, name, interval in areas:
        yield {"scorer": row.scorer, "role": row.role, "kind": kind, "area": name, **interval._asdict()}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Comparison of two runs: paired differences with 95 % confidence intervals and p-values."""

    facts: "ScorerComparison"

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per section or subset: both accuracies, their difference and interval, and p-value."""
        rows = []
        for kind, changes in (("area", self.facts.areas), ("subset", self.facts.subsets)):
            for name, change in changes.items():
                gap = change.difference
                values = {"first": change.first, "second": change.second, "difference": gap.value}
                rows.append({"kind": kind, "area": name, **values, "low": gap.low, "high": gap.high, "p": change.p})
        return frame_of(rows)

    def __repr__(self) -> str:
        return short_repr(self, self._title.rstrip("."))

    def __str__(self) -> str:
        frame = self.to_pandas().round(4)
        return text_table(self._title, [[*frame.columns], *frame.to_numpy().tolist()])

    @property
    def _title(self) -> str:
        from ...benchmarks.compare import cases_text

        return f"{self.facts.second} minus {self.facts.first}, {cases_text(self.facts)}"

    def _repr_html_(self) -> str:
        return heading(self._title) + table(self.to_pandas().round(4))


@dataclass(frozen=True, repr=False)
class Table:
    """Result that consists of rows: a sequence of dictionaries."""

    rows: Sequence[Mapping[str, Any]]
    path: Path | None = None
    """File that was written, if any."""
    title: str = ""
    hidden: Iterable[str] = ()
    """Columns that the display in notebooks leaves out."""

    def __repr__(self) -> str:
        return short_repr(self, f"{len(self)} rows", path=self.path)

    def __str__(self) -> str:
        names = [name for name in dict.fromkeys(name for row in self.rows for name in row) if name not in self.hidden]
        cells = [[row.get(name) for name in names] for row in self.rows]
        return text_table(f"{self.title}, {len(self)} rows", [names, *cells])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows and columns."""
        return frame_of([*self.rows])

    def _repr_html_(self) -> str:
        frame = self.to_pandas()
        return heading(self.title) + table(frame.drop(columns=[name for name in self.hidden if name in frame]))


@dataclass(frozen=True, repr=False)
class Scores(Table):
    """Rewards of conversations: columns id, file, row, truncated and one for each objective."""

    omitted: int = 0
    """Number of rows from which the model's chat template omits text."""

    def _repr_html_(self) -> str:
        left_out = f"The chat template leaves out text of {self.omitted:,} of {len(self)} rows."
        return super()._repr_html_() + (f"<p>{left_out}</p>" if self.omitted else "")


class Decoded(Table):
    """Completions of guided decoding: columns id, preference, weight, prompt, completion, finished, token values."""

    @property
    def completions(self) -> list[str]:
        """Texts of the completions, in the order of the prompts."""
        return [row["completion"] for row in self.rows]


@dataclass(frozen=True, repr=False)
class Sampled(Table):
    """Selected completions or pairs in TRL's columns."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Summary of the run: `gain` (expected gain of best-of-n with its interval), `gains`, `dropped`, mean rewards."""

    def _repr_html_(self) -> str:
        return super()._repr_html_() + facts_table(self.facts["gain"] or {})


@dataclass(frozen=True, repr=False)
class Labelled(Table):
    """Preference pairs or scored responses in TRL's columns."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Summary of the run: `pairs`, `scores`, `abstentions` by labeller, `dropped`, `agreement` of the labellers."""


@dataclass(frozen=True, repr=False)
class LintReport(Table):
    """Problems found in preference data, one per row, with columns such as row, reason and detail."""

    leaks: Sequence[str] = ()
    """One sentence for each feature that predicts which response of a pair is chosen."""

    @property
    def ok(self) -> bool:
        """Whether there are no findings and no label leakage."""
        return not (self.rows or self.leaks)


@dataclass(frozen=True, repr=False)
class Summary:
    """Metrics of a job, and the folder with its output, if any."""

    facts: Mapping[str, Any]
    path: Path | None = None
    title: str = ""

    def __repr__(self) -> str:
        return short_repr(self, path=self.path)

    def __str__(self) -> str:
        return text_table(self.title, [*plain_facts(self.facts).items()])

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def to_pandas(self) -> "pd.DataFrame":
        """Return the metrics as a table of one row."""
        return frame_of([{**self.facts}])

    def _repr_html_(self) -> str:
        return heading(self.title) + facts_table(self.facts)


class MemoryPlan(Summary):
    """Estimated memory and time of a job on GPUs, computed by formula."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per phase of the job, with a column of gigabytes for each part of the memory."""
        phases = self.facts["phases"]
        return frame_of([{**phase, **phase["gigabytes"]} for phase in phases]).drop(columns="gigabytes")

    def _repr_html_(self) -> str:
        from ...rm.capacity.report import figure

        return super()._repr_html_() + figure_image(figure(self.facts))


class TrainedPolicy(Summary):
    """A policy trained on rewards. Other calls accept it in place of the path of its weights."""

    def __fspath__(self) -> str:
        return str(self.facts["policy"])

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per step: rewards, KL, lengths and all other metrics."""
        from ..runs.tables import STEPS

        assert self.path is not None
        return frame_of(from_json_lines((self.path / STEPS).read_text(encoding="utf-8")))

    def _repr_html_(self) -> str:
        return super()._repr_html_() + figure_image(_reward_curve(self.to_pandas()))


class TrainedJudge(Summary):
    """A generative judge trained on pairs. Other calls accept it in place of the path of its weights."""

    def __fspath__(self) -> str:
        return str(self.facts["judge"])


def _reward_curve(steps: "pd.DataFrame") -> Any:
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6, 3), layout="constrained")
    axes = drawing.subplots()
    for name in steps.columns:
        if name.startswith("rewards/") and name.endswith("/mean"):
            axes.plot(steps["step"], steps[name], label=name.split("/")[1])
    axes.set_xlabel("step")
    axes.set_ylabel("mean reward")
    axes.legend(frameon=False, fontsize=8)
    return drawing
