"""Accuracy by section and subset: numbers with heat shading, and dots with intervals on one axis from 0 to 100."""

from collections.abc import Iterable, Mapping
from html import escape
from itertools import cycle
from string import ascii_uppercase
from typing import NamedTuple

from .....benchmarks.types import ALL, Difference, Interval, Report, Row
from .....rm.types import OVERALL
from ....runs.finished import sections_of
from ....runs.summaries import areas
from ...html import HIDDEN, PALETTE, text_html, with_csv
from ..metrics import cases_query, header_row, link_html, metric_html, row_html, section_filter, table_html

MOST_SUBSETS, MOST_LANES = 200, 6
COLOURS = [colour for colour in PALETTE if colour != "#999999"]


class Area(NamedTuple):
    """A part of a benchmark (overall, a section or a subset), with its number of cases."""

    kind: str
    name: str
    cases: int

    def filters(self) -> dict[str, str]:
        """Return the filter of the judgments tab that selects the cases of the area."""
        return {"subset": self.name} if self.kind == "subset" else section_filter(self.name)

    def interval(self, row: Row) -> Interval:
        """Return a scorer's accuracy in this area."""
        return row.subsets[self.name] if self.kind == "subset" else areas(row)[self.name]


# ---- grouping ----


def list_areas(report: Report, most: int = MOST_SUBSETS) -> tuple[list[Area], int]:
    """Return the areas (overall, then every section followed by its subsets), and the number of omitted subsets.

    Only the `most` largest subsets are listed. A subset in several sections is listed in the section with
    the fewest subsets. A subset that is identical to a section of the same name is omitted.
    """
    largest = sorted(report.sizes, key=lambda name: (-report.sizes[name], name))[:most]
    subsets = [name for name in sorted(largest) if report.sizes.keys() != {ALL}]
    sections = report.rows[0].sections
    members = {name: below for name, below in sections_of(report.suite, subsets).items() if name in sections}
    homes = {
        name: min(
            (section for section in members if name in members[section]), key=lambda s: len(members[s]), default=""
        )
        for name in subsets
    }
    listed = [Area("overall", OVERALL, report.cases), *_section_subsets(report, homes, "")]
    for section in sorted(sections, key=lambda section: section in homes.values()):
        below = _section_subsets(report, homes, section)
        size = sum(report.sizes[name] for name in members.get(section, ()))
        listed += [Area("section", section, size), *(area for area in below if area.name != section or len(below) > 1)]
    return listed, len(report.sizes) - len(largest)


def _section_subsets(report: Report, homes: Mapping[str, str], section: str) -> list[Area]:
    return [Area("subset", name, report.sizes[name]) for name, home in homes.items() if home == section]


# ---- numbers ----


def scores_html(report: Report, run: str) -> str:
    """Return a sentence on the cases, a table with a row for every scorer (overall, sections, counts), and notes."""
    sections = [*report.rows[0].sections]
    heads = [
        "scorer",
        metric_html("role"),
        metric_html("overall", "overall, %"),
        *(metric_html("section", name) for name in sections),
    ]
    heads += [metric_html("scored"), metric_html("ties"), metric_html("unscored", "abstained")]
    rows = "".join(_scorer_html(row, run) for row in report.rows)
    notes = "".join(f"<li>{text_html(note)}</li>" for note in (*report.notes, *report.findings))
    details = f'<details style="margin: 8px 0"><summary>Notes and findings</summary><ul>{notes}</ul></details>'
    table = f'<table class="heat"><thead>{header_row(heads, words={0, 1})}</thead><tbody>{rows}</tbody></table>'
    return (
        f'<h2 class="part">{text_html(report.suite)}</h2><p>'
        f"Version {text_html(str(report.version))}: {report.cases:,} cases over {report.clusters:,} prompts; 95 % "
        f"intervals from {report.samples:,} bootstrap samples of whole prompts. Click a number to open its cases.</p>"
        f"{with_csv(table)}{details if notes else ''}"
    )


