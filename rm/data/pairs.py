"""Parse preference data of all common formats into pairs; refuse unusable rows with file, line and reason."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from ..errors import UNREADABLE, DataError, UsageError
from ..types import (
    OVERALL,
    AnyCompletion,
    Example,
    Messages,
    PreferencePair,
    completion_json,
    completion_text,
    completion_turns,
    content_hash,
    user_turn,
)
from .conversation_split import as_completion, as_prompt, as_reply, as_turns, split_conversations
from .messages_and_tools import TrackedRow, check_characters, parsed_object, with_columns
from .rankings import expand_rankings
from .readers import Row, read_rows

T = TypeVar("T")
OnBadRow = Literal["refuse", "skip"]
IDS = ("id", "unique_id")
"""Columns with the id of a row."""
EXAMPLES_OF_REASON = 3
"""Number of rows that an error lists for each reason."""


@dataclass
class RowReport:
    """Number of rows read, and every dropped row with its reason."""

    read: int = 0
    dropped: list[tuple[str, str]] = field(default_factory=list)
    """(location, reason) of each dropped row."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Number of rows by unused column or message field."""

    def __add__(self, other: "RowReport") -> "RowReport":
        """Return the sum of two reports."""
        return RowReport(self.read + other.read, self.dropped + other.dropped, self.ignored + other.ignored)

    @property
    def reasons(self) -> dict[str, int]:
        """Number of dropped rows for each reason, most frequent first."""
        return dict(Counter(reason.partition(":")[0] for _, reason in self.dropped).most_common())

    @property
    def ignored_columns(self) -> str:
        """Text for reports: unused columns with their number of rows."""
        return ", ".join(f"{name} ({count} rows)" for name, count in sorted(self.ignored.items()))

    def lines(self, name: str) -> list[str]:
        """Return sentences about the rows of `name`: how many were dropped, why, and which columns were ignored."""
        dropped = f"{name}: {len(self.dropped)} of {self.read} rows dropped: {self.reasons}"
        ignored = f"{name}: ignored columns: {self.ignored_columns}"
        return [dropped] * bool(self.dropped) + [ignored] * bool(self.ignored)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object for the manifest. A row that was dropped in several epochs is listed once."""
        locations = [*dict.fromkeys(self.dropped)]
        return {"read": self.read, "dropped": len(self.dropped), "reasons": self.reasons, "places": locations} | (
            {"ignored": dict(sorted(self.ignored.items()))} if self.ignored else {}
        )


class LocatedExample(NamedTuple):
    """An example and its location: the file, and its line or row, counted from 1."""

    id: str
    example: Example
    file: str
    row: int


def load_pairs(
    sources: str | Sequence[str], *, on_bad_row: OnBadRow = "refuse", allow_blank: bool = False
) -> tuple[list[PreferencePair], RowReport]:
    """Load every row of every source as a pair, in order, with a report of dropped rows.

    Recognised by column names: TRL's explicit and implicit prompts as text or messages, `margin`, `wins`, `subset`,
    `id`; HH dialogues; UltraFeedback's `score_chosen` and `score_rejected` (equal scores are a tie: P = 0.5);
    RewardBench; NeMo-RL's ranked completions (`expand_rankings`); and in any of them `rationale_chosen` and
    `rationale_rejected`. With `on_bad_row="refuse"` all bad rows raise one `DataError` that counts them and lists the
    first locations of each reason. A row with the id of an earlier row of the same source and subset is bad, and so is
    a blank completion unless `allow_blank`.
    """
    return collect(sources, partial(parse_pair, allow_blank=allow_blank), on_bad_row, unique_ids=True)


def load_examples(
    sources: str | Sequence[str], *, on_bad_row: OnBadRow = "refuse"
) -> tuple[list[tuple[str, Example]], RowReport]:
    """Load (id, example) from rows with a pair (two examples), with `prompt` and `completion`, or with `messages`."""
    placed, report = load_located_examples(sources, on_bad_row=on_bad_row)
    return [(placed_example.id, placed_example.example) for placed_example in placed], report


def load_located_examples(
    sources: str | Sequence[str], *, on_bad_row: OnBadRow = "refuse"
) -> tuple[list[LocatedExample], RowReport]:
    """Load the same examples as `load_examples`, each with its file and row."""

    def parse(row: Row) -> list[LocatedExample]:
        return [LocatedExample(name, example, row.source, row.number) for name, example in parse_examples(row.values)]

    rows, report = _collect(sources, parse, on_bad_row, True, True)
    return [example for row in rows for example in row], report


def read_prompts(source: str) -> list[tuple[str, Messages]]:
    """Return (id, prompt) from rows with a `prompt`, or from a text file or stdin with one prompt per line."""
    if source != "-" and not source.endswith(".txt"):
        rows, _ = collect(source, lambda row: (row_id(row), check_filled(row_prompt(row))))
        return [(str(index if id is None else id), prompt) for index, (id, prompt) in enumerate(rows)]
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the prompts in {source}: {error}") from error
    lines = text.split("\n")
    prompts = [(str(number), user_turn(line)) for number, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise DataError(f"no prompt in {'stdin' if source == '-' else source}; write one per line")
    return prompts


def collect(
    sources: str | Sequence[str],
    parse: Callable[[Mapping[str, Any]], T],
    on_bad_row: OnBadRow = "refuse",
    *,
    unique_ids: bool = False,
    expand: bool = True,
) -> tuple[list[T], RowReport]:
    """Parse every row of every source with `parse`, which raises a `ValueError` for a bad row.

    Bad rows of all sources are refused together, or skipped; with `unique_ids`, a repeated id of a subset is bad, and
    with `expand`, a row of ranked completions is replaced by one row per pair.
    """
    return _collect(sources, lambda row: parse(row.values), on_bad_row, unique_ids, expand)


def _collect(
    sources: str | Sequence[str], parse: Callable[[Row], T], on_bad_row: OnBadRow, unique_ids: bool, expand: bool
) -> tuple[list[T], RowReport]:
    if on_bad_row not in ("refuse", "skip"):
        raise UsageError(f"on_bad_row must be 'refuse' or 'skip', got '{on_bad_row}'")
    report = RowReport()
    rows: list[T] = []
    for source in [sources] if isinstance(sources, str) else sources:
        read = expand_rankings(read_rows(source)) if expand else read_rows(source)
        rows += parse_rows(read, parse, "skip", report, first_by_id={} if unique_ids else None)
    if on_bad_row == "refuse":
        refuse_bad_rows(report)
    if not rows:
        names = sources if isinstance(sources, str) else ", ".join(sources)
        first = "; the first is {}: {}".format(*report.dropped[0]) if report.dropped else ""
        raise DataError(
            f"{names}: no usable row among {report.read}; reasons: {report.reasons or 'the file is empty'}{first}"
        )
    return rows, report


def refuse_bad_rows(report: RowReport) -> None:
    """Raise a `DataError` if rows were dropped, with the number of rows and the first locations of each reason."""
    if not report.dropped:
        return
    location, why = report.dropped[0]
    counts = ""
    if len(report.dropped) > 1:
        counts = f"; {len(report.dropped)} of {report.read} rows cannot be used: {_reasons_with_locations(report)}"
    rows = "the row" if len(report.dropped) == 1 else "the rows"
    raise DataError(f"{location}: {why}{counts}; correct {rows}, or drop such rows with --on_bad_row skip")


def _reasons_with_locations(report: RowReport) -> str:
    locations: dict[str, list[str]] = {}
    for location, why in report.dropped:
        locations.setdefault(why.partition(":")[0], []).append(location)
    return ", ".join(
        f"{len(locations[reason])} x {reason} ({', '.join(locations[reason][:EXAMPLES_OF_REASON])}"
        f"{', ...' if len(locations[reason]) > EXAMPLES_OF_REASON else ''})"
        for reason in report.reasons
    )


def row_id(values: Mapping[str, Any]) -> Any:
    """Return the id of a row; None if it is missing or an empty CSV cell."""
    return next((stated for name in IDS if (stated := values.get(name)) not in (None, "")), None)


def id_or_hash(values: Mapping[str, Any], content: Any) -> str:
    """Return the id of a row, or else a hash of its content."""
    identity = row_id(values)
    return content_hash(content) if identity is None else str(identity)


def check_id(row: Row, first: dict[tuple[str, str], str]) -> None:
    """Raise an error for a row that repeats an id of its subset; in RewardBench some subsets restart their ids."""
    stated = row_id(row.values)
    if stated is None:
        return
    earlier = first.setdefault((str(row.values.get("subset") or ""), str(stated)), row.place)
    if earlier != row.place:
        raise ValueError(f"duplicate id: '{stated}' is the id of {earlier} too")


def parse_rows(
    rows: Iterable[Row],
    parse: Callable[[Row], T],
    on_bad_row: OnBadRow,
    report: RowReport,
    first_by_id: dict[tuple[str, str], str] | None = None,
) -> Iterator[T]:
    """Yield the parsed rows; refuse or report rows that `parse` rejects and rows that repeat a (subset, id)."""
    for row in rows:
        report.read += 1
        try:
            if row.error:
                raise ValueError(row.error)
            values = TrackedRow(row.values)
            item = parse(row._replace(values=values))
            check_characters(values.read_values)
            if first_by_id is not None:
                check_id(row, first_by_id)
        except UNREADABLE as error:
            why = str(error) if isinstance(error, ValueError) else f"a value of an unexpected type: {error}"
            report.dropped.append((row.location, why))
            if on_bad_row == "refuse":
                refuse_bad_rows(RowReport(1, [(row.location, why)]))
        else:
            report.ignored.update(values.ignored)
            yield item


def parse_pair(values: Mapping[str, Any], *, allow_blank: bool = False) -> PreferencePair:
    """Parse one row in any format that `load_pairs` recognises; raise `ValueError` if it is unusable."""
    prompt, chosen, rejected = split_conversations(
        values.get("prompt"), column(values, "chosen"), column(values, "rejected")
    )
    check_filled(prompt, allow_blank, chosen=chosen, rejected=rejected)
    prompt = with_columns(prompt, values)
    if chosen == rejected:
        raise ValueError("chosen and rejected are identical")
    return PreferencePair(
        id=id_or_hash(values, [prompt, *map(completion_json, (chosen, rejected))]),
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        subset=str(values.get("subset") or ""),
        wins=_wins(values),
        margin=_number(values, "margin"),
        gaps=_by_objective(values, "gaps") or {},
        rationales=(_rationale(values, "rationale_chosen"), _rationale(values, "rationale_rejected")),
    )


def pair_row(pair: PreferencePair) -> dict[str, Any]:
    """Return the row that `parse_pair` parses into the same pair."""
    chosen, rejected = map(completion_json, (pair.chosen, pair.rejected))
    if isinstance(chosen, str) != isinstance(rejected, str):  # a row that mixes text and messages would be refused
        chosen, rejected = (list(completion_turns(completion)) for completion in (pair.chosen, pair.rejected))
    row = {"id": pair.id, "prompt": list(pair.prompt), "chosen": chosen, "rejected": rejected}
    extras = {"subset": pair.subset or None, "wins": dict(pair.wins), "margin": pair.margin}
    extras["gaps"] = dict(pair.gaps) or None
    extras |= zip(("rationale_chosen", "rationale_rejected"), (text or None for text in pair.rationales), strict=True)
    return row | {name: value for name, value in extras.items() if value is not None}


def parse_examples(values: Mapping[str, Any]) -> list[tuple[str, Example]]:
    """Parse one row into one or two tuples (id, example)."""
    if "chosen" in values:
        pair = parse_pair(values)
        return [(f"{pair.id}/{side}", some) for side, some in zip(("chosen", "rejected"), pair.examples, strict=True)]
    if "messages" in values:
        *prompt, last = as_turns(values["messages"], "messages")
        example = Example(tuple(prompt), as_reply([last], "messages"))
    else:
        name = next((name for name in ("completion", "response", "answer") if name in values), "completion")
        example = Example(as_prompt(column(values, "prompt")), as_completion(column(values, name), name))
    check_filled(example.prompt, completion=example.completion)
    example = Example(with_columns(example.prompt, values), example.completion)
    return [(id_or_hash(values, [example.prompt, completion_json(example.completion)]), example)]


def column(values: Mapping[str, Any], name: str) -> Any:
    """Return a required column; raise `ValueError` if it is missing or null."""
    if name in values and values[name] is None:
        raise ValueError(f"column '{name}' is null")
    if name not in values:
        raise ValueError(f"no column '{name}': the row has {', '.join(sorted(map(str, values))) or 'nothing'}")
    return values[name]


def text_list(values: Mapping[str, Any], name: str) -> list[Any]:
    """Return a column that holds a list of texts; a single text is refused, since it would be split into characters."""
    value = column(values, name)
    if isinstance(value, str):
        raise ValueError(f"'{name}' is a single text and not a list of texts: is this the benchmark's own file?")
    return list(value)


def is_number(value: Any) -> bool:
    """Return whether an external value is a finite number within float64's range.

    >>> is_number(1), is_number(True), is_number(10**400), is_number(float("nan")), is_number("1")
    (True, False, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def as_number(value: Any, name: str) -> float | None:
    """Return a finite number, which may be written as text as in CSV files; None for an empty cell.

    Anything else raises a `ValueError`, whose message calls the value `name`.

    >>> as_number(2, "'margin'"), as_number("2.5", "'margin'"), as_number("", "'margin'")
    (2.0, 2.5, None)
    """
    number = value
    if isinstance(value, str):
        if not value.strip():
            return None
        with suppress(ValueError):
            number = float(value)
    if not is_number(number):
        raise ValueError(f"{name} is not a finite number: {value!r:.60}")
    return float(number)


def _number(values: Mapping[str, Any], name: str) -> float | None:
    """Return the number in a column; None if it is missing."""
    value = values.get(name)
    return None if value is None else as_number(value, f"'{name}'")


def _rationale(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str | None):
        raise ValueError(f"'{name}' is not a text: {value!r:.60}")
    check_characters([value])
    return value or ""


def _by_objective(values: Mapping[str, Any], name: str) -> dict[str, float] | None:
    """Return a column {objective: number}; objectives without a number are left out."""
    stated = parsed_object(values.get(name))
    if stated is None:
        return None
    if not isinstance(stated, Mapping):
        raise ValueError(f"'{name}' is not {{objective: number}}: {stated!r}")
    return {str(key): number for key in stated if (number := _number(stated, key)) is not None}


def _wins(values: Mapping[str, Any]) -> dict[str, float]:
    """Return P(chosen is better) by objective from `wins`, or from two scores; 1 if the row has neither."""
    stated = _by_objective(values, "wins")
    if stated is not None:
        return stated
    metadata = values.get("metadata")
    scores = metadata if "score_chosen" not in values and isinstance(metadata, Mapping) else values
    chosen, rejected = _number(scores, "score_chosen"), _number(scores, "score_rejected")
    if chosen is None or rejected is None or chosen > rejected:
        return {OVERALL: 1.0}
    if chosen < rejected:
        raise ValueError(f"the chosen completion has the lower score: {chosen} against {rejected}")
    return {OVERALL: 0.5}


def check_filled(prompt: Messages, allow_blank: bool = False, **completions: AnyCompletion) -> Messages:
    """Return the prompt. Raise `ValueError` if it or a completion is empty or cannot be written as UTF-8."""
    if not any(turn["content"].strip() for turn in prompt):
        raise ValueError("empty prompt")
    for name, value in completions.items():
        if not isinstance(value, AnyCompletion) or not (completion_text(value).strip() or allow_blank):
            raise ValueError(f"empty completion: '{name}'")
    check_characters([*prompt, *map(completion_text, completions.values())])
    return prompt


def row_prompt(values: Mapping[str, Any]) -> Messages:
    """Return the prompt of a row, with its columns `system` and `tools` applied."""
    return with_columns(as_prompt(column(values, "prompt")), values)
