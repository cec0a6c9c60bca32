"""Paired comparison of two scorers on the same cases: differences, their significance, and gate rules."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..judges.types import Case, Judgment
from ..rm.data.pairs import is_number
from ..rm.errors import DataError, UsageError
from ..rm.io.checked_files import from_yaml
from ..rm.io.escaping import escape_markdown
from ..rm.types import prompt_text
from .evaluate import OVERALL, credits_of, lay_out
from .report import table
from .statistics.cluster_bootstrap import LEVEL, Discordant, formatted_p, items_to_detect, mcnemar
from .statistics.figures import SUBSET, Paired, pair_scorers, section_members
from .statistics.multiple_tests import holm, holm_levels
from .types import ALL, Difference, Suite

LEAST_SAMPLES = 40
"""Minimum number of bootstrap samples, at which the standard deviation in p has a relative error of 11 %."""
LABEL_LENGTH = 80
"""Maximum characters of a prompt in the list of flips."""


@dataclass(frozen=True)
class Change:
    """Change of a figure (overall, of a section or subset) from the first to the second scorer, with its p-value.

    Figures are in [0, 1], differences are second minus first, and p-values of subsets are adjusted. The intervals
    contain all differences that the test of p does not reject, including 0 unless p is below 5 %. All values are NaN if
    the scorers have no scored case in common in the section or subset, or in a subset that the section's mean needs.
    """

    first: float
    second: float
    difference: Difference
    p: float
    adjusted: Difference
    """Difference with its interval at the level of the test: 95 %, or higher if p is adjusted."""

    @property
    def significant(self) -> bool:
        """Whether p is below 5 %. The adjusted interval then excludes 0."""
        return self.p < 1 - LEVEL


def check_samples(samples: int) -> None:
    """Raise a `UsageError` if there are too few bootstrap samples to test significance."""
    if samples < LEAST_SAMPLES:
        raise UsageError(f"--bootstrap_samples must be at least {LEAST_SAMPLES} to estimate the spread, got {samples}")


@dataclass(frozen=True)
class Flip:
    """A case whose credit differs between the two scorers."""

    case: str
    subset: str
    before: float
    after: float
    row: int = 0
    """Row of the case, counted from 1: in the first run if runs are compared, else among the compared cases."""
    prompt: str = ""
    """Beginning of the case's prompt."""


@dataclass(frozen=True)
class ScorerComparison:
    """Differences (second minus first scorer) over the cases that both scored. All other cases are left out."""

    first: str
    second: str
    cases: int
    left_out: int
    areas: Mapping[str, Change]
    subsets: Mapping[str, Change]
    discordant: Discordant
    flips: tuple[Flip, ...]
    note: str = ""
    """Note on the part of the benchmark that was judged. Empty if it is complete."""
    only_first: int = 0
    """Number of cases that only the first run has. They are left out."""
    only_second: int = 0
    needed: int | None = None
    """Number of items at which the overall difference would be significant with power 80 %; None if it is 0."""
    unscored: Mapping[str, int] = field(default_factory=dict)
    """Number of cases of each area that only the first scorer scored. Subsets have the prefix `subset:`."""


