"""Evaluation of scorers on a suite: credits, bootstrap intervals, differences to baselines, and the report."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..judges.audit.measures import asked_in_both_orders
from ..judges.run import run_judges
from ..judges.types import Case, Judgment, Reason
from ..rm.errors import DataError, UsageError
from ..rm.types import OVERALL
from .statistics.cluster_bootstrap import LEVEL, cell_sums, cluster_draws
from .statistics.figures import INTERVALS, Figures, IntervalMethod, Layout, Paired, figures_of, is_section, pair_scorers
from .statistics.style import StyleFacts, pair_marks, style_facts
from .types import ALL, RANDOM, Difference, Interval, Report, Row, Scorer, Suite, WeighsItems

RANDOM_ALIKE = "random with the same ties"


class Evaluation(NamedTuple):
    """The report, all cases, and the judgments of every scorer by its name."""

    report: Report
    cases: Sequence[Case]
    judgments: Mapping[str, Sequence[Judgment]]
    margins: Mapping[str, Sequence[float | None]]
    """Scorer -> the suite's margin of each case. None for an abstention."""


def evaluate(
    suite: Suite,
    cases: Sequence[Case],
    scorers: Sequence[Scorer],
    *,
    notes: Sequence[str] = (),
    samples: int = 1000,
    seed: int = 0,
    interval: str = "weighted",
    progress: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Judge every case with every scorer and aggregate the credits as the suite's authors do.

    Intervals are based on `samples` bootstrap samples of whole prompts, with the method `interval` of
    `statistics.INTERVALS`. All scorers share the samples, so that differences to a baseline are paired. The report is
    deterministic given cases, scorers and seed.
    """
    _check_names(suite, cases, scorers)
    layout = lay_out(suite, cases, samples, seed)
    judgments = run_judges(scorers, cases, progress)
    credits = {name: credits_of(suite, cases, judged) for name, judged in judgments.items()}
    figures = {name: figures_of(suite, values, layout) for name, values in credits.items()}
    rows = _rows(suite, cases, scorers, judgments, figures, interval)
    baselines = [row.scorer for row in rows if row.role == "baseline"]

    def minus_baselines(name: str) -> dict[str, dict[str, Difference]]:
        pairs = {
            other: pair_scorers(suite, (credits[name], credits[other]), layout, [figures[name], figures[other]])
            for other in baselines
        }
        if baselines and asked_in_both_orders(judgments[name]):
            chance = rotated_credits(suite, cases, judgments[name])
            pairs[RANDOM_ALIKE] = pair_scorers(suite, (credits[name], chance), layout)
        return {other: _differences(pair, INTERVALS[interval]) for other, pair in pairs.items()}

    rows = [row if row.role == "baseline" else replace(row, minus_baseline=minus_baselines(row.scorer)) for row in rows]
    models = [row.scorer for row in rows if row.role == "model"]
    remarks = [sentence for name in models for sentence in suite.remarks(name, cases, judgments[name])]
    order = {"model": 0, "reference": 1, "baseline": 2}
    report = Report(
        suite=suite.name,
        version=suite.version,
        cases=len(cases),
        clusters=layout.draws.clusters,
        sizes=dict(Counter(case.subset or ALL for case in cases)),
        rows=tuple(sorted(rows, key=lambda row: order[row.role])),
        notes=tuple(notes),
        findings=(*_bounds(suite, credits, layout), *_partial(judgments), *_findings(rows), *remarks),
        samples=samples,
        seed=seed,
        interval=interval,
        compares=suite.compares,
    )
    margins = {name: margins_of(suite, cases, judged) for name, judged in judgments.items()}
    return Evaluation(report, cases, judgments, margins)


def _rows(
    suite: Suite,
    cases: Sequence[Case],
    scorers: Sequence[Scorer],
    judgments: Mapping[str, Sequence[Judgment]],
    figures: Mapping[str, Figures],
    interval: str,
) -> list[Row]:
    """Return every scorer's row without differences. Ties and style are left out if the suite compares no responses."""
    marks = pair_marks(cases)
    rows = []
    for scorer in scorers:
        judged = judgments[scorer.name]
        rows.append(_row(scorer, judged, figures[scorer.name], style_facts(cases, judged, marks), interval))
    return rows if suite.compares else [replace(row, ties=0, style={}) for row in rows]


def margins_of(suite: Suite, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[float | None]:
    """Return the margin of every judgment. None for an abstention."""
    pairs = zip(cases, judgments, strict=True)
    return [suite.margin(case, judged.scores) if judged.scores else None for case, judged in pairs]


def _check_names(suite: Suite, cases: Sequence[Case], scorers: Sequence[Scorer]) -> None:
    if not cases:
        raise DataError(f"{suite.name}: no case to judge; check the data")
    if repeated := [name for name, count in Counter(case.id for case in cases).items() if count > 1]:
        raise DataError(f"{suite.name}: case id '{repeated[0]}' occurs twice; give each case a unique id")
    if repeated := [name for name, count in Counter(scorer.name for scorer in scorers).items() if count > 1]:
        raise UsageError(f"two scorers are called '{repeated[0]}'; give each a unique name")


def lay_out(suite: Suite, cases: Sequence[Case], samples: int, seed: int) -> Layout:
    """Return the layout of the cases: sorted subsets, bootstrap samples of whole clusters, and weights."""
    names, groups = np.unique([case.subset or ALL for case in cases], return_inverse=True)
    clusters = np.array([case.cluster or case.id for case in cases], object)  # one of strings is as wide as the longest
    weights = np.array([suite.weights(case) for case in cases], float) if isinstance(suite, WeighsItems) else None
    return Layout(names.tolist(), groups, cluster_draws(clusters, samples, seed), weights)


def credits_of(suite: Suite, cases: Sequence[Case], judgments: Sequence[Judgment]) -> np.ndarray:
    """Return the credits [M, K] of M judgments in K measures. NaN for an abstention."""
    none = [np.nan] * len(suite.measures)
    pairs = zip(cases, judgments, strict=True)
    return np.array([none if judged.abstained else suite.credit(case, judged.scores) for case, judged in pairs], float)


def _row(scorer: Scorer, judgments: Sequence[Judgment], figures: Figures, style: StyleFacts, method: str) -> Row:
    def interval(area: str) -> Interval:
        return Interval(figures.observed[area], *INTERVALS[method].share(figures, area))

    subsets = {name: interval(f"subset:{name}") for name in figures.layout.names}
    sections = {name: interval(name) for name in _sections(figures)}
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
        style=style._asdict(),
        truncated=sum(judgment.truncated for judgment in judgments),
        omitted=sum(bool(judgment.omitted) for judgment in judgments),
    )


def _sections(figures: Figures) -> list[str]:
    return [area for area in figures.observed if is_section(area)]


def rotated_credits(suite: Suite, cases: Sequence[Case], judgments: Sequence[Judgment]) -> np.ndarray:
    """Return the mean credits [M, K] over all rotations of each case's scores among its responses.

    This is the chance level with the scorer's own rates of ties and abstentions: if its scores are unrelated to the
    responses, all rotations are equally probable. Verdicts that differ between the two orders count as a tie, which is
    wrong. So a judge that guesses at random in both orders is right on a quarter of the pairs.
    """

    def rotated(judgment: Judgment, shift: int) -> Judgment:
        shift = shift % max(1, len(judgment.scores))
        return replace(judgment, scores=judgment.scores[shift:] + judgment.scores[:shift])

    credits = np.full((len(cases), len(suite.measures)), np.nan)
    for index, (case, judgment) in enumerate(zip(cases, judgments, strict=True)):
        rotations = [rotated(judgment, shift) for shift in range(len(case.answers))]
        credits[index] = credits_of(suite, [case] * len(rotations), rotations).mean(0)
    return credits


def _differences(pair: Paired, method: IntervalMethod) -> dict[str, Difference]:
    """Return first minus second, overall and by section. Intervals contain 0 if a sign test cannot reject 0."""

    def difference(area: str) -> Difference:
        low, high = pair.interval(area, method)
        if pair.least_p(area) >= 1 - LEVEL:
            low, high = min(low, 0.0), max(high, 0.0)
        return Difference(pair.value(area), low, high)

    return {area: difference(area) for area in [OVERALL, *_sections(pair.first)]}


def _bounds(suite: Suite, credits: Mapping[str, np.ndarray], layout: Layout) -> list[str]:
    """Return a sentence for every scorer with abstentions: how many, and bounds of its overall figure."""
    notes = []
    for name, credit in credits.items():
        absent = np.isnan(credit[:, 0])
        if absent.any():
            worst, best = (filled_overall(suite, credit, absent, value, layout) for value in (0.0, 1.0))
            notes.append(
                f"{name} left {absent.sum()} of {len(absent)} cases unscored; its figures are over the rest. Counted "
                f"as wrong and as right, overall would be {100 * worst:.1f} and {100 * best:.1f}."
            )
    return notes


def _partial(judgments: Mapping[str, Sequence[Judgment]]) -> list[str]:
    """Return sentences on the cases whose text a scorer truncated or omitted, and on those unscored for this reason."""
    notes = []
    for name, judged in judgments.items():
        omitted = [judgment.omitted for judgment in judged if judgment.omitted]
        if truncated := sum(judgment.truncated for judgment in judged):
            notes.append(f"{name}: {truncated} of {len(judged)} cases exceed the maximum length and were truncated.")
        if omitted:
            notes.append(
                f"{name}: the chat template leaves out text of {len(omitted)} of {len(judged)} cases, such as "
                f"{omitted[0][:60]!r}."
            )
        if alike := sum(judgment.reason == Reason.ALIKE for judgment in judged):
            notes.append(f"{name}: {alike} cases are unscored: right and wrong responses were identical to the model.")
    return notes


def filled_overall(suite: Suite, credit: np.ndarray, absent: np.ndarray, value: float, layout: Layout) -> float:
    """Return the overall figure with `value` for every measure of the absent cases. `absent` [M] marks these cases."""
    filled = np.where(absent[:, None], value, credit)
    none = layout.draws._replace(counts=layout.draws.counts[:0])
    observed, _ = cell_sums(filled, layout.groups, layout.names, suite.measures, none, layout.weights)
    return float(suite.aggregate(observed)[OVERALL])


def _findings(rows: Sequence[Row]) -> list[str]:
    """Return sentences on ties, and on the differences of models to baselines."""
    tied = [row for row in rows if row.ties and row.role != "baseline"]
    ties = [f"{row.scorer} gave equal scores in {row.ties} cases; a tie is wrong." for row in tied]
    models = [row for row in rows if row.role == "model" and row.minus_baseline]
    areas = [(row, area) for row in models for area in [OVERALL, *row.sections]]
    return [*ties, *(sentence for row, area in areas if (sentence := _baseline_sentence(row, area)))]


def _baseline_sentence(row: Row, area: str) -> str:
    """Return a sentence on the baselines that a model beats, ties with (no significant difference), or loses to."""
    areas_by_baseline = {baseline: areas[area] for baseline, areas in row.minus_baseline.items()}
    if RANDOM_ALIKE in areas_by_baseline:  # plain random guesses have no ties, so they are too strong a baseline here
        areas_by_baseline.pop(RANDOM, None)
    differences = {name: gap for name, gap in areas_by_baseline.items() if gap.value == gap.value}

    def listed(kind: str, baselines: Mapping[str, Difference]) -> str:
        texts = [f"{n} ({100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}])" for n, d in baselines.items()]
        return f"{kind} {', '.join(texts)}" if texts else ""

    parts = [
        listed("significantly better than", {n: d for n, d in differences.items() if d.low > 0}),
        listed("not significantly different from", {n: d for n, d in differences.items() if not d.real}),
        listed("significantly worse than", {n: d for n, d in differences.items() if d.high < 0}),
    ]
    differences_text = "; ".join(part for part in parts if part)
    return f"{area}: {row.scorer} is {differences_text}." if differences_text else ""
