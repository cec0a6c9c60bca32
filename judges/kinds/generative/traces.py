"""Reasoning traces for training: replies of a teacher, or of the model itself, with right verdicts in both orders."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...backends.chat import Ask, Chat, Reply
from ...cdrrm.generator import Record, conversation_record
from ...judge import ask_all
from ...parsing.grammars import LABELS
from ...parsing.verdicts import Verdict
from ...rubrics.rubric import Rubric
from ...types import Case
from .._comparison import ComparisonPrompt, Order, orders_of

WRONG, ONE_ORDER, NO_VERDICT = "wrong verdict", "right in one order only", "no verdict"
"""Reasons for dropping a pair."""


class Traces(NamedTuple):
    """Training conversations, two per kept pair, and the reason for each dropped pair."""

    records: list[Record]
    ids: list[str]
    """Ids of the pairs whose conversations are in the training data."""
    dropped: dict[str, str]
    """Id -> reason."""

    def account(self) -> dict[str, Any]:
        """Return the number of kept pairs, and the number of dropped pairs by reason."""
        return {"kept": len(self.ids), "dropped": dict(Counter(self.dropped.values()).most_common())}


def right_label(case: Case, order: Order) -> str:
    """Return the label of the right response when the pair is shown in this order."""
    return LABELS[order.index(case.best[0])]


def labelled_pairs(case: Case) -> list[Case]:
    """Return all pairs of a right and a wrong response of a case.

    With more than two responses, the pair of responses 0 and 2 has the id `ID#0-2`.
    """
    wrong = [index for index in range(len(case.answers)) if index not in case.best]
    if len(case.answers) == 2 and wrong:
        return [case]
    cluster = case.cluster or case.id
    return [
        Case(
            f"{case.id}#{i}-{j}", case.prompt, (case.answers[i], case.answers[j]),
            subset=case.subset, cluster=cluster, reference=case.reference,
        )
        for i in case.best
        for j in wrong
    ]  # fmt: skip


def drop_reason(outcomes: Sequence[Sequence[bool | None]]) -> str:
    """Return why a pair has no trace; empty if it has one. `outcomes` are by order and reply; None means no verdict.

    >>> drop_reason([[False, True], [True]]), drop_reason([[True], [None]]), drop_reason([[None], [False]])
    ('', 'right in one order only', 'wrong verdict')
    >>> drop_reason([[None], [None]])
    'no verdict'
    """
    right = [True in of_order for of_order in outcomes]
    if all(right):
        return ""
    if any(right):
        return ONE_ORDER
    return WRONG if any(outcome is False for of_order in outcomes for outcome in of_order) else NO_VERDICT


def select_traces(
    chat: Chat,
    pairs: Sequence[Case],
    prompt: ComparisonPrompt,
    *,
    rubrics: Sequence[Rubric | None] | None = None,
    samples: int = 1,
) -> Traces:
    """Sample `samples` replies in each order of every pair, and keep the first right reply of each order.

    A pair without a right reply in both orders is dropped, since one right reply may be due to position bias. `rubrics`
    has one rubric per pair; None uses no rubrics. If `chat` is the model to be trained, this is rejection sampling as
    in STaR (Zelikman et al. 2022, arXiv:2203.14465).
    """
    plans = [orders_of(pair) for pair in pairs]
    asks = [
        [prompt.ask(pair, order, rubric=rubric, sample=sample) for order in plan for sample in range(samples)]
        for pair, rubric, plan in zip(pairs, rubrics or [None] * len(pairs), plans, strict=True)
    ]
    traces = Traces([], [], {})
    for pair, plan, requests, replies in zip(pairs, plans, asks, ask_all(chat, asks), strict=True):
        outcomes = [
            [_outcome(pair, order, prompt, reply) for reply in replies[index * samples : (index + 1) * samples]]
            for index, order in enumerate(plan)
        ]
        if reason := drop_reason(outcomes):
            traces.dropped[pair.id] = reason
        else:
            traces.ids.append(pair.id)
            traces.records.extend(_first_right(requests, replies, outcomes))
    return traces


def _outcome(pair: Case, order: Order, prompt: ComparisonPrompt, reply: Reply) -> bool | None:
    verdict = prompt.verdict(pair, order, reply)
    return verdict.choice == right_label(pair, order) if isinstance(verdict, Verdict) else None


def _first_right(
    asks: Sequence[Ask], replies: Sequence[Reply], outcomes: Sequence[Sequence[bool | None]]
) -> list[Record]:
    """Return the conversation with the first right reply in each order."""
    indices = [row * len(of_order) + of_order.index(True) for row, of_order in enumerate(outcomes)]
    return [conversation_record(asks[index], replies[index].text) for index in indices]
