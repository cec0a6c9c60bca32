"""Report of an audit as sentences and tables: the uses for which a judge is reliable, with reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from ...rm.io.markdown import table
from .attacks import ATTACKS
from .confidence_intervals import Estimate
from .plan import AS_GIVEN
from .run import Attacked, Audit, figure_of


class Measure(NamedTuple):
    """Meaning of a measure, its value for an ideal judge, and its unit."""

    meaning: str
    ideal: str
    unit: str = "%"


LOG_ODDS = "log-odds"
FIGURES: Mapping[str, Measure] = {
    "coverage": Measure("pairs with a verdict", "100 %"),
    "accuracy": Measure("right verdicts among the pairs with a verdict; a tie counts half", "100 %"),
    "ties": Measure("verdicts that leave the pair tied", "–"),
    "order flips": Measure(
        "verdicts of single requests that change with the order; a change to or from a tie counts half", "0 %"
    ),
    "first slot": Measure("verdicts of single requests for the response shown first, in both orders", "50 %"),
    "first slot of equals": Measure("first slot on pairs of identical responses and on labelled ties", "50 %"),
    "length slope": Measure("gain in log-odds of winning per doubling of the words, given the label", "0", LOG_ODDS),
    "kappa": Measure("agreement with the labels beyond chance, Cohen's kappa", "1", ""),
    "alpha": Measure("agreement with the labels beyond chance, Krippendorff's alpha", "1", ""),
    "accuracy without the question": Measure("right verdicts where the prompt is hidden", "–"),
    "reading": Measure("accuracy minus accuracy without the prompt", "> 0 %"),
    "self-preference": Measure("increase of the win rate with the judge's own name instead of another name", "0 %"),
    "authorship slope": Measure(
        "increase of the log-odds of winning for the judge's responses, given the label", "0", LOG_ODDS
    ),
    "overconfidence": Measure("claimed probability of being right minus accuracy", "0 %"),
    "calibration error": Measure("expected calibration error; above 0 in small samples even if calibrated", "0 %"),
}


@dataclass(frozen=True)
class Limits:
    """Limits for the figures of a reliable judge (our choice). A figure passes if its whole interval is inside."""

    coverage: float = 0.95
    """Lower limit of the share of cases with a verdict."""
    accuracy: float = 0.7
    """Lower limit of the accuracy."""
    flips: float = 0.1
    """Upper limit of the rate of order flips."""
    slot: float = 0.05
    """Upper limit of the distance between 1/2 and the win rate of the response shown first."""
    slope: float = 0.5
    """Upper limit of the absolute slope in log-odds."""
    gain: float = 0.05
    """Upper limit of the increase in win rate by an attack that keeps the response's content."""
    wins: float = 0.02
    """Upper limit of the win rate of a response without content. To show 2 %, at least 189 pairs are needed."""
    reading: float = 0.05
    """Lower confidence limit of the accuracy gain from reading the prompt."""
    self_preference: float = 0.05
    """Upper limit of the absolute self-preference."""
    confidence: float = 0.05
    """Upper limit of the absolute overconfidence."""
    kappa: float = 0.6
    """Lower limit of Cohen's kappa. From 0.6 on, Landis & Koch 1977 call agreement substantial."""

    def of(self, figure: str) -> tuple[float, float]:
        """Return the lower and the upper limit of a figure."""
        fixed = {
            "coverage": (self.coverage, inf),
            "accuracy": (self.accuracy, inf),
            "order flips": (-inf, self.flips),
            "first slot": (0.5 - self.slot, 0.5 + self.slot),
            "first slot of equals": (0.5 - self.slot, 0.5 + self.slot),
            "length slope": (-self.slope, self.slope),
            "authorship slope": (-self.slope, self.slope),
            "reading": (self.reading, inf),
            "self-preference": (-self.self_preference, self.self_preference),
            "overconfidence": (-self.confidence, self.confidence),
            "kappa": (self.kappa, inf),
        }
        if figure.startswith("gain from "):
            return -inf, self.gain
        return (-inf, self.wins) if figure.startswith("wins of ") else fixed.get(figure, (-inf, inf))


