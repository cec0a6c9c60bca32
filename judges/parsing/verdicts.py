"""Parsing of replies to verdicts, ratings and marks. A parse failure is an abstention and never a score."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..types import Reason
from .grammars import LABELS, choice_between, points_between
from .phrases import REASONING_KEYS
from .replies import unwrap, without_copies
from .statements import NoVerdict, is_withdrawn, parse_reply, read


class Verdict(NamedTuple):
    """Verdict on two responses: which is better, or a tie."""

    choice: str
    """One of the two labels, or `tie`."""
    reasoning: str = ""
    form: str = "text"
    """Format of the statement: `json` or `text`."""


class Points(NamedTuple):
    """Rating of one response on the requested scale."""

    value: float
    reasoning: str = ""
    form: str = "text"


class Mark(NamedTuple):
    """Mark of one criterion: 1 if met, 0 if not met, between them if partly met, NaN if not applicable."""

    value: float
    evidence: str = ""


class Marks(NamedTuple):
    """Marks of all requested criteria."""

    values: Mapping[str, Mark]
    reasoning: str = ""


TIE_MARK = re.compile(r"\[\[\s*C\s*\]\]", re.IGNORECASE)


def pair_verdict(
    text: str, *, labels: tuple[str, str] = LABELS, quoted: Sequence[str] = (), finish: str = "stop"
) -> Verdict | NoVerdict:
    """Parse the winner that a reply names by one of two labels, or a tie. Return a `NoVerdict` if there is none.

    JSON is read first (the full reply, a fenced block, or an object in the text), then the last explicit line or mark,
    then sentences that open the reply, close it or draw a conclusion. With labels A and B, `[[C]]` is a tie (MT-Bench).
    `quoted` are the texts of the request. `statements` defines the rules.

    >>> pair_verdict("B is longer. Final verdict: **Response A**, because it is right.").choice
    'A'
    >>> pair_verdict("Response A is better. Response B invents a date.").choice
    'A'
    >>> pair_verdict("Winner: A\\nWinner: B").reason
    <Reason.CONTRADICTION: 'contradictory verdicts'>
    """
    if labels == LABELS:
        text = TIE_MARK.sub("[[tie]]", text)
    statement = read(text, choice_between(labels), quoted, finish)
    if isinstance(statement, NoVerdict):
        return statement
    return Verdict(str(statement.value), statement.reasoning, statement.form)


def points(
    text: str, low: float, high: float, *, quoted: Sequence[str] = (), finish: str = "stop"
) -> Points | NoVerdict:
    """Parse the rating in [low, high] that a reply gives. Return a `NoVerdict` if there is none.

    The rules of `pair_verdict` apply. A range, a number on another scale ("8/100" if `high` is 10) and a number out
    of range are not ratings.

    >>> points("Good, but short. Rating: 7/10", 1, 10).value
    7.0
    >>> points("Rating: 11", 1, 10).reason
    <Reason.OUT_OF_RANGE: 'a score out of range'>
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"points requires low < high, got low {low} and high {high}")
    statement = read(text, points_between(low, high), quoted, finish)
    if isinstance(statement, NoVerdict):
        return statement
    return Points(float(statement.value), statement.reasoning, statement.form)


YES = frozenset(
    {"true", "yes", "y", "1", "1.0", "met", "pass", "passed", "kept", "satisfied", "fulfilled", "✓", "✅", "✔"}
)
NO = frozenset(
    {"false", "no", "n", "0", "0.0", "unmet", "missed", "fail", "failed", "broken", "violated", "unsatisfied"}
    | {"✗", "❌", "not met", "not kept", "not satisfied", "not fulfilled", "not passed"}
)
PARTLY = frozenset({"partial", "partly", "partially", "partially met", "partly met", "0.5"})
DOES_NOT_APPLY = frozenset({"n/a", "na", "not applicable", "not_applicable", "does not apply", "inapplicable"})
MET_KEYS = ("met", "criteria_met", "kept", "pass", "passed", "satisfied", "verdict", "status", "result", "value")
EVIDENCE_KEYS = ("evidence", "quote", "quotation", "explanation", "reason", "justification")
NAME_KEYS = ("id", "name", "criterion", "rule", "rule_id", "item")
MARK_LINE = re.compile(
    r"(?P<name>[\w.-]+)\s*[:|).–—-]\s*(?P<mark>[\w/ .✓✅✔✗❌✘]+?)\s*(?:$|[.;]\s*$|[,:;|(–—-]+\s*(?P<evidence>.*)$)"
)


def mark_value(text: Any) -> float | None:
    """Return the value of a mark: 1 (met), 0 (not met), 0.5 (partly), NaN (not applicable); None if unknown.

    >>> mark_value("Not met"), mark_value(True), mark_value("maybe")
    (0.0, 1.0, None)
    """
    if not isinstance(text, bool | str | int | float):
        return None
    word = str(text).strip(" .*_`").lower()
    for value, words in ((1.0, YES), (0.0, NO), (0.5, PARTLY), (math.nan, DOES_NOT_APPLY)):
        if word in words:
            return value
    return None


