"""Suite x scorer -> report."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..judges.types import Case, Judgment
from ..rm.errors import DataError, UsageError
from .statistics import Draws, cluster_draws, group_means, percentile_interval, share_interval, weighted
from .types import Difference, Interval, Report, Row, Scorer, Suite

OVERALL = "overall"
ALL = "all"  # the subset of cases that name none


class Evaluation(NamedTuple):
    """The report, and what it was made from: every case and every scorer's judgment of it."""

    report: Report
    cases: Sequence[Case]
    judgments: Mapping[str, Sequence[Judgment]]


class Figures(NamedTuple):
    """One scorer's shares by area: observed, and in every bootstrap sample [S]."""

    observed: Mapping[str, float]
    samples: Mapping[str, np.ndarray]


class Layout(NamedTuple):
    """Which subset each case belongs to, and how subsets add up to sections."""

    names: list[str]
    groups: np.ndarray
    sections: Mapping[str, Mapping[str, float]]
    draws: Draws


def evaluate(
    suite: Suite,
    cases: Sequence[Case],
    scorers: Sequence[Scorer],
    *,
    notes: Sequence[str] = (),
    samples: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Judge every case with every scorer and add up as the suite's authors do.

    Intervals are percentiles of `samples` bootstrap samples of whole prompts; all scorers share the samples, so that
    differences to a null are paired. Same cases, scorers and seed: the same report, to the last digit.
    """
    if repeated := [name for name, count in Counter(case.id for case in cases).items() if count > 1]:
        raise DataError(f"{suite.name}: case '{repeated[0]}' stands there twice; give each case its own id")
    if repeated := [name for name, count in Counter(scorer.name for scorer in scorers).items() if count > 1]:
        raise UsageError(f"two scorers are called '{repeated[0]}'; give each a name of its own")
    layout = _layout(suite, cases, samples, seed)
    judgments: dict[str, list[Judgment]] = {}
    for scorer in scorers:
        progress(scorer.name)
        judgments[scorer.name] = _judge(scorer, cases)
    credits = {name: _credits(suite, cases, judged) for name, judged in judgments.items()}
    figures = {name: _figures(values, layout) for name, values in credits.items()}
    rows = [_row(scorer, judgments[scorer.name], figures[scorer.name], layout) for scorer in scorers]
    nulls = [scorer.name for scorer in scorers if scorer.role == "null"]
    rows = [
        row
        if row.role == "null"
        else replace(row, minus_null={n: _minus(row.scorer, n, credits, layout) for n in nulls})
        for row in rows
    ]
    order = {"model": 0, "reference": 1, "null": 2}
    report = Report(
        suite=suite.name,
        version=suite.version,
        cases=len(cases),
        clusters=layout.draws.counts.shape[1],
        sizes=dict(Counter(case.subset or ALL for case in cases)),
        rows=tuple(sorted(rows, key=lambda row: order[row.role])),
        notes=(*notes, *_notes(rows)),
    )
    return Evaluation(report, cases, judgments)


def _layout(suite: Suite, cases: Sequence[Case], samples: int, seed: int) -> Layout:
    subsets = [case.subset or ALL for case in cases]
    names = sorted(set(subsets))
    groups = np.array([names.index(subset) for subset in subsets])
    draws = cluster_draws(np.array([case.cluster or case.id for case in cases]), samples, seed)
    return Layout(names, groups, suite.sections, draws)


def _judge(scorer: Scorer, cases: Sequence[Case]) -> list[Judgment]:
    judged = scorer(cases)
    assert [judgment.case for judgment in judged] == [case.id for case in cases], f"{scorer.name} changed the order"
    return judged


def _credits(suite: Suite, cases: Sequence[Case], judgments: Sequence[Judgment]) -> np.ndarray:
    """Credit of every case [M]; NaN where the scorer abstained."""
    return np.array(
        [
            np.nan if judgment.abstained else suite.credit(case, judgment.scores)
            for case, judgment in zip(cases, judgments, strict=True)
        ]
    )


def _figures(credit: np.ndarray, layout: Layout) -> Figures:
    """Subsets, sections and overall, under their names; a subset has the prefix `subset:`."""
    observed, sampled = group_means(credit, layout.groups, len(layout.names), layout.draws)
    values = {f"subset:{name}": (observed[place], sampled[:, place]) for place, name in enumerate(layout.names)}
    if not layout.sections:
        whole, samples = group_means(credit, np.zeros(len(credit), int), 1, layout.draws)
        values[OVERALL] = (whole[0], samples[:, 0])
    else:
        present = []
        for section, weights in layout.sections.items():
            weight = np.array([weights.get(name, 0.0) for name in layout.names])
            if not weight.any():
                continue
            values[section] = (weighted(observed, weight), weighted(sampled, weight))
            present.append(values[section])
        values[OVERALL] = (np.mean([value for value, _ in present]), np.mean([drawn for _, drawn in present], axis=0))
    return Figures(
        {name: float(value) for name, (value, _) in values.items()}, {name: s for name, (_, s) in values.items()}
    )


def _row(scorer: Scorer, judgments: Sequence[Judgment], figures: Figures, layout: Layout) -> Row:
    def interval(area: str) -> Interval:
        value = figures.observed[area]
        clusters = _clusters(area, layout)
        return Interval(value, *share_interval(value, figures.samples[area], clusters))

    subsets = {name: interval(f"subset:{name}") for name in layout.names}
    sections = {name: interval(name) for name in layout.sections if name in figures.observed}
    scored = [judgment.scores for judgment in judgments if not judgment.abstained]
    return Row(
        scorer=scorer.name,
        role=scorer.role,
        contract=scorer.contract,
        overall=interval(OVERALL),
        sections=sections,
        subsets=subsets,
        scored=len(scored),
        ties=sum(len(set(scores)) < len(scores) for scores in scored),
        unscored=len(judgments) - len(scored),
    )


def _clusters(area: str, layout: Layout) -> int:
    if not area.startswith("subset:"):
        return layout.draws.counts.shape[1]
    inside = layout.groups == layout.names.index(area.removeprefix("subset:"))
    return len(np.unique(layout.draws.cluster[inside]))


def _minus(name: str, null: str, credits: Mapping[str, np.ndarray], layout: Layout) -> dict[str, Difference]:
    """A scorer minus a null by section and overall, over the cases that both scored."""
    gap = credits[name] - credits[null]
    figures = _figures(gap, layout)
    areas = [OVERALL, *(section for section in layout.sections if section in figures.observed)]
    return {area: Difference(figures.observed[area], *percentile_interval(figures.samples[area])) for area in areas}


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must not overlook: abstentions, ties, and for every model what the nulls say of its figures."""
    notes = []
    for row in rows:
        if row.unscored:
            share = row.scored / (row.scored + row.unscored)
            notes.append(
                f"{row.scorer} left {row.unscored} of {row.scored + row.unscored} cases unscored; its figures are over "
                f"the rest. Counted as wrong and as right the share would be {100 * share * row.overall.value:.1f} "
                f"and {100 * (1 - share + share * row.overall.value):.1f}."
            )
        if row.ties and row.role != "null":
            notes.append(f"{row.scorer} gave equal scores in {row.ties} cases; a tie is wrong.")
    return notes + [_against_nulls(row, area) for row in rows if row.role == "model" for area in _areas(row)]


def _areas(row: Row) -> list[str]:
    return [OVERALL, *row.sections] if row.minus_null else []


def _against_nulls(row: Row, area: str) -> str:
    """One plain sentence: which nulls a model beats, which it cannot be told from, and which beat it."""
    differences = {null: areas[area] for null, areas in row.minus_null.items()}

    def told(kind: str, nulls: Mapping[str, Difference]) -> str:
        figures = ", ".join(
            f"{null} ({100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}])" for null, d in nulls.items()
        )
        return f"{kind} {figures}" if nulls else ""

    parts = [
        told("really better than", {n: d for n, d in differences.items() if d.low > 0}),
        told("not to be told from", {n: d for n, d in differences.items() if not d.real}),
        told("really worse than", {n: d for n, d in differences.items() if d.high < 0}),
    ]
    return f"{area}: {row.scorer} is {'; '.join(part for part in parts if part)}."
