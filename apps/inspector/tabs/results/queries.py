"""A run on its benchmark: sections, subsets, baselines, style matrix, calibration, score against length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from .....benchmarks.statistics.cluster_bootstrap import reliability
from .....benchmarks.suites import rm_bench
from .....benchmarks.types import Interval, Report, Row
from .....rm.errors import UsageError
from ....runs.summaries import areas
from ....runs.tables import ITEMS, SCORES
from ...database import lengths, query, table
from ...figures import PALETTE, layout, plain, titled
from ...html import STYLE, shown

MOST_AREAS = 40
GREYS = ("#999999", "#bdbdbd", "#777777", "#c9c9c9", "#888888", "#adadad")
STYLED = "rm_bench"
BARS = 9  # pixels of a bar


# ---- sections and subsets ----


def figures_of(report: Report) -> dict[str, Mapping[str, Interval]]:
    """Scorer -> area -> share, over `overall` and the sections."""
    return {row.scorer: areas(row) for row in report.rows}


def subsets_of(report: Report, most: int = MOST_AREAS) -> tuple[dict[str, Mapping[str, Interval]], int]:
    """Scorer -> subset -> share for the largest subsets, in alphabetical order, and how many are left out."""
    largest = sorted(report.sizes, key=lambda name: (-report.sizes[name], name))[:most]
    subsets: dict[str, Mapping[str, Interval]] = {
        row.scorer: {name: row.subsets[name] for name in sorted(largest)} for row in report.rows
    }
    return subsets, len(report.sizes) - len(largest)


def bars(report: Report, shares: Mapping[str, Mapping[str, Interval]], title: str, *, sizes: bool = False) -> go.Figure:
    """A bar for every area and scorer with its 95 % interval; baselines are grey, chance of two answers is dashed."""
    colours = _colours(report.rows)
    names = list(next(iter(shares.values())))
    labels = [_label(name, report.sizes.get(name) if sizes else None) for name in names]
    figure = go.Figure([_bar(row, shares[row.scorer], names, colours[row.scorer]) for row in report.rows])
    figure.add_vline(50, line={"color": "rgba(128, 128, 128, 0.8)", "width": 1, "dash": "dash"})
    figure.update_layout(barmode="group", bargap=0.25)
    figure.update_xaxes(range=[0, 100])
    figure.update_yaxes(autorange="reversed", showgrid=False, tickvals=[*range(len(names))], ticktext=labels)
    height = 120 + round(len(names) * (len(report.rows) * BARS / 0.75 + 6)) + 12 * len(report.rows)
    layout(figure, x="accuracy, % with 95 % interval", y="", height=height)
    return titled(figure.update_yaxes(zeroline=False), title)


def _bar(row: Row, shares: Mapping[str, Interval], names: Sequence[str], colour: str) -> go.Bar:
    values, lows, highs = (100 * np.array([getattr(shares[name], end) for name in names]) for end in Interval._fields)
    return go.Bar(
        x=values,
        y=[*range(len(names))],
        name=plain(f"{row.scorer} ({row.role})", 40),
        orientation="h",
        marker={"color": colour, "line": {"width": 0}},
        error_x={
            "array": highs - values,
            "arrayminus": values - lows,
            "symmetric": False,
            "thickness": 1,
            "width": 2,
            "color": "#808080",
        },
        customdata=np.stack([lows, highs], axis=1),
        text=[plain(name) for name in names],
        textposition="none",
        hovertemplate="%{text}: %{x:.1f} [%{customdata[0]:.1f}, %{customdata[1]:.1f}]",
    )


def _colours(rows: Sequence[Row]) -> dict[str, str]:
    """A colour for every model and reference, a grey for every baseline."""
    baselines = [row.scorer for row in rows if row.role == "baseline"]
    others = [row.scorer for row in rows if row.role != "baseline"]
    bright = [colour for colour in PALETTE if colour not in GREYS]
    return {name: bright[index % len(bright)] for index, name in enumerate(others)} | {
        name: GREYS[index % len(GREYS)] for index, name in enumerate(baselines)
    }


def _label(name: str, size: int | None) -> str:
    text = plain(name or "(none)", 28)
    return text if size is None else f"{text} ({size:,})"


def facts_html(report: Report) -> str:
    """Cases, prompts, what was left unscored, and what the baselines say."""
    rows = "".join(
        f"<tr><td>{shown(row.scorer)}</td><td>{shown(row.role)}</td><td>{row.overall}</td><td>{row.scored:,}</td>"
        f"<td>{row.ties:,}</td><td>{row.unscored:,}</td></tr>"
        for row in report.rows
    )
    heads = "".join(f"<th>{name}</th>" for name in ("scorer", "role", "overall, %", "scored", "ties", "unscored"))
    notes = "".join(f"<li>{shown(note)}</li>" for note in (*report.notes, *report.findings))
    return (
        f'{STYLE}<div class="rl"><p><b>{shown(report.suite)}</b>, version {shown(str(report.version))}: '
        f"{report.cases:,} cases over {report.clusters:,} prompts; intervals from {report.samples:,} bootstrap samples "
        f'of whole prompts.</p><div class="box scores"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        f"</table></div>{_details(notes)}</div>"
    )


def _details(notes: str) -> str:
    details = f'<details style="margin: 8px 0"><summary>What the baselines say</summary><ul>{notes}</ul></details>'
    return details if notes else ""


# ---- the style matrix ----


def style_matrix(folder: Path, suite: str, scorer: str) -> np.ndarray | None:
    """[3, 3] of RM-Bench: how often the right answer in style i beats the wrong one in style j; None elsewhere.

    Mean over the domains of the means over their cases, as the suite adds up its levels.
    """
    if suite != STYLED:
        return None
    rows = query(
        f"SELECT * FROM ({_SCORED.format(column='i.subset')}) WHERE scores IS NOT NULL AND len(scores) = 6",
        _files(folder),
        {"scorer": scorer},
    )
    won = {name: [] for name in rm_bench.DOMAINS}
    for subset, scores in rows:
        for name in (name for name, subsets in rm_bench.DOMAINS.items() if subset in subsets):
            won[name].append(rm_bench.style_matrix(scores))
    means = [np.mean(matrices, axis=0) for matrices in won.values() if matrices]
    return np.mean(means, axis=0) if means else None


def matrix_html(matrix: np.ndarray) -> str:
    """Rows: the style of the right answer. Columns: the style of the wrong one. More colour: better than chance."""
    heads = "".join(f"<th>wrong: {name}</th>" for name in rm_bench.STYLES)
    rows = "".join(
        f"<tr><td>right: {name}</td>{''.join(_share_html(share) for share in line)}</tr>"
        for name, line in zip(rm_bench.STYLES, matrix, strict=True)
    )
    levels = {name: float(np.mean([matrix[cell] for cell in cells])) for name, cells in rm_bench.LEVELS.items()}
    text = ", ".join(f"{name} {100 * share:.1f}" for name, share in levels.items())
    return (
        f'{STYLE}<div class="rl"><p>How often, in %, the right answer in one style beats the wrong one in another: '
        f'{text} (hard: the plainer right answer against the fancier wrong one).</p><div class="box scores">'
        f'<table id="styles"><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div></div>'
    )


def _share_html(share: float) -> str:
    colour = PALETTE[0] if share >= 0.5 else PALETTE[1]
    strength = round(140 * abs(share - 0.5))
    return f'<td style="background:color-mix(in srgb, {colour} {strength}%, transparent)">{100 * share:.1f}</td>'


# ---- calibration ----


def margins_of(folder: Path, scorer: str) -> np.ndarray:
    """Of every judged case."""
    text = f"SELECT margin FROM {table('scores')} WHERE scorer = $scorer AND margin IS NOT NULL"
    return np.array([margin for (margin,) in query(text, _files(folder), {"scorer": scorer})], float)


def calibration(margins: np.ndarray, bins: int = 10) -> go.Figure:
    """Accuracy against the confidence that margins claim; on the diagonal claims hold, the area is the number of cases.

    `benchmarks.statistics.cluster_bootstrap.reliability` has the formula and its source.
    """
    bins_found, _ = reliability(margins, bins)
    figure = go.Figure(
        go.Scatter(
            x=[bin_.confidence for bin_ in bins_found],
            y=[bin_.accuracy for bin_ in bins_found],
            customdata=[bin_.count for bin_ in bins_found],
            mode="markers",
            marker={
                "size": [8 + 30 * (bin_.count / len(margins)) ** 0.5 for bin_ in bins_found],
                "color": PALETTE[0],
                "opacity": 0.8,
            },
            hovertemplate="claimed %{x:.3f}, right %{y:.3f}, %{customdata:,} cases<extra></extra>",
        )
    )
    figure.add_shape(type="line", x0=0.5, y0=0.5, x1=1, y1=1, line={"color": "#808080", "width": 1, "dash": "dash"})
    figure.update_xaxes(range=[0.48, 1.02])
    figure.update_yaxes(range=[-0.02, 1.02])
    return titled(layout(figure, x="claimed P(right) = σ(|margin|)", y="share right", height=360), "Calibration")


def calibration_html(margins: np.ndarray) -> str:
    """The expected calibration error, and what it is over."""
    if not len(margins):
        return f'{STYLE}<div class="rl"><p class="faint">This scorer judged no case.</p></div>'
    return (
        f'{STYLE}<div class="rl"><p>Expected calibration error {reliability(margins)[1]:.3f} over {len(margins):,} '
        "cases. A larger point stands for more cases.</p></div>"
    )


# ---- score against length ----


class LengthBin(NamedTuple):
    """Answers of like length: mean characters, mean score with its standard error, and how many answers."""

    length: float
    score: float
    error: float
    count: int


class Lengths(NamedTuple):
    """Scores by length in doublings."""

    bins: list[LengthBin]
    slope: float
    """Of the score per doubling of length over all answers; NaN where lengths do not vary."""
    answers: int


def lengths_of(folder: Path, scorer: str) -> Lengths:
    """Every judged answer by log2 of its characters, in bins of half a doubling, and the least-squares slope.

    Answers to all prompts are pooled, so that a slope may come from the prompts; within pairs the report's
    `length_slope` tells it.
    """
    files, values = _files(folder), {"scorer": scorer}
    stored = lengths(lambda text: query(text, files))
    answers = f"""
        SELECT log2(greatest(unnest(lengths), 1)) AS l, unnest(scores) AS score
        FROM ({_SCORED.format(column=f"{stored} AS lengths")})
        WHERE scores IS NOT NULL AND len(scores) = len(lengths)
    """
    binned = query(
        f"""SELECT pow(2, avg(l)), avg(score), coalesce(stddev_samp(score) / sqrt(count(*)), 0), count(*)
            FROM ({answers}) GROUP BY floor(2 * l) ORDER BY floor(2 * l)""",
        files,
        values,
    )
    ((slope, number),) = query(f"SELECT regr_slope(score, l), count(*) FROM ({answers})", files, values)
    return Lengths([LengthBin(*row) for row in binned], float("nan") if slope is None else float(slope), number)


def length_figure(lengths: Lengths) -> go.Figure:
    """Mean score by length with its standard error; the area is the number of answers."""
    x, y, errors, counts = (list(column) for column in zip(*lengths.bins, strict=True))
    figure = go.Figure(
        go.Scatter(
            x=x,
            y=y,
            error_y={"array": errors, "thickness": 1, "width": 2, "color": "#808080"},
            customdata=counts,
            mode="markers+lines",
            line={"color": PALETTE[0], "width": 1},
            marker={"size": [7 + 24 * (count / lengths.answers) ** 0.5 for count in counts], "color": PALETTE[0]},
            hovertemplate="%{x:.0f} characters: %{y:.4g}, %{customdata:,} answers<extra></extra>",
        )
    )
    figure.update_xaxes(type="log", dtick="D2")
    layout(figure, x="length of the answer, characters", y="mean score ± standard error", height=360)
    return titled(figure, "Score against length")


def length_html(row: Row, lengths: Lengths) -> str:
    """The slope over all answers, and within pairs where the report has it."""
    style = row.style
    pairs = style.get("pairs", 0)
    within = (
        f" Within the {pairs:,.0f} plain pairs, where the prompt is the same: {_slope(style['length_slope'])} standard "
        f"deviations a doubling; accuracy over pairs of like length {_percent(style['matched'])}, balanced over longer "
        f"and shorter right answers {_percent(style['balanced'])}."
        if pairs and "length_slope" in style
        else ""
    )
    return (
        f'{STYLE}<div class="rl"><p>Over all answers of all prompts the score changes by {_slope(lengths.slope)} (its '
        f"own unit) a doubling of length.{within}</p></div>"
    )


def _slope(value: float) -> str:
    return "–" if value != value else f"{value:+.3g}"


def _percent(share: float) -> str:
    return "–" if share != share else f"{100 * share:.1f} %"


# ---- tables ----

_SCORED = f"""
    SELECT {{column}}, s.scores FROM {table("scores")} AS s JOIN {table("items")} AS i USING ("case")
    WHERE s.scorer = $scorer
"""


def _files(folder: Path) -> dict[str, Path]:
    return {"items": folder / ITEMS, "scores": folder / SCORES}


def row_of(report: Report, scorer: str) -> Row:
    """A scorer's row."""
    matching = next((row for row in report.rows if row.scorer == scorer), None)
    if matching is None:
        raise UsageError(f"this run has no scorer '{scorer}'; choose one of the list")
    return matching