def criteria(text: str, names: Sequence[str], *, quoted: Sequence[str] = (), finish: str = "stop") -> Marks | NoVerdict:
    """Parse a mark for each name, from JSON or from lines such as `r1: met, "the quotation"`.

    JSON is a list of objects with an id and `met` (on its own or in a field), or an object that maps names to marks or
    to objects with `met`. Text copied from `quoted` is ignored. Return a `NoVerdict` if a name has no mark or two
    different ones, if a name is unknown, or if marks are withdrawn (`Actually, ...`).

    >>> criteria('{"rules": [{"id": "r1", "met": true, "evidence": "four"}]}', ["r1"]).values["r1"]
    Mark(value=1.0, evidence='four')
    >>> criteria("r1: met", ["r1", "r2"])
    NoVerdict(reason=<Reason.MISSING: 'a criterion without a verdict'>, detail='r2')
    """
    reply = parse_reply(text, quoted, finish)
    if isinstance(reply, NoVerdict):
        return reply
    visible, documents_ = reply[0], [document.value for document in reply[1]]
    rows = [row for document in documents_ for row in _rows(document, names)]
    reasoning = "\n".join(
        str(document[key])
        for document in documents_
        if isinstance(document, dict)
        for key in REASONING_KEYS
        if document.get(key)
    )
    after = visible[reply[1][-1].end :] if documents_ else ""
    if not rows and not documents_:
        lines = unwrap(without_copies(visible, quoted)).split("\n")
        marks = {index: row for index, line in enumerate(lines) if (row := _line_of_mark(line, names))}
        rows, reasoning, after = [*marks.values()], visible, "\n".join(lines[max(marks, default=-1) + 1 :])
    if rows and is_withdrawn(after, quoted):
        return NoVerdict(Reason.CONTRADICTION, "it is taken back")
    return _marks_of_rows(rows, names, reasoning)


def _rows(document: Any, names: Sequence[str]) -> list[tuple[str, Any, str]]:
    """Return name, mark and evidence of everything in a document that has the form of a mark."""
    if isinstance(document, list):
        return [_row(entry) for entry in document]
    lists = [part for part in document.values() if isinstance(part, list) and part and isinstance(part[0], dict)]
    if len(lists) == 1:
        return [_row(entry) for entry in lists[0] if isinstance(entry, dict)]
    if not any(name in document for name in names):
        inner = [part for part in document.values() if isinstance(part, dict)]
        return _rows(inner[0], names) if len(inner) == 1 else ([_row(document)] if _first(document, NAME_KEYS) else [])
    return [(name, _parse_met(part), _evidence(part)) for name, part in document.items() if name not in REASONING_KEYS]


def _row(entry: Mapping[str, Any]) -> tuple[str, Any, str]:
    return str(_first(entry, NAME_KEYS)), _parse_met(entry), _evidence(entry)


def _parse_met(part: Any) -> Any:
    return _first(part, MET_KEYS) if isinstance(part, dict) else part


def _evidence(part: Any) -> str:
    return str(_first(part, EVIDENCE_KEYS) or "") if isinstance(part, dict) else ""


def _first(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the entry's value for the first of the keys that it has. None if it has none of the keys."""
    return next((entry[key] for key in keys if key in entry), None)


def _line_of_mark(line: str, names: Sequence[str]) -> tuple[str, Any, str] | None:
    """Parse name, mark and evidence from a line such as `r1: met, "the quotation"`. None for other lines."""
    undecorated = re.sub(r"^\s*(?:[-•+*]\s+)?", "", line.replace("**", "").replace("`", "")).strip()
    match_ = MARK_LINE.match(undecorated)  # a number at its beginning may be a criterion's name
    by_lower_case = {name.lower(): name for name in names}
    if match_ is None or match_["name"].lower() not in by_lower_case:
        return None
    return by_lower_case[match_["name"].lower()], match_["mark"], (match_["evidence"] or "").strip(" \"“”'()")


def _marks_of_rows(rows: Sequence[tuple[str, Any, str]], names: Sequence[str], reasoning: str) -> Marks | NoVerdict:
    if not rows:
        return NoVerdict(Reason.NO_VERDICT)
    marks: dict[str, Mark] = {}
    for name, mark, evidence in rows:
        value = mark_value(mark)
        if name not in names:
            return NoVerdict(Reason.MALFORMED, f"'{name}' was not asked for")
        if value is None:
            return NoVerdict(Reason.MALFORMED, f"{name}: {mark!r}")
        before = marks.get(name)
        if before is not None and not (before.value == value or (math.isnan(before.value) and math.isnan(value))):
            return NoVerdict(Reason.CONTRADICTION, name)
        marks[name] = Mark(value, evidence)
    if absent := [name for name in names if name not in marks]:
        return NoVerdict(Reason.MISSING, ", ".join(absent))
    return Marks({name: marks[name] for name in names}, reasoning)
