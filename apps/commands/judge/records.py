"""Cases for judges, and their accounts (coverage, bounds, cost) and the table of judgments."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....benchmarks.evaluate import Evaluation, credits_of
from ....benchmarks.suites._suite import dropped_note, ignored_note, refuse_repeated
from ....benchmarks.suites.pairs import Pairs, collect_files
from ....benchmarks.types import PART, Suite
from ....judges.audit.measures import asked_in_both_orders, comparison_flips, first_credits
from ....judges.case_rows import parse_case
from ....judges.kinds.route import routing_counts
from ....judges.types import Case, Judgment
from ....rm.data.pairs import parse_pair
from ....rm.types import PreferencePair, prompt_text
from ...runs.tables import JUDGMENTS

# ---- cases ----


class CaseFile(Pairs):
    """The suite `pairs`, which also reads rows with `prompt`, `answers` and `best`, and the authors of responses."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, then those of preference pairs, and notes on what is left out."""
        rows, read = collect_files(sources, _case_or_pair, self.on_bad_row)
        pairs = [row for row in rows if isinstance(row, _Written)]
        wrote = {(prompt_text(pair.prompt), pair.chosen, pair.rejected): pair.authors for pair in pairs}
        given = [row for row in rows if isinstance(row, Case)]
        cases, notes = self.with_preference(pairs, sources, given)
        compared = cases[len(given) :]
        compared = [replace(case, authors=wrote[(prompt_text(case.prompt), *case.answers)]) for case in compared]
        refuse_repeated(cases, sources)
        return [*given, *compared], [*notes, *dropped_note(read), *ignored_note(read)]


@dataclass(frozen=True)
class _Written(PreferencePair):
    """A pair, and the models that wrote its chosen and its rejected answer, if the row names both."""

    authors: tuple[str, ...] = ()


def _case_or_pair(values: Mapping[str, Any]) -> Case | _Written:
    if "answers" in values:
        return parse_case(values)
    authors = [values[name] for name in ("chosen_model", "rejected_model") if values.get(name)]
    return _Written(**vars(parse_pair(values)), authors=tuple(map(str, authors)) if len(authors) == 2 else ())


def drawn(cases: Sequence[Case], limit: int | None, seed: int) -> tuple[list[Case], list[str]]:
    """Return a random sample of the cases in their order, and a note on it."""
    if limit is None or limit >= len(cases):
        return list(cases), []
    indices = sorted(Random(seed).sample(range(len(cases)), limit))
    note = f"{PART}: {limit} of {len(cases)} cases were drawn, with seed {seed}."
    return [cases[position] for position in indices], [note]


# ---- accounts ----


class Account(NamedTuple):
    """Results of one judge on all cases; shares in [0, 1]."""

    cases: int
    answered: int
    right: float
    """The credit of all answered cases together."""
    reasons: Mapping[str, int]
    """Abstentions by reason."""
    flips: Sequence[float]
    """For every pair with a verdict in both orders, how far the two differ: 0, 0.5 (a tie in one) or 1."""
    first: Sequence[float]
    """For every comparison with a verdict of a case asked in both orders, what the first response got: 1, 0.5 or 0.

    In one order alone the response shown first may win by being right.
    """
    requests: int
    estimated: int
    """Number of requests whose tokens and cost are upper bounds."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cost: float
    routes: Mapping[str, int] = {}
    """Counts of `routing_counts`; empty where nothing was routed."""
    truncated: int = 0
    """Cases with a response that was cut."""
    omitted: int = 0
    """Cases with a text that the model's chat template leaves out."""

    @property
    def facts(self) -> dict[str, Any]:
        """Coverage, accuracy on the answered cases, its bounds for the others, and rates by order."""
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
        """Return a sentence on coverage, accuracy and its bounds, abstentions, order and cost."""
        facts = self.facts
        accuracy = "none" if facts["accuracy"] is None else f"{facts['accuracy']:.1%}"
        reasons = "; ".join(f"{reason} {count}" for reason, count in self.reasons.items())
        return (
            f"{name} answered {self.answered} of {self.cases} cases (coverage {facts['coverage']:.1%}) and was right "
            f"in {accuracy} of them; counting the others as wrong and as right, in {facts['worst']:.1%} and "
            f"{facts['best']:.1%}."
            + (f" Abstentions: {reasons}." if reasons else "")
            + self._order_sentence()
            + self._routes_sentence()
            + f" {self.requests:,} requests, {self.prompt_tokens:,} + {self.completion_tokens:,} tokens"
            + (f", cost {self.cost:.4g}." if self.cost > 0 else ".")
            + estimated_sentence(self.estimated)
        )

    def _order_sentence(self) -> str:
        """State the rates of flips and of first positions; empty where nothing was compared."""
        rates = [
            ("Flip rate", self.flips, "pairs asked in both orders"),
            ("First-position rate", self.first, "comparisons"),
        ]
        return "".join(f" {name} {fmean(values):.1%} of {len(values)} {of}." for name, values, of in rates if values)

    def _routes_sentence(self) -> str:
        """State how many cases went to the strong judge, and how many for want of a choice; empty without a route."""
        if not self.routes:
            return ""
        strong, routed, undecided = (self.routes[name] for name in ("to_strong", "routed", "undecided"))
        return f" {strong} of {routed} cases went to the strong judge, {undecided} of them because the rule chose none."


def estimated_sentence(requests: int) -> str:
    """State that tokens and cost are upper bounds in part; empty if the server stated them all."""
    if not requests:
        return ""
    return (
        f" The server stated no tokens for {requests:,} requests, such as those that were lost; they are counted with "
        "upper bounds, as is their cost."
    )


def account(suite: Suite, cases: Sequence[Case], judgments: Sequence[Judgment]) -> Account:
    """Compute the account of a judge; every case has the same weight, unlike in some suites."""
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


# ---- on disk ----

CRITERION = {
    "answer": pa.int64(),
    "name": pa.string(),
    "value": pa.float64(),
    "evidence": pa.string(),
    "quoted": pa.bool_(),
}
COLUMNS = {
    "scorer": pa.string(),
    "case": pa.string(),
    "criteria": pa.list_(pa.struct(list(CRITERION.items()))),
    "reasoning": pa.string(),
    "raw": pa.list_(pa.string()),
    "orders": pa.list_(pa.list_(pa.int64())),
    "prompt_tokens": pa.int64(),
    "completion_tokens": pa.int64(),
    "seconds": pa.float64(),
    "cost": pa.float64(),
    "requests": pa.int64(),
    "estimated": pa.int64(),
    "retrieved": pa.list_(pa.string()),
}


def write_judgments(evaluation: Evaluation, names: Sequence[str], folder: Path) -> None:
    """Write one row per judge and case with the grounds of the judgment; keys are scorer and case."""
    rows = [_row(name, judgment) for name in names for judgment in evaluation.judgments[name]]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(COLUMNS.items()))), folder / JUDGMENTS)


def _row(scorer: str, judgment: Judgment) -> dict[str, Any]:
    names = ("case", "reasoning", "raw", "orders", "seconds", "cost", "requests", "estimated", "retrieved")
    same = {name: getattr(judgment, name) for name in names}
    criteria = [criterion._asdict() for criterion in judgment.criteria]
    tokens = dict(zip(("prompt_tokens", "completion_tokens"), judgment.tokens, strict=True))
    return {"scorer": scorer, **same, "criteria": criteria, **tokens}
