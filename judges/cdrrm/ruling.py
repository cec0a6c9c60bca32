"""Verdicts on pairs in both orders, with or without a rubric, and checks of which rules a response meets."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...rm.types import Messages, prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..judge import failure
from ..parsing.verdicts import Verdict, pair_verdict
from ..prompts import object_schema
from ..rubrics.rubric import Rubric, render
from .requests import Rejected, ask, json_object

ORDERS = ((0, 1), (1, 0))
CHECKED_RULE = object_schema(id={"type": "string"}, met={"type": "boolean"}, evidence={"type": "string"})
CHECK_SCHEMA = object_schema(rules={"type": "array", "items": CHECKED_RULE})


class RulingRequest(NamedTuple):
    """Two responses to a prompt, and the rubric for the verdict. If the rubric is None, the judge uses none."""

    prompt: Messages
    answers: tuple[str, str]
    rubric: Rubric | None = None


class Ruling(NamedTuple):
    """Verdicts on a pair in both orders: index of the winner, 0 or 1. None without a readable verdict."""

    first: int | None
    """Verdict with response 0 in slot A."""
    second: int | None
    """Verdict with response 1 in slot A."""
    replies: tuple[Reply, Reply]

    @property
    def winner(self) -> int | None:
        """Index of the response that won in both orders; None if there is none."""
        return self.first if self.first == self.second else None

    @property
    def flipped(self) -> bool:
        """Whether two readable verdicts contradict each other."""
        return None not in (self.first, self.second) and self.first != self.second


def verdict_request(question: RulingRequest, order: tuple[int, int]) -> Ask:
    """Return the request for a verdict, with `order` as the indices of the responses in slots A and B."""
    a, b = (question.answers[index] for index in order)
    parts = {"instruction": prompt_text(question.prompt), "answer_a": a, "answer_b": b}
    if question.rubric is None:
        return ask("bare", parts)
    return ask("judge", parts | {"rubric": render(question.rubric)})


def rule(chat: Chat, questions: Sequence[RulingRequest]) -> list[Ruling]:
    """Return a ruling on every pair, from two requests each."""
    replies = iter(chat.ask([verdict_request(question, order) for question in questions for order in ORDERS]))
    rulings = []
    for question in questions:
        both = (next(replies), next(replies))
        winners = (_parse_winner(reply, question.answers, order) for reply, order in zip(both, ORDERS, strict=True))
        rulings.append(Ruling(*winners, both))
    return rulings


def _parse_winner(reply: Reply, answers: tuple[str, str], order: tuple[int, int]) -> int | None:
    verdict = None if failure(reply) else pair_verdict(reply.text, quoted=answers, finish=reply.finish)
    choice = verdict.choice if isinstance(verdict, Verdict) else ""
    return order["AB".index(choice)] if choice in ("A", "B") else None


class Checked(NamedTuple):
    """A response to a prompt, and the rubric by which it is checked."""

    prompt: Messages
    answer: str
    rubric: Rubric


def check_request(checked: Checked) -> Ask:
    """Return the request to check one response by every rule."""
    parts = {"instruction": prompt_text(checked.prompt), "answer": checked.answer, "rubric": render(checked.rubric)}
    return ask("check", parts, CHECK_SCHEMA)


def check(chat: Chat, checks: Sequence[Checked]) -> list[tuple[bool, ...] | Rejected]:
    """Return whether each response meets each rule of its rubric, in order. A reply that omits a rule is rejected."""
    replies = chat.ask([check_request(check_case) for check_case in checks])
    return [_met(json_object(reply), check_case.rubric) for reply, check_case in zip(replies, checks, strict=True)]


def _met(values: Mapping[str, Any] | Rejected, rubric: Rubric) -> tuple[bool, ...] | Rejected:
    """Return whether each rule of the rubric is met, or the reason why the reply is rejected."""
    if isinstance(values, Rejected):
        return values
    listed = values.get("rules")
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        return Rejected("wrong form", "rules is no list of objects")
    met_by_id = {str(entry.get("id")): entry.get("met") for entry in listed}
    ids = [rule.id for rule in rubric.rules]
    if len(listed) != len(ids) or set(met_by_id) != set(ids):
        return Rejected("wrong form", f"the request has rules {', '.join(ids)}, the reply {', '.join(met_by_id)}")
    if not all(type(met) is bool for met in met_by_id.values()):
        return Rejected("wrong form", "met is neither true nor false")
    return tuple(bool(met_by_id[name]) for name in ids)
