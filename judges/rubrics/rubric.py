"""Rubric type: hard rules, each with a test, and weighted principles for what the rules do not decide."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...rm.io import checked_files as documents
from ..parsing.replies import FENCE
from ..prompts import object_schema

KINDS = ("must", "forbid")
MOST_RULES = 6
LEAST_FORBIDDEN = 0.3  # of the rules' weight; rubrics of presence alone are what policies exploit (arXiv:2605.12474)
COPIED_WORDS = 5


@dataclass(frozen=True)
class Rule:
    """A rule: what a response must or must not do, with a test for a single response."""

    id: str
    type: str
    """`must` or `forbid`."""
    criterion: str
    test: str
    weight: float = 1.0
    """Weight relative to the other rules, > 0."""
    veto: bool = False
    """Veto: whether breaking this rule alone gives a score of 0."""

    def __post_init__(self):
        if self.type not in KINDS:
            raise ValueError(f"rule '{self.id}': the type must be 'must' or 'forbid', got '{self.type}'")
        for name in ("id", "criterion", "test"):
            if not vars(self)[name].strip():
                raise ValueError(f"rule '{self.id}': {name} is empty")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"rule '{self.id}': a weight must be a number > 0, got {self.weight}")


@dataclass(frozen=True)
class Principle:
    """A principle: a property that makes a response better, or worse if its weight is negative."""

    id: str
    description: str
    weight: float = 1.0

    def __post_init__(self):
        for name in ("id", "description"):
            if not vars(self)[name].strip():
                raise ValueError(f"principle '{self.id}': {name} is empty")
        if not 0 < abs(self.weight) < float("inf"):
            raise ValueError(f"principle '{self.id}': a weight must be a number other than 0, got {self.weight}")


@dataclass(frozen=True)
class Rubric:
    """Rules and principles. `source` states the origin of the rubric."""

    rules: tuple[Rule, ...] = ()
    principles: tuple[Principle, ...] = ()
    source: str = ""

    def __post_init__(self):
        if not self.ids:
            raise ValueError("a rubric must have at least one rule or principle, got none")
        for name in self.ids:
            if self.ids.count(name) > 1:
                raise ValueError(f"rubric: the id '{name}' occurs twice")

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of all rules, followed by those of all principles."""
        return tuple(item.id for item in (*self.rules, *self.principles))


RULE_FIELDS = {"id": str, "type": str, "criterion": str, "test": str, "weight": float, "veto": bool}
PRINCIPLE_FIELDS = {"id": str, "description": str, "weight": float}
OPTIONAL = ("weight", "veto")

TEXT = {"type": "string"}
RULE = object_schema(id=TEXT, type=TEXT | {"enum": list(KINDS)}, criterion=TEXT, test=TEXT)
PRINCIPLE = object_schema(id=TEXT, description=TEXT)
SCHEMA = object_schema(rules={"type": "array", "items": RULE}, principles={"type": "array", "items": PRINCIPLE})
"""JSON schema of rubrics written by a language model."""


def parse(text: str) -> Rubric:
    """Parse a rubric from a model's JSON, with or without a code fence. A `ValueError` names the invalid item.

    >>> parse('{"rules": [{"id": "r1", "type": "must", "criterion": "Gives a number.", "test": "Has a digit."}]}').ids
    ('r1',)
    >>> parse('{"rules": [{"id": "r1", "type": "should", "criterion": "c", "test": "t"}]}')
    Traceback (most recent call last):
    ValueError: rule 'r1': the type must be 'must' or 'forbid', got 'should'
    """
    return from_values(json_values(text))


def json_values(text: str) -> Any:
    """Return the value of a JSON text, with or without a code fence."""
    fenced = FENCE.findall(text)
    try:
        return documents.from_json(fenced[0] if len(fenced) == 1 else text)
    except ValueError as error:
        raise ValueError(f"rubric: no JSON object ({error}): {text.strip()[:60]!r}") from error


