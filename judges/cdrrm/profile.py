"""Contrastive profiling: a separate diagnosis of each response, as findings with quoted evidence.

Liu et al. 2026, arXiv:2603.08035, section on contrastive profiling. The diagnosis of a response sees neither the other
response nor a label. Ours is stricter: evidence must occur in the response word by word.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from ...rm.types import Example, prompt_text
from ..backends.chat import Ask, Chat
from ..prompts import object_schema
from .requests import Rejected, ask, json_object

Status = Literal["pass", "fail", "partial", "not_applicable"]
STATUSES = get_args(Status)
MISSED = ("fail", "partial")
TEXTS = ("criterion", "claim", "evidence", "anchor")
MOST_SEVERE = 3
TEXT = {"type": "string"}
FINDING = object_schema(
    criterion=TEXT,
    status={"enum": list(STATUSES)},
    severity={"type": "integer", "minimum": 0, "maximum": MOST_SEVERE},
    claim=TEXT,
    evidence=TEXT,
    anchor=TEXT,
)
SCHEMA = object_schema(findings={"type": "array", "items": FINDING})


class CriterionFinding(NamedTuple):
    """A verifiable finding about one response."""

    criterion: str
    """General property of a good response."""
    status: Status
    severity: int
    """Severity of a failed finding, 0 to 3."""
    claim: str
    evidence: str
    """Quotation from the response."""
    anchor: str
    """Quotation from the instruction that makes the criterion relevant."""


class Profile(NamedTuple):
    """Findings about one response."""

    findings: tuple[CriterionFinding, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON, for the request to write a rubric."""
        return {"findings": [finding._asdict() for finding in self.findings]}


def profile_request(example: Example) -> Ask:
    """Return the request to diagnose one response, without the other response and the label."""
    parts = {"instruction": prompt_text(example.prompt), "answer": example.text}
    return ask("profile", parts, SCHEMA, max_tokens=2048)


def profile(chat: Chat, examples: Sequence[Example]) -> list[Profile | Rejected]:
    """Return the diagnosis of every response, or the reason why it is missing. Equal responses share a request."""
    texts = [(prompt_text(example.prompt), example.text) for example in examples]
    asks = {text: profile_request(example) for text, example in zip(texts, examples, strict=True)}
    replies = dict(zip(asks, chat.ask([*asks.values()]), strict=True))
    read = [(json_object(replies[text]), text[1]) for text in texts]
    return [values if isinstance(values, Rejected) else as_profile(values, answer) for values, answer in read]


def as_profile(values: Mapping[str, Any], answer: str) -> Profile | Rejected:
    """Parse a diagnosis from JSON values. One invalid finding rejects the whole diagnosis."""
    listed = values.get("findings")
    if not isinstance(listed, list) or not listed:
        return Rejected("wrong form", "'findings' must be a list of at least one finding")
    findings = []
    for index, item in enumerate(listed, start=1):
        finding = _finding(item, answer)
        if isinstance(finding, Rejected):
            return Rejected(finding.reason, f"finding {index}: {finding.detail}")
        findings.append(finding)
    return Profile(tuple(findings))


def _finding(values: Any, answer: str) -> CriterionFinding | Rejected:
    if not isinstance(values, Mapping):
        return Rejected("wrong form", f"an object was expected, got {values!r}")
    absent = [name for name in TEXTS if not isinstance(values.get(name), str)]
    if absent:
        return Rejected("wrong form", f"no text for {', '.join(absent)}")
    status, severity = values.get("status"), values.get("severity", 0)
    if status not in STATUSES:
        return Rejected("wrong form", f"status {status!r} is not one of {', '.join(STATUSES)}")
    if type(severity) is not int or not 0 <= severity <= MOST_SEVERE:
        return Rejected("wrong form", f"severity {severity!r} is not an integer from 0 to {MOST_SEVERE}")
    empty = [name for name in ("criterion", "claim", "anchor") if not values[name].strip()]
    if empty:
        return Rejected("empty", f"{', '.join(empty)} of a finding is empty")
    finding = CriterionFinding(status=status, severity=severity, **{name: values[name].strip() for name in TEXTS})
    if status in MISSED and not finding.evidence:
        return Rejected("no evidence", f"'{finding.claim}' quotes nothing")
    if " ".join(finding.evidence.split()) not in " ".join(answer.split()):  # spaces and line breaks are alike
        return Rejected("evidence not in the answer", finding.evidence[:80])
    return finding
