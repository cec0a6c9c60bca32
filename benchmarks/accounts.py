"""Accounts of judges: coverage, accuracy with bounds, effects of response order, abstentions and cost."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..judges.audit.measures import asked_in_both_orders, comparison_flips, first_credits
from ..judges.kinds.route import routing_counts
from ..judges.types import BatchJudge, Case, Judgment
from .evaluate import Evaluation, credits_of, evaluate
from .types import Suite


def evaluate_judges(
    suite: Suite,
    cases: Sequence[Case],
    judges: Sequence[BatchJudge],
    *,
    notes: Sequence[str] = (),
    seed: int = 0,
    samples: int = 1000,
    progress: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Evaluate judges and the baselines. The report's notes state each judge's coverage, accuracy bounds and cost."""
    evaluation = evaluate(
        suite, cases, [*judges, *suite.baselines(cases, seed)], notes=notes, samples=samples, seed=seed,
        progress=lambda name: progress(f"judging {len(cases)} cases with {name}"),
    )  # fmt: skip
    sentences = [account(suite, cases, evaluation.judgments[judge.name]).sentence(judge.name) for judge in judges]
    report = evaluation.report
    return evaluation._replace(report=replace(report, notes=(*report.notes, *sentences)))


class Account(NamedTuple):
    """Results of one judge on all cases. Shares are in [0, 1]."""

    cases: int
    answered: int
    right: float
    """Sum of the credits of all judged cases."""
    reasons: Mapping[str, int]
    """Number of abstentions by reason."""
    flips: Sequence[float]
    """For each pair judged in both orders, the difference between the two verdicts: 0, 0.5 (one is a tie) or 1."""
    first: Sequence[float]
    """Credit of the response shown first: 1, 0.5 or 0, for each comparison of cases that were judged in both orders.

    Cases judged in only one order are left out, since the response shown first may always be the better one.
    """
    requests: int
    estimated: int
    """Number of requests whose tokens and cost are upper bounds."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cost: float
    routes: Mapping[str, int] = {}
    """Counts from `routing_counts`. Empty if no case was routed."""
    truncated: int = 0
    """Number of cases with a truncated response."""
    omitted: int = 0
    """Number of cases with a text that the model's chat template drops."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the account as a dictionary with coverage, accuracy and its bounds, flip and first-position rates."""
        left_out = self.cases - self.answered
        counts = {name: value for name, value in self._asdict().items() if name not in ("flips", "first")}
        return counts | {
            "asked_in_both_orders": len(self.flips),
            "flip_rate": fmean(self.flips) if self.flips else None,
            "comparisons": len(self.first),
            "first_position_rate": fmean(self.first) if self.first else None,
            "coverage": self.answered / self.cases,
            "accuracy": self.right / self.answered if self.answered else None,
            "worst": self.right / self.cases,
            "best": (self.right + left_out) / self.cases,
        }

    def sentence(self, name: str) -> str:
        """Return sentences on coverage, accuracy and its bounds, abstentions, order and cost."""
        facts = self.facts
        accuracy = "none" if facts["accuracy"] is None else f"{facts['accuracy']:.1%}"
        reasons = "; ".join(f"{reason} {count}" for reason, count in self.reasons.items())
        return (
            f"{name} answered {self.answered} of {self.cases} cases (coverage {facts['coverage']:.1%}) and was right "
            f"in {accuracy} of them; counting the others as wrong or as right gives {facts['worst']:.1%} or "
            f"{facts['best']:.1%}."
            + (f" Abstentions: {reasons}." if reasons else "")
            + self._order_sentence()
            + self._routes_sentence()
            + f" {self.requests:,} requests, {self.prompt_tokens:,} + {self.completion_tokens:,} tokens"
            + (f", cost {self.cost:.4g}." if self.cost > 0 else ".")
            + self._estimated_sentence()
        )

    def _order_sentence(self) -> str:
        """Return sentences on the flip rate and the first-position rate. Empty without comparisons."""
        rates = [
            ("Flip rate", self.flips, "pairs asked in both orders"),
            ("First-position rate", self.first, "comparisons"),
        ]
        return "".join(f" {name} {fmean(values):.1%} of {len(values)} {of}." for name, values, of in rates if values)

    def _estimated_sentence(self) -> str:
        """Return a sentence on the requests whose tokens and cost are upper bounds. Empty if there are none."""
        if not self.estimated:
            return ""
        unstated = f" The server reported no token counts for {self.estimated:,} requests, such as lost ones;"
        return f"{unstated} upper bounds of their tokens and cost are used."

    def _routes_sentence(self) -> str:
        """Return a sentence on cases that were routed to the strong judge. Empty without routing."""
        if not self.routes:
            return ""
        strong, routed, undecided = (self.routes[name] for name in ("to_strong", "routed", "undecided"))
        return f" {strong} of {routed} cases went to the strong judge, {undecided} of them as the rule was undecided."


def account(suite: Suite, cases: Sequence[Case], judgments: Sequence[Judgment]) -> Account:
    """Compute the account of a judge. All cases have equal weight, even if the suite weighs them differently."""
    right, routes = credits_of(suite, cases, judgments)[:, 0], routing_counts(judgments)
    return Account(
        cases=len(cases),
        answered=sum(not judgment.abstained for judgment in judgments),
        right=float(np.nansum(right)),
        reasons=dict(Counter(judgment.reason for judgment in judgments if judgment.abstained).most_common()),
        flips=[flip for judgment in judgments for flip in comparison_flips(judgment)],
        first=[c for judgment in judgments if asked_in_both_orders([judgment]) for c in first_credits(judgment)],
        requests=sum(judgment.requests for judgment in judgments),
        estimated=sum(judgment.estimated for judgment in judgments),
        prompt_tokens=sum(judgment.tokens[0] for judgment in judgments),
        completion_tokens=sum(judgment.tokens[1] for judgment in judgments),
        seconds=sum(judgment.seconds for judgment in judgments),
        cost=sum(judgment.cost for judgment in judgments),
        routes=routes if routes["routed"] else {},
        truncated=sum(judgment.truncated for judgment in judgments),
        omitted=sum(bool(judgment.omitted) for judgment in judgments),
    )