def _scorer_html(row: Row, run: str) -> str:
    shares = (
        share_html(interval.value, cases_query(run, row.scorer, **section_filter(name)), interval_text(interval))
        for name, interval in areas(row).items()
    )
    counts = {"all": row.scored, "tie": row.ties, "abstained": row.unscored}
    numbers = (link_html(cases_query(run, row.scorer, outcome=name), f"{count:,}") for name, count in counts.items())
    return row_html([text_html(row.scorer), text_html(row.role), *shares, *numbers], words={1})


def share_html(share: float, address: str = "", small: str = "") -> str:
    """Return a table cell with a share in per cent, shaded by the distance from one half."""
    if share != share:
        return "<td>–</td>"
    text = f"{100 * share:.1f}"
    content = f"{text}<small>{small}</small>" if small else text
    colour, strength = PALETTE[0 if share >= 0.5 else 1], round(140 * abs(share - 0.5))
    style = f"background:color-mix(in srgb, {colour} {strength}%, transparent)"
    return f'<td style="{style}">{link_html(address, content) if address else content}</td>'


def interval_text(interval: Interval) -> str:
    """Return the bounds of an interval in per cent as text. Empty for NaN."""
    return "" if interval.low != interval.low else f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def gaps_html(report: Report, run: str, scorer: str) -> str:
    """Return a table of differences between a scorer and the best baseline of each section, in increasing order.

    Empty if the scorer is a baseline or the run has no baselines.
    """
    row = next(row for row in report.rows if row.scorer == scorer)
    baselines = {other.scorer: areas(other) for other in report.rows if other.role == "baseline"}
    gaps = []
    for area in areas(row):
        shares = {name: row_areas[area].value for name, row_areas in baselines.items()}
        best = max(shares, key=lambda name: (shares[name] == shares[name], shares[name]), default="")
        gap = row.minus_baseline.get(best, {}).get(area)
        if gap is not None and gap.value == gap.value:
            gaps.append((gap, area, best, shares[best]))
    lines = (_gap_cells(*gap, run, scorer) for gap in sorted(gaps))
    heads = ["section", metric_html("gap", "gap, points"), "best baseline", "its accuracy, %"]
    table = with_csv(table_html(heads, lines, words={2}, name="gap-table"))
    return f'<h2 class="part">{text_html(scorer)}: gap to the best baseline</h2>{table}' if gaps else ""


def _gap_cells(gap: Difference, area: str, best: str, share: float, run: str, scorer: str) -> list[str]:
    value, low, high = (100 * number for number in gap)
    text = f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
    name = link_html(cases_query(run, scorer, **section_filter(area), only="baseline"), text_html(area, 60))
    return [name, f"<b>{text}</b>" if gap.real else text, text_html(best, 60), f"{100 * share:.1f}"]


# ---- dots and intervals ----