def from_values(values: Any, location: str = "rubric") -> Rubric:
    """Return a rubric from nested dictionaries and lists, as loaded from JSON or TOML."""
    if not isinstance(values, dict):
        raise ValueError(f"{location}: an object with rules and principles is expected, got {type(values).__name__}")
    _check_names(values, ("rules", "principles", "source"), location)
    rules = [Rule(**row) for row in _rows(values, "rules", RULE_FIELDS, location)]
    principles = [Principle(**row) for row in _rows(values, "principles", PRINCIPLE_FIELDS, location)]
    return Rubric(tuple(rules), tuple(principles), str(values.get("source", "")))


def _rows(values: Mapping[str, Any], name: str, fields: Mapping[str, type], location: str) -> list[dict[str, Any]]:
    """Return the list `name` of the values. Raise a `ValueError` for an item with wrong fields."""
    rows = values.get(name, [])
    if not isinstance(rows, list):
        raise ValueError(f"{location}: '{name}' must be a list, got {type(rows).__name__}")
    return [_row(row, fields, f"{location}: {name}[{number}]") for number, row in enumerate(rows)]


def _row(row: Any, fields: Mapping[str, type], location: str) -> dict[str, Any]:
    """Return a checked item of rules or principles. Raise a `ValueError` for an invalid item."""
    if not isinstance(row, dict):
        raise ValueError(f"{location}: an object is expected, got {row!r}")
    _check_names(row, fields, location)
    for name, kind in fields.items():
        if name not in row and name not in OPTIONAL:
            raise ValueError(f"{location}: '{name}' is missing")
        number = kind is float and isinstance(row.get(name), int) and not isinstance(row.get(name), bool)
        if name in row and not isinstance(row[name], kind) and not number:
            raise ValueError(f"{location}: '{name}' must be a {kind.__name__}, got {row[name]!r}")
    try:
        return {name: fields[name](value) for name, value in row.items()}
    except OverflowError as error:
        raise ValueError(f"{location}: a weight is too large ({error})") from error


def _check_names(values: Iterable[str], names: Iterable[str], location: str) -> None:
    if unknown := sorted(set(values) - set(names)):
        raise ValueError(f"{location}: unknown field '{unknown[0]}'; the fields are {', '.join(names)}")


def from_toml(text: str) -> Rubric:
    """Load a rubric from a TOML file: tables `[[rules]]` and `[[principles]]`, and `source`."""
    try:
        values = documents.from_toml(text)
    except ValueError as error:
        raise ValueError(f"rubric: no TOML ({error})") from error
    return from_values(values)


def render(rubric: Rubric) -> str:
    """Render the rubric for a judge: numbered rules with name, type and test, then numbered principles.

    >>> rule = Rule("r1", "forbid", "Names a price.", "Search for euros.")
    >>> print(render(Rubric((rule,), (Principle("p1", "Short."),))))
    Hard rules:
    1. [r1] MUST NOT: Names a price. Test: Search for euros.
    Principles, only where the rules do not decide:
    1. [p1] Short.
    """
    rules = [
        f"{number}. [{rule.id}] {'MUST' if rule.type == 'must' else 'MUST NOT'}: {rule.criterion} Test: {rule.test}"
        + (" (Breaking this one alone makes the answer worthless.)" if rule.veto else "")
        for number, rule in enumerate(rubric.rules, 1)
    ]
    principles = [
        f"{number}. [{principle.id}] {principle.description}" for number, principle in enumerate(rubric.principles, 1)
    ]
    parts = [["Hard rules:", *rules]] if rules else []
    if principles:
        head = "Principles, only where the rules do not decide:" if rules else "Principles:"
        parts.append([head, *principles])
    return "\n".join(line for part in parts for line in part)