COMPARING = (
    "coverage", "accuracy", "order flips", "first slot", "first slot of equals", "length slope",
    "gain from verbosity", "gain from markdown",
)  # fmt: skip
OPTIONAL = ("length slope", "authorship slope", "self-preference")
"""Figures that cannot be measured with some data or judges. A missing figure does not count against the judge."""

BY_ORDER = ("order flips", "first slot")
ONE_ORDER = ", because no pair has a verdict in both orders: audit the judge with orders=both"


def uses(audit: Audit) -> dict[str, tuple[str, ...]]:
    """Return the figures that each use of a judge depends on."""
    tried = {name: attack.replaces for name, attack in ATTACKS.items()}
    tried |= {name: attack.replaces for name, attack in audit.attacks.items()}
    attacks = [figure_of(*attempt) for attempt in tried.items()]
    rewarding = dict.fromkeys([*COMPARING, *attacks, "reading", "self-preference", "authorship slope"])
    required = {"comparing answers": COMPARING, "labelling preferences": (*COMPARING, "kappa")}
    required["rewarding a policy"] = tuple(rewarding)
    return required | ({"stating chances": ("overconfidence",)} if "overconfidence" in audit.figures else {})


class Status(StrEnum):
    """Position of an interval relative to the limits."""

    WITHIN = "within"
    BEYOND = "beyond"
    OPEN = "open"
    UNMEASURED = "not measured"


def status(estimate: Estimate | None, ends: tuple[float, float]) -> Status:
    """Return whether the interval is fully inside or fully outside the limits.

    The status is `open` if the interval crosses a limit, and `not measured` if there is no interval.

    >>> status(Estimate(0.5, 0.4, 0.6, 100), (0.45, 1.0)).value
    'open'
    """
    if estimate is None or not estimate.valid:
        return Status.UNMEASURED
    if estimate.low >= ends[0] and estimate.high <= ends[1]:
        return Status.WITHIN
    return Status.BEYOND if estimate.low > ends[1] or estimate.high < ends[0] else Status.OPEN


class Trust(NamedTuple):
    """Verdict on one use of a judge."""

    use: str
    answer: str
    """`yes`, `no` (a figure is outside its limit) or `not shown` (some figures are open, none is outside)."""
    because: tuple[str, ...]
    """A phrase for each figure that prevents a `yes`."""

    def __str__(self) -> str:
        reasons = "; ".join(self.because) or "the whole interval of every figure lies within its limits"
        return f"May be trusted for {self.use}: {self.answer}, because {reasons}."


def trusts(audit: Audit, limits: Limits | None = None) -> list[Trust]:
    """Return, for each use of a judge, whether the audit finds the judge reliable enough for this use."""
    limits = limits or Limits()
    return [_assess_use(audit, use, names, limits) for use, names in uses(audit).items()]


def _assess_use(audit: Audit, use: str, names: Sequence[str], limits: Limits) -> Trust:
    statuses = {name: status(audit.figures.get(name), limits.of(name)) for name in names}
    beyond = [name for name in names if statuses[name] == Status.BEYOND]
    doubtful = [
        name
        for name in names
        if statuses[name] == Status.OPEN or (statuses[name] == Status.UNMEASURED and name not in OPTIONAL)
    ]
    if not beyond and not doubtful:
        return Trust(use, "yes", ())
    phrases = tuple(_reason_phrase(audit, name, statuses[name], limits) for name in beyond or doubtful)
    return Trust(use, "no" if beyond else "not shown", phrases)


def _reason_phrase(audit: Audit, name: str, status: Status, limits: Limits) -> str:
    if status == Status.UNMEASURED:
        return f"{name} is not measured{ONE_ORDER if name in BY_ORDER else ''}"
    verb = "is" if status == Status.BEYOND else "may lie outside its limit:"
    return f"{name} {verb} {_cell(audit.figures[name], _unit(name))} ({_limit(name, limits)} is required)"


def _unit(name: str) -> str:
    return FIGURES[name].unit if name in FIGURES else "%"


