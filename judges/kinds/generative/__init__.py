"""Generative reward model: reasoning as text, then the probability of the verdict."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from ....rm.errors import UsageError
from ...backends.chat import Ask, Chat, Choice, ChoosingChat, Reply
from ...judge import Judging, RubricSource, ask_all, describe_setting, judgment, rubrics_for
from ...parsing.grammars import LABELS
from ...parsing.statements import NoVerdict
from ...prompts import GREEDY, Sampling
from ...rubrics.rubric import Rubric
from ...types import Case, Comparison, Criterion, Judgment, Reason
from .._comparison import ComparisonPrompt, Order, comparison_prompt, no_request_reason, orders_of
from .probabilities import Preference, before_verdict, choosing_chat, first_probability, preference

SPREAD = "spread"
"""Name of the criterion with the standard deviation of a response's score over replies."""


def generative(
    chat: Chat,
    *,
    samples: int = 1,
    rubric: Rubric | RubricSource | None = None,
    prompt: str = "pairwise",
    sampling: Sampling = GREEDY,
    name: str = "",
) -> Judging:
    """Score each response by the probability that it is preferred to the others.

        s_i = mean over other responses j of P(y_i ≻ y_j), in [0, 1]

    P(y_i ≻ y_j) is the mean of p_A / (p_A + p_B), taken for the label of y_i, over both orders and `samples` replies.
    p_A and p_B are the model's probabilities of the two labels at its verdict, after its own reasoning, at temperature
    1. This follows GenRM (Zhang et al. 2024, arXiv:2408.15240), where a reply is about a single response and the labels
    are Yes and No.

    The criterion `spread` is the standard deviation over the replies of both orders, averaged over j. A reply without a
    verdict is left out. The judge abstains on a case unless more than half of the replies in each order have a verdict.
    `rubric` is part of the request. If other cases have a rubric, the judge abstains on a case without one.
    """
    if samples < 1 or (samples > 1 and sampling.temperature == 0):
        raise UsageError(f"{samples} samples at temperature {sampling.temperature} are equal; set a temperature > 0")
    chooser = choosing_chat(chat)
    comparison = comparison_prompt(prompt, ties=False, sampling=sampling)

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        rubrics = rubrics_for(rubric, cases)
        plans = [
            [(order, k) for order in orders_of(case) for k in range(samples)] if case_rubric or not rubric else []
            for case, case_rubric in zip(cases, rubrics, strict=True)
        ]
        asks = [
            [comparison.ask(case, order, rubric=case_rubric, sample=k) for order, k in plan]
            for case, case_rubric, plan in zip(cases, rubrics, plans, strict=True)
        ]
        orders = [[order for order, _ in plan] for plan in plans]
        replied = ask_all(chat, asks)
        stated = [
            _stated_choice(case, *exchange, comparison)
            for case, *by_order in zip(cases, orders, asks, replied, strict=True)
            for exchange in zip(*by_order, strict=True)
        ]
        read = iter(_probabilities(stated, chooser))
        return [
            _case_judgment(case, plan, replies, [next(read) for _ in plan], chat)
            if plan
            else judgment(case, no_request_reason(case), chat, replies)
            for case, plan, replies in zip(cases, orders, replied, strict=True)
        ]

    settings: dict[str, Any] = {
        "kind": "generative", "chat": chat.name, "samples": samples, "rubric": describe_setting(rubric),
        "system": comparison.system, "sampling": sampling._asdict(),
    }  # fmt: skip
    return Judging(name or f"{chat.name} generative", settings, judge, sources=(rubric,))


Read = tuple[float, str] | NoVerdict
"""Probability that the response shown first is preferred, and the reasoning of the reply."""


def _probabilities(stated: Sequence[tuple[Choice, str] | NoVerdict], chooser: ChoosingChat | None) -> Iterator[Read]:
    """Yield the probability and the reasoning of every reply, in order. All probabilities are computed in one call."""
    choices = [item[0] for item in stated if not isinstance(item, NoVerdict)]
    if choices and chooser is None:
        raise UsageError("a scripted chat has no probabilities of verdicts; use a chat with `choice_logprobs`")
    logprobs = iter(chooser.choice_logprobs(choices) if chooser else ())
    for item in stated:
        yield item if isinstance(item, NoVerdict) else (first_probability(next(logprobs)), item[1])


def _stated_choice(
    case: Case, order: Order, ask: Ask, reply: Reply, comparison: ComparisonPrompt
) -> tuple[Choice, str] | NoVerdict:
    """Return the choice between the labels at the verdict of a reply, and the reply's reasoning."""
    verdict = comparison.verdict(case, order, reply)
    if isinstance(verdict, NoVerdict):
        return verdict
    quoted = [case.texts[index] for index in order]
    beginning = before_verdict(reply.text, lambda text: comparison.read(text, quoted))
    if beginning is None:
        return NoVerdict(Reason.MALFORMED, "the verdict is stated without the label A or B")
    return Choice(ask.messages, beginning, LABELS), verdict.reasoning


def _case_judgment(
    case: Case, plan: Sequence[Order], replies: Sequence[Reply], read: Sequence[Read], chat: Chat
) -> Judgment:
    first = [value if isinstance(value, NoVerdict) else value[0] for value in read]
    by_order: dict[Order, list[float | NoVerdict]] = {}
    for order, value in zip(plan, first, strict=True):
        by_order.setdefault(order, []).append(value)
    pairs = combinations(range(len(case.answers)), 2)
    preferences = {pair: preference({order: by_order[order] for order in (pair, pair[::-1])}) for pair in pairs}
    missing = next((value for value in preferences.values() if isinstance(value, NoVerdict)), None)
    valid = {pair: value for pair, value in preferences.items() if isinstance(value, Preference)}
    of_response = [
        [(p.value if pair[0] == index else 1 - p.value, p.spread) for pair, p in valid.items() if index in pair]
        for index in range(len(case.answers))
    ]
    scores = missing or [fmean(value for value, _ in values) for values in of_response]
    spreads = [] if missing else [fmean(spread for _, spread in values) for values in of_response]
    return judgment(
        case, scores, chat, replies, orders=plan,
        comparisons=[Comparison(order, _win_score(value)) for order, value in zip(plan, first, strict=True)],
        reasoning=[value[1] for value in read if not isinstance(value, NoVerdict)],
        criteria=[Criterion(index, SPREAD, spread) for index, spread in enumerate(spreads)],
    )  # fmt: skip


def _win_score(chance: float | NoVerdict) -> float:
    """Return 1 if the response shown first is more probable, 0.5 if both are equal, else 0. NaN without a verdict."""
    return float("nan") if isinstance(chance, NoVerdict) else float(chance > 0.5) + (chance == 0.5) / 2