def rubric_json(rubric: Rubric) -> str:
    """Return a rubric as JSON for training a generator: the rules' texts without weights, vetoes and sources."""
    rules = [
        {"id": rule.id, "type": rule.type, "criterion": rule.criterion, "test": rule.test} for rule in rubric.rules
    ]
    principles = [{"id": principle.id, "description": principle.description} for principle in rubric.principles]
    return json.dumps({"rules": rules, "principles": principles}, ensure_ascii=False)


def to_toml(rubric: Rubric) -> str:
    """Return the rubric as TOML for `from_toml`."""
    head = [f"source = {_toml(rubric.source)}", ""] if rubric.source else []
    tables = [("rules", asdict(rule)) for rule in rubric.rules] + [("principles", asdict(p)) for p in rubric.principles]
    lines = [
        line
        for name, fields in tables
        for line in (f"[[{name}]]", *(f"{field} = {_toml(value)}" for field, value in fields.items()), "")
    ]
    return "\n".join([*head, *lines])


def _toml(value: Any) -> str:
    """Return a string, number or boolean as TOML, which equals JSON except for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


COMPOUND = re.compile(r"\b(?:and|as well as)\b|;|, or\b", re.IGNORECASE)
VAGUE = re.compile(
    r"\b(?:good|high[- ]quality|deeper|more professional|appropriate(?:ly)?|adequate(?:ly)?|well[- ]written|engaging"
    r"|insightful|nice|excellent)\b",
    re.IGNORECASE,
)
SIDES = re.compile(
    r"\b(?:answer|response|output|assistant) [AB]\b|\b(?:first|second|other) (?:answer|response)\b", re.I
)


def lint(rubric: Rubric, answers: Sequence[str] = ()) -> list[str]:
    """Return warnings about rules and principles: compound, vague, one-sided, too long, or copied from `answers`."""
    issues = [issue for rule in rubric.rules for issue in _lint_rule(rule)]
    issues += [
        f"'{name}' refers to one of the answers: '{match_[0]}'"
        for name, text in _texts(rubric)
        if (match_ := SIDES.search(text))
    ]
    issues += [
        f"'{name}' copies an answer: '{run}'"
        for name, text in _texts(rubric)
        if (run := _find_copied_words(text, answers))
    ]
    if len(rubric.rules) > MOST_RULES:
        issues.append(f"{len(rubric.rules)} rules; more than {MOST_RULES} rarely change a verdict")
    total = sum(rule.weight for rule in rubric.rules)
    forbidden = sum(rule.weight for rule in rubric.rules if rule.type == "forbid")
    if rubric.rules and forbidden < LEAST_FORBIDDEN * total:
        issues.append(
            f"{100 * forbidden / total:.0f} % of the rules' weight is of type 'forbid'; {LEAST_FORBIDDEN:.0%} is safer"
        )
    if not rubric.rules:
        issues.append("no hard rule; principles alone are subjective")
    return issues


def _lint_rule(rule: Rule) -> list[str]:
    issues = []
    if COMPOUND.search(rule.criterion):
        issues.append(f"rule '{rule.id}' looks compound; split it: '{rule.criterion}'")
    if match_ := VAGUE.search(rule.criterion):
        issues.append(f"rule '{rule.id}' is vague: '{match_[0]}'")
    return issues


def _texts(rubric: Rubric) -> list[tuple[str, str]]:
    """Return the name and the text of every rule and principle."""
    rules = [(rule.id, f"{rule.criterion} {rule.test}") for rule in rubric.rules]
    return rules + [(principle.id, principle.description) for principle in rubric.principles]


def _find_copied_words(text: str, answers: Sequence[str]) -> str:
    """Return the first five consecutive words that also occur in a response; empty if there are none."""
    words = re.findall(r"\w+", text.casefold())
    texts = [" " + " ".join(re.findall(r"\w+", answer.casefold())) + " " for answer in answers]
    runs = (" ".join(words[start : start + COPIED_WORDS]) for start in range(len(words) - COPIED_WORDS + 1))
    return next((run for run in runs if any(f" {run} " in text for text in texts)), "")
