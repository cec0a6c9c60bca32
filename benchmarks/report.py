"""Evaluation reports as Markdown and as figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..rm.io.escaping import escape_markdown
from ..rm.io.markdown import table
from .evaluate import OVERALL
from .statistics.calibration import reliability
from .types import Interval, Report, Row, part_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "effective": "Wilson's, with the number of items that a bootstrap of whole prompts shows them to be worth",
    "weighted": "Wilson's, with the number of items that a bootstrap of whole prompts shows them to be worth; means of "
    "sections combine theirs",
}
COLOURS = {"model": "#1f5fa8", "reference": "#3a8f5c", "baseline": "#9a9a9a"}


def markdown(report: Report) -> str:
    """Return the report as Markdown: overall and sections, comparison with baselines, subsets, scoring contracts."""
    rows = report.rows
    sections = list(rows[0].sections)
    main = table(
        ["scorer", "role", "overall", *sections, "scored", "ties", "unscored"],
        [
            [row.scorer, row.role, cell(row.overall), *(cell(row.sections[name]) for name in sections)]
            + [str(row.scored), str(row.ties), str(row.unscored)]
            for row in rows
        ],
    )
    subsets = table(
        ["subset", "cases", *(row.scorer for row in rows)],
        [[name, str(size), *(cell(row.subsets[name]) for row in rows)] for name, size in sorted(report.sizes.items())],
    )
    contracts = [f"- `{escape_markdown(row.contract)}` {escape_markdown(row.scorer)}" for row in rows if row.contract]
    return "\n".join(
        [
            f"# {report.suite}",
            "",
            *([f"**{escape_markdown(part)}**", ""] if (part := part_of(report.notes)) else []),
            f"{report.cases} cases over {report.clusters} prompts. Accuracy in per cent with its 95 % interval "
            f"({METHODS[report.interval]}). A baseline never reads the prompt." + _ceiling(rows),
            "",
            main,
            "",
            "## What the baselines say",
            "",
            *(f"- {escape_markdown(note)}" for note in (*report.notes, *report.findings) or ("Nothing to add.",)),
            "",
            *_style(rows),
            "## Subsets",
            "",
            subsets,
            "",
            *(["## Scoring contracts", "", *contracts, ""] if contracts else []),
        ]
    )


def _style(rows: Sequence[Row]) -> list[str]:
    """Return a table with the dependence of scores on length and Markdown. Empty without judged pairs."""
    if not any(row.style.get("pairs") for row in rows):
        return []
    header = ["scorer", "length-matched accuracy", "pairs of like length", "length-balanced accuracy"]
    header += ["σ per doubling of length", "σ per doubling of Markdown"]
    formats = {"matched": "{:.1%}", "matched_pairs": "{}", "balanced": "{:.1%}"}
    formats |= {"length_slope": "{:+.2f}", "markdown_slope": "{:+.2f}"}

    def formatted(value: float, form: str) -> str:
        return "–" if value != value else form.format(value).removesuffix("%")

    lines = [[row.scorer, *(formatted(row.style[name], form) for name, form in formats.items())] for row in rows]
    return ["## Style", "", table(header, lines), ""]


def _ceiling(rows: Sequence[Row]) -> str:
    """Return a sentence with the accuracy of references, the ceiling under label noise. Empty without references."""
    golds = [row for row in rows if row.role == "reference"]
    golds_text = ", ".join(f"{escape_markdown(row.scorer)} {100 * row.overall.value:.1f}" for row in golds)
    ceiling = "Label noise limits the accuracy: a reference that knows the truth reaches"
    return f" {ceiling}: {golds_text}." if golds else ""


def cell(interval: Interval) -> str:
    """Return a share with its interval in per cent; a dash for NaN."""
    return "–" if interval.value != interval.value else str(interval)


def reliability_figure(margins: Mapping[str, np.ndarray]) -> "Figure":
    """Plot accuracy against the confidence σ(|margin|), one panel per model. The diagonal is perfect calibration."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(3.2 * len(margins), 3.3), layout="constrained")
    panels = drawing.subplots(1, len(margins), sharey=True, squeeze=False)[0]
    for panel, (name, values) in zip(panels, margins.items(), strict=True):
        bins, error = reliability(values)
        panel.plot([0.5, 1], [0.5, 1], color="#444444", linewidth=0.8, linestyle="--")
        sizes = [10 + 190 * bin_.count / max(1, len(values)) for bin_ in bins]
        panel.scatter([b.confidence for b in bins], [b.accuracy for b in bins], s=sizes, color=COLOURS["model"])
        panel.set_title(f"{name}: {'no data' if error != error else f'ECE {error:.3f}'}", fontsize=9)
        panel.set_xlabel("claimed P(right) = σ(|margin|)", fontsize=8)
    panels[0].set_ylabel("accuracy", fontsize=8)
    return drawing


def figure(report: Report) -> "Figure":
    """Plot overall and section figures of every scorer with their intervals. The dashed line is the chance level."""
    from matplotlib.figure import Figure

    areas = [OVERALL, *report.rows[0].sections]
    drawing = Figure(figsize=(2.2 + 2.1 * len(areas), 0.9 + 0.34 * len(report.rows)), layout="constrained")
    panels = drawing.subplots(1, len(areas), sharey=True, squeeze=False)[0]
    for panel, area in zip(panels, areas, strict=True):
        for index, row in enumerate(report.rows):
            interval = row.overall if area == OVERALL else row.sections[area]
            value, low, high = (100 * number for number in interval)
            panel.barh(index, value, color=COLOURS[row.role], height=0.62)
            panel.plot([low, high], [index, index], color="black", linewidth=1.2)
        panel.axvline(50, color="#444444", linewidth=0.8, linestyle="--")
        panel.set_title(area, fontsize=9)
        panel.set_xlim(0, 100)
        panel.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(report.rows)), [row.scorer for row in report.rows])
    panels[0].invert_yaxis()
    drawing.supxlabel("accuracy, per cent, with 95 % interval", fontsize=8)
    return drawing
