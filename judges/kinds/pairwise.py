"""Pairwise judge: comparisons of two responses in both orders."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

from ..backends.chat import Chat, Reply
from ..judge import (
    ExampleSource,
    Judging,
    RubricSource,
    ask_all,
    describe_setting,
    examples_for,
    judgment,
    one_of,
    rubrics_for,
)
from ..parsing.grammars import LABELS, TIE
from ..parsing.statements import NoVerdict
from ..prompts import GREEDY, Sampling
from ..rubrics.rubric import Rubric
from ..types import Case, Comparison, Judgment, Reason
from ._comparison import ComparisonPrompt, Order, comparison_prompt, no_request_reason, orders_of


class Duel(NamedTuple):
    """Outcome of one request that compared two responses."""

    order: Order
    """Indices of the responses shown as A and as B."""
    winner: int | NoVerdict | None
    """Index of the better response, None for a tie, or the reason for a missing verdict."""
    reasoning: str

    def comparison(self) -> Comparison:
        """Return the comparison; its score is 1, 0.5 or 0 if the response shown first wins, ties or loses."""
        if isinstance(self.winner, NoVerdict):
            return Comparison(self.order, math.nan)
        return Comparison(self.order, 0.5 if self.winner is None else float(self.winner == self.order[0]))


def pairwise(
    chat: Chat,
    *,
    orders: Literal["both", "one"] = "both",
    flip: Literal["tie", "abstain"] = "tie",
    rubric: Rubric | RubricSource | None = None,
    examples: ExampleSource | None = None,
    ties: bool = True,
    prompt: str = "pairwise",
    sampling: Sampling = GREEDY,
    name: str = "",
) -> Judging:
    """Score each response by its share of comparisons won against the others.

        s_i = mean over other responses j of [i beats j] + [i ties with j] / 2, in [0, 1]

    R responses take R (R - 1) / 2 comparisons, each in both orders. `flip` decides whether different verdicts in the
    two orders are a tie, or an abstention on the case. With `orders="one"`, a hash of prompt and responses decides
    which one is shown first. If a comparison has no verdict in any order, the judge abstains on the case. The request
    contains `rubric`, `examples` and the case's reference; `prompt` names the instructions.
    """
    one_of("orders", orders, ("both", "one"))
    one_of("flip", flip, ("tie", "abstain"))
    comparison = comparison_prompt(prompt, ties=ties, examples=examples, sampling=sampling)

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        rubrics = rubrics_for(rubric, cases)
        plans = [
            orders_of(case, both=orders == "both") if case_rubric or not rubric else []
            for case, case_rubric in zip(cases, rubrics, strict=True)
        ]
        texts = examples_for(examples, cases)
        asks = [
            [comparison.ask(case, order, rubric=case_rubric, examples=text) for order in plan]
            for case, case_rubric, text, plan in zip(cases, rubrics, texts, plans, strict=True)
        ]
        return [judgment_of(*parts) for parts in zip(cases, plans, ask_all(chat, asks), strict=True)]

    def judgment_of(case: Case, plan: Sequence[Order], replies: Sequence[Reply]) -> Judgment:
        duels = [_duel(case, comparison, *exchange) for exchange in zip(plan, replies, strict=True)]
        outcome = scores(len(case.answers), duels, flip) if duels else no_request_reason(case)
        return judgment(
            case, outcome, chat, replies, orders=plan,
            comparisons=[duel.comparison() for duel in duels],
            reasoning=[duel.reasoning for duel in duels],
        )  # fmt: skip

    settings: dict[str, Any] = {
        "kind": "pairwise", "chat": chat.name, "orders": orders, "flip": flip, "rubric": describe_setting(rubric),
        "system": comparison.system, "sampling": sampling._asdict(),
    } | ({"examples": describe_setting(examples)} if examples else {})  # fmt: skip
    return Judging(name or f"{chat.name} pairwise", settings, judge, sources=(rubric, examples))


def _duel(case: Case, comparison: ComparisonPrompt, order: Order, reply: Reply) -> Duel:
    verdict = comparison.verdict(case, order, reply)
    if isinstance(verdict, NoVerdict):
        return Duel(order, verdict, "")
    winner = None if verdict.choice == TIE else order[LABELS.index(verdict.choice)]
    return Duel(order, winner, verdict.reasoning)


def scores(answers: int, duels: Sequence[Duel], flip: str = "tie") -> list[float] | NoVerdict:
    """Return each response's share of comparisons won, or the first reason to abstain: a missing verdict or a flip.

    >>> scores(2, [Duel((0, 1), 0, ""), Duel((1, 0), 0, "")])
    [1.0, 0.0]
    >>> scores(2, [Duel((0, 1), 0, ""), Duel((1, 0), 1, "")])
    [0.5, 0.5]
    """
    won = [0.0] * answers
    for pair in combinations(range(answers), 2):
        winners = [duel.winner for duel in duels if set(duel.order) == set(pair)]
        if unread := [winner for winner in winners if isinstance(winner, NoVerdict)]:
            return unread[0]
        if len(set(winners)) > 1 and flip == "abstain":
            return NoVerdict(Reason.FLIP)
        agreed = winners[0] if len(set(winners)) == 1 else None
        for index in pair:
            won[index] += 0.5 if agreed is None else float(index == agreed)
    return [wins / (answers - 1) for wins in won]