def compare(
    suite: Suite,
    cases: Sequence[Case],
    first: tuple[str, Sequence[Judgment]],
    second: tuple[str, Sequence[Judgment]],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> ScorerComparison:
    """Compare two scorers on one set of bootstrap samples. p-values of subsets are adjusted by Holm's method.

    p is that of `difference_p`, but at least `least_p`, the smallest p of a sign test over the changed prompts.
    """
    before, after = (credits_of(suite, cases, judged) for _, judged in (first, second))
    both = ~(np.isnan(before[:, 0]) | np.isnan(after[:, 0]))
    if not both.any():
        raise DataError(f"{first[0]} and {second[0]} scored no case in common; compare runs of the same data")
    layout = lay_out(suite, cases, samples, seed)
    pair = pair_scorers(suite, (after, before), layout)
    areas, subsets = _changes(pair, layout.names)
    gap, items = pair.value(OVERALL), int(both.sum())
    square = max(items * pair.null_variance(OVERALL), gap**2)  # the variance that the difference has with these items
    return ScorerComparison(
        first=first[0],
        second=second[0],
        cases=items,
        left_out=int((~both).sum()),
        areas=areas,
        subsets=subsets,
        discordant=mcnemar(before[:, 0], after[:, 0]),
        flips=tuple(
            Flip(cases[i].id, cases[i].subset, before[i, 0], after[i, 0], int(i) + 1, _message_beginning(cases[i]))
            for i in np.flatnonzero(np.abs(after - before)[:, 0] > 0)
        ),
        needed=items_to_detect(gap, square) if abs(gap) > 1e-9 else None,
        unscored=_count_unscored(suite, cases, ~np.isnan(before[:, 0]) & np.isnan(after[:, 0])),
    )


def _count_unscored(suite: Suite, cases: Sequence[Case], lost: np.ndarray) -> dict[str, int]:
    """Return the number of unscored cases in each area. `lost` [M] marks the unscored cases."""
    of_case = [case.subset or ALL for case in cases]
    names = list(dict.fromkeys(of_case))
    members = {OVERALL: names, **section_members(suite, names), **{f"{SUBSET}{name}": [name] for name in names}}
    by_subset = Counter(subset for subset, is_lost in zip(of_case, lost, strict=True) if is_lost)
    return {area: sum(by_subset[name] for name in subsets) for area, subsets in members.items()}


def _changes(pair: Paired, names: Sequence[str]) -> tuple[dict[str, Change], dict[str, Change]]:
    """Return the changes of overall and sections, and those of subsets with adjusted p-values."""
    before, after = pair.second.observed, pair.first.observed
    p_values = {area: pair.p(area) for area in before}

    def difference(area: str, p: float, level: float = LEVEL) -> Difference:
        low, high = pair.interval(area, level=level)
        low, high = (low, high) if p < 1 - LEVEL else (min(low, 0.0), max(high, 0.0))  # 0 is not rejected
        return Difference(pair.value(area), low, high)

    def change(area: str, p: float, level: float = LEVEL) -> Change:
        alone = difference(area, p_values[area])
        return Change(before[area], after[area], alone, p, difference(area, p, level))

    areas = {area: change(area, p) for area, p in p_values.items() if not area.startswith("subset:")}
    p = np.array([p_values[f"subset:{name}"] for name in names])
    adjusted, levels, defined = p.copy(), np.full(len(p), LEVEL), ~np.isnan(p)
    adjusted[defined], levels[defined] = holm(p[defined]), holm_levels(p[defined])
    tested = zip(names, adjusted.tolist(), levels, strict=True)
    return areas, {name: change(f"subset:{name}", p, level) for name, p, level in tested}


def _message_beginning(case: Case) -> str:
    """Return the first characters of the last user message on one line."""
    users = [turn["content"] for turn in case.prompt if turn["role"] == "user"] or [prompt_text(case.prompt)]
    text = " ".join(users[-1].split())
    return text if len(text) <= LABEL_LENGTH else f"{text[:LABEL_LENGTH]}…"


def verdict(comparison: ScorerComparison) -> str:
    """Return a sentence on the overall difference, with the better scorer as its subject."""
    change, better, worse = comparison.areas[OVERALL], comparison.second, comparison.first
    gap = change.difference
    if np.isnan(gap.value):
        return (
            f"{better} and {worse} cannot be compared overall, because no case of a subset that "
            "the overall figure needs was scored by both."
        )
    if gap.value < 0:
        better, worse, gap = worse, better, Difference(-gap.value, -gap.high, -gap.low)
    difference_text = (
        f"{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}] points, p {formatted_p(change.p)}"
    )
    if not change.significant:
        needed = f" Detecting such a difference takes about {comparison.needed or 0:,} items in these proportions."
        verdict_text = f"{better} does not differ significantly from {worse} ({difference_text})."
        return verdict_text + (needed if comparison.needed else "")
    return f"{better} is significantly better than {worse} ({difference_text})."


def cases_text(comparison: ScorerComparison) -> str:
    """Return a sentence on the numbers of compared and of left-out cases, with the reasons for leaving cases out."""
    unscored = comparison.unscored.get(OVERALL, 0)
    left_out = {
        f"without a score by {comparison.second}": unscored,
        f"without a score by {comparison.first}": comparison.left_out - unscored,
        "only in the first run": comparison.only_first,
        "only in the second run": comparison.only_second,
    }
    parts = [f"{count:,} {why}" for why, count in left_out.items() if count]
    return f"{comparison.cases:,} cases{'; left out of all figures: ' if parts else ''}{', '.join(parts)}."


def items_text(comparison: ScorerComparison) -> str:
    """Return sentences on the number of changed items, McNemar's p, and why it differs from the verdict's p."""
    exact = comparison.discordant
    return (
        f"Item by item: {exact.only_first:,} with more credit for {comparison.first}, {exact.only_second:,} for "
        f"{comparison.second}; McNemar's exact test of these counts has p {formatted_p(exact.p)}. That test treats all "
        "items as independent and of equal weight. The verdict instead weighs sections as the benchmark does, and "
        "resamples whole prompts."
    )


def markdown(comparison: ScorerComparison, flips: int = 20) -> str:
    """Return the comparison as Markdown, with the first `flips` changed cases."""

    def lines(changes: Mapping[str, Change]) -> str:
        rows = [[name, *change_texts(change)] for name, change in changes.items()]
        return table(["", comparison.first, comparison.second, "difference", "p"], rows)

    before, after = escape_markdown(comparison.first), escape_markdown(comparison.second)
    up = sum(flip.after > flip.before for flip in comparison.flips)
    return "\n".join(
        [
            f"# {after} against {before}",
            "",
            *([f"**{escape_markdown(comparison.note)}**", ""] if comparison.note else []),
            escape_markdown(f"{verdict(comparison)} {cases_text(comparison)}"),
            "",
            escape_markdown(items_text(comparison)),
            "",
            lines(comparison.areas),
            "",
            "## Subsets (p adjusted by Holm's method, intervals at the levels of the tests)",
            "",
            lines(comparison.subsets),
            "",
            f"## Flips: {up} gained, {len(comparison.flips) - up} lost",
            "",
            *map(_flip_line, comparison.flips[:flips]),
            *([f"- … and {len(comparison.flips) - flips} more"] if len(comparison.flips) > flips else []),
            "",
        ]
    )


def _flip_line(flip: Flip) -> str:
    direction = "gained" if flip.after > flip.before else "lost"
    return f"- {direction} row {flip.row} `{escape_markdown(flip.case)}`: {escape_markdown(flip.prompt)}"


def change_texts(change: Change) -> tuple[str, str, str, str]:
    """Return both figures in per cent, the difference with its interval, and p. Dashes if both scored no common case.

    >>> change_texts(Change(0.5, 0.25, Difference(-0.25, -0.5, 0.1), 0.31, Difference(-0.25, -0.5, 0.1)))
    ('50.0', '25.0', '-25.0 [-50.0, +10.0]', '0.310')
    """
    if np.isnan(change.difference.value):
        return "–", "–", "–", "–"
    value, low, high = (f"{100 * number:+.1f}" for number in change.adjusted)
    p = formatted_p(change.p).strip("= ")
    return f"{100 * change.first:.1f}", f"{100 * change.second:.1f}", f"{value} [{low}, {high}]", p


RULE = "write it as {area: overall, max_drop: 0.01, even_if_noise: false, max_unscored: 0}"
OPTIONAL = {"even_if_noise", "max_unscored"}


def read_gate(path: str) -> list[dict[str, Any]]:
    """Load rules of the form `- {area: overall, max_drop: 0.01}`. `area` is `overall`, a section or a subset."""
    try:
        rules = from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as rules ({error})") from error
    if not isinstance(rules, list):
        raise UsageError(f"{path}: rules must be a list, got {type(rules).__name__}; {RULE}")
    for number, rule in enumerate(rules, start=1):
        if fault := _rule_error(rule):
            raise UsageError(f"{path}, rule {number}: {fault}; {RULE}")
    return rules


def _rule_error(rule: Any) -> str:
    """Return what is wrong with a rule. Empty for a valid rule."""
    if not isinstance(rule, dict) or not {"area", "max_drop"} <= {*rule} <= {"area", "max_drop", *OPTIONAL}:
        return f"a rule needs 'area' and 'max_drop' (optional: 'even_if_noise', 'max_unscored'), got {str(rule)[:80]}"
    if not isinstance(rule["area"], str):
        return f"area must be overall or the name of a section or subset, got {rule['area']!r:.40}"
    if not is_number(rule["max_drop"]) or not 0 <= rule["max_drop"] <= 1:
        return f"max_drop must be a number from 0 to 1, where 0.01 is one point, got {rule['max_drop']!r:.40}"
    if not isinstance(rule.get("even_if_noise", False), bool):
        return f"even_if_noise must be true or false, got {rule['even_if_noise']!r:.40}"
    most = rule.get("max_unscored", 0)
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        return f"max_unscored must be a number of cases, got {most!r:.40}"
    return ""


def broken_rules(gate: Sequence[Mapping[str, Any]], comparison: ScorerComparison) -> list[str]:
    """Return a sentence for each rule that a comparison breaks."""
    return [sentence for rule in gate if (sentence := _violation(rule, comparison))]


def check_areas(gate: Sequence[Mapping[str, Any]], comparison: ScorerComparison) -> None:
    """Raise a `UsageError` if a rule names an area that the comparison does not have."""
    changes = _changes_by_name(comparison)
    if absent := [rule["area"] for rule in gate if rule["area"] not in changes]:
        raise UsageError(f"no area '{absent[0]}' in this comparison; name one of {', '.join(changes)}")


def _changes_by_name(comparison: ScorerComparison) -> dict[str, Change]:
    """Return the change of every area by its name. A subset takes precedence over a section of the same name."""
    return {**comparison.areas, **comparison.subsets, OVERALL: comparison.areas[OVERALL]}


def _violation(rule: Mapping[str, Any], comparison: ScorerComparison) -> str | None:
    """Return how a comparison breaks a rule: unscored cases, or a drop beyond `max_drop`. None if it does not."""
    area, change = rule["area"], _changes_by_name(comparison)[rule["area"]]
    is_subset = area in comparison.subsets and area != OVERALL
    unscored = comparison.unscored[f"subset:{area}" if is_subset else area]
    drop = -change.difference.value
    if math.isnan(drop):
        return f"{area} has no case that both scorers scored, so its rule cannot be checked"
    if unscored > rule.get("max_unscored", 0):
        return (
            f"{area}: {comparison.second} abstained from {unscored} of the cases that {comparison.first} "
            f"scored, so that the rule cannot be checked; find out why, or accept it with max_unscored: {unscored}"
        )
    if drop <= rule["max_drop"] or not (change.significant or rule.get("even_if_noise")):
        return None
    return f"{area} fell by {100 * drop:.1f} points, more than {100 * rule['max_drop']:.1f}"