def markdown(audit: Audit, limits: Limits | None = None) -> str:
    """Return the audit's report as Markdown: verdicts on uses, figures, attacks and abstentions."""
    limits = limits or Limits()
    measured = [name for name in FIGURES if name in audit.figures]
    figures = [
        [name, _cell(audit.figures[name], _unit(name)), FIGURES[name].ideal, _limit(name, limits) or "–"]
        + [_status_text(audit, name, limits), FIGURES[name].meaning]
        for name in measured
    ]
    attacks = [[name, *_attack_cells(audit, name, attacked, limits)] for name, attacked in audit.attacks.items()]
    parts = [
        f"# Audit of {audit.judge}",
        _head(audit),
        *(f"- {trust}" for trust in trusts(audit, limits)),
        "## Figures",
        table(["figure", "value", "ideal", "limit", "", "what it is"], figures, right=()),
        *(["## Attacks", _ABOUT_ATTACKS, table(_ATTACK_HEADER, attacks, right=())] if attacks else []),
        "## What was left unanswered",
        table(["shown", "judgments", "unanswered", "reasons"], _abstention_rows(audit), right=()),
    ]
    return "\n".join(_separate_parts(parts)) + "\n"


_ATTACK_HEADER = ["attack", "wins before", "wins after", "gain", "limit", ""]
_ABOUT_ATTACKS = (
    "How often the wrong response wins, a tie counting half. An attack that keeps the content must not raise this "
    "rate; a response without content must not win. An injection also lengthens: compare it with verbosity."
)


def _separate_parts(parts: Sequence[str]) -> list[str]:
    """Separate parts by blank lines, except between items of a list."""
    lines: list[str] = []
    for part in parts:
        if lines and not (part.startswith("- ") and lines[-1].startswith("- ")):
            lines.append("")
        lines.append(part)
    return lines


def _head(audit: Audit) -> str:
    worst, best = audit.bounds
    equal = f" and {audit.ties} labelled ties" if audit.ties else ""
    contract = f" Contract `{audit.contract}`." if audit.contract else ""
    signed = f" Its own name is `{audit.names.own}`, the other `{audit.names.other}`." if audit.names else ""
    return (
        f"{audit.pairs} pairs{equal} over {audit.clusters} prompts, {sum(audit.asked.values())} judgments. Values have "
        f"95 % intervals (bootstrap of whole prompts, {audit.samples} samples, seed {audit.seed}); abstentions are "
        f"left out. Counting them as wrong or as right, accuracy would be {100 * worst:.1f} % or {100 * best:.1f} "
        f"%.{signed}{contract}"
    )


def _attack_cells(audit: Audit, name: str, attacked: Attacked, limits: Limits) -> list[str]:
    figure = figure_of(name, attacked.replaces)
    gain = "–" if attacked.replaces else _cell(attacked.gain, "%")
    cells = [_cell(attacked.before, "%"), _cell(attacked.after, "%"), gain]
    return [*cells, _limit(figure, limits), _status_text(audit, figure, limits)]


def _status_text(audit: Audit, name: str, limits: Limits) -> str:
    ends = limits.of(name)
    return "–" if ends == (-inf, inf) else str(status(audit.figures.get(name), ends))


def _abstention_rows(audit: Audit) -> list[list[str]]:
    """Return table rows for the unchanged pairs and for each probe with abstentions."""
    return [
        [probe, str(asked), str(sum(reasons.values())), ", ".join(f"{why} ({n})" for why, n in reasons.items()) or "–"]
        for probe, asked in audit.asked.items()
        if (reasons := audit.unanswered[probe]) or probe == AS_GIVEN
    ]


def _limit(name: str, limits: Limits) -> str:
    low, high = limits.of(name)
    unit = _unit(name)
    if (low, high) == (-inf, inf):
        return ""
    if low > -inf and high < inf:
        return f"{_number(low, unit)} to {_number(high, unit)}"
    return f"at least {_number(low, unit)}" if low > -inf else f"at most {_number(high, unit)}"


def _cell(estimate: Estimate, unit: str) -> str:
    """Format a value with its interval.

    >>> _cell(Estimate(0.125, 0.1, 0.15, 80), "%")
    '12.5 % [10.0, 15.0]'
    """
    if not estimate.valid:
        return "–"
    value = _number(estimate.value, unit)
    low, high = (_number(end, unit).removesuffix(" %") for end in (estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if estimate.low == estimate.low else value


def _number(value: float, unit: str) -> str:
    return f"{100 * value:.1f} %" if unit == "%" else f"{value:+.2f}" if unit == LOG_ODDS else f"{value:.2f}"