def areas_html(report: Report, run: str, scorer: str) -> str:
    """Return a chart with a row for every area: a dot with interval for each model, a thin tick for each baseline."""
    listed, left_out = list_areas(report)
    rows = sorted((row for row in report.rows if row.role != "baseline"), key=lambda row: row.scorer != scorer)
    lanes = {row.scorer: colour for row, colour in zip(rows[:MOST_LANES], COLOURS, strict=False)}
    chosen = next(row for row in report.rows if row.scorer == scorer)
    letters = letters_of(row.scorer for row in report.rows if row.role == "baseline")
    body = "".join(_area_html(area, report, run, chosen, lanes, letters) for area in listed)
    axis = "".join(f'<span style="left:{at}%">{at}</span>' for at in (0, 25, 50, 75, 100))
    heads = f'<th scope="col">area</th><th scope="col">{metric_html("cases")}</th>'
    heads += f'<th class="axis" aria-label="axis"><span class="track">{axis}</span></th>'
    heads += f'<th scope="col">{metric_html("accuracy", f"{text_html(scorer, 40)}, %")}</th>'
    notes = [f"the {left_out:,} smallest subsets are in the report only"] if left_out else []
    notes += [f"{len(rows) - len(lanes):,} more models are in the table only"] if len(rows) > len(lanes) else []
    below = f'<p class="faint">{"; ".join(notes)}</p>' if notes else ""
    title = "Sections and subsets" if report.rows[0].sections else "Subsets"
    table = (
        f'<table class="areas" style="--lanes:{max(1, len(lanes))}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    return f'<h2 class="part">{title}</h2>{legend_html(lanes, letters)}{with_csv(table)}{below}'


def letters_of(baselines: Iterable[str]) -> dict[str, str]:
    """Return baseline -> its letter."""
    return dict(zip(baselines, cycle(ascii_uppercase)))


def legend_html(lanes: Mapping[str, str], letters: Mapping[str, str]) -> str:
    """Return the key of a chart: the colours of models, and the letters of baselines."""
    models = "".join(
        f'<span><i style="--colour:{colour}"></i>{text_html(name)}</span>' for name, colour in lanes.items()
    )
    ticks = "".join(
        f'<span><i class="baseline"></i>{letter}: {text_html(name)}</span>' for name, letter in letters.items()
    )
    return f'<div class="key">{models}{ticks}</div>'


def _area_html(
    area: Area, report: Report, run: str, chosen: Row, lanes: Mapping[str, str], letters: Mapping[str, str]
) -> str:
    interval = area.interval(chosen)
    known = interval.value == interval.value
    number = f"{100 * interval.value:.1f} <small>{interval_text(interval)}</small>" if known else "–"
    address = cases_query(run, chosen.scorer, **area.filters())
    name = link_html(address, text_html(area.name or "(none)", 60))
    rows = {
        row.scorer: (area.interval(row), row.scorer, cases_query(run, row.scorer, **area.filters()))
        for row in report.rows
    }
    marks = "".join(tick_mark(*rows[name], letter) for name, letter in letters.items())
    for lane, (scorer, colour) in enumerate(lanes.items()):
        marks += interval_mark(*rows[scorer], colour, 100 * (lane + 0.5) / len(lanes))
    cells = [name, f"{area.cases:,}" if area.cases else "", f'<td class="axis"><span class="track">{marks}</span></td>']
    cells.append(f'<td style="white-space: nowrap">{link_html(address, number)}</td>')
    return row_html(cells, kind=area.kind)


def interval_mark(interval: Interval, name: str, address: str, colour: str = COLOURS[0], top: float = 50.0) -> str:
    """Return a dot with its interval on an axis from 0 to 100 %, as a link. Empty for NaN."""
    value, low, high = interval
    if value != value:
        return ""
    low, high = (value, value) if low != low else (low, high)
    at = 100 * (value - low) / (high - low) if high > low else 0.0
    style = f"left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%;top:{top:.1f}%;--at:{at:.1f}%;--colour:{colour}"
    return _mark("range", interval, name, address, style)


def tick_mark(interval: Interval, name: str, address: str, letter: str) -> str:
    """Return a thin tick for a baseline on the axis of `interval_mark`, with the baseline's letter in the legend."""
    style, more = f"left:{100 * interval.value:.2f}%", f' tabindex="-1" data-letter="{letter}"'
    return "" if interval.value != interval.value else _mark("tick", interval, name, address, style, more)


def _mark(kind: str, interval: Interval, name: str, address: str, style: str, more: str = "") -> str:
    """Return a dot or tick as a link, with the scorer and its accuracy as tooltip."""
    label = escape(f"{HIDDEN.sub('', name)[:80]}: {100 * interval.value:.1f} {interval_text(interval)}".strip())
    link = f'href="{escape(address)}" title="{label}" aria-label="{label}"'
    return f'<a class="{kind}" {link} style="{style}"{more}><b></b></a>'
