"""Figures and tables of one scorer: style matrix, calibration, score against length."""

import math

import numpy as np
import plotly.graph_objects as go

from .....benchmarks.statistics.calibration import reliability
from .....benchmarks.suites import rm_bench
from .....benchmarks.types import Row
from ...figures import PALETTE, layout, link_options, set_title
from ...html import with_csv
from ..metrics import METRICS, cases_query, metric_html, table_html
from .areas import share_html
from .queries import Lengths

BINS = 10


def matrix_html(matrix: np.ndarray) -> str:
    """Return the style matrix as HTML. Rows are styles of the right response, columns styles of the wrong response."""
    heads = ["", *(f"wrong: {name}" for name in rm_bench.STYLES)]
    rows = ([f"right: {name}", *map(share_html, line)] for name, line in zip(rm_bench.STYLES, matrix, strict=True))
    levels = {name: float(np.mean([matrix[cell] for cell in cells])) for name, cells in rm_bench.LEVELS.items()}
    text = ", ".join(f"{name} {100 * share:.1f}" for name, share in levels.items())
    return (
        f"<p>How often, in %, the right response in one style beats the wrong response in another style: "
        f"{text} (hard: the plainer right response against the fancier wrong one).</p>"
        f"{with_csv(table_html(heads, rows, name='styles'))}"
    )


def calibration(margins: np.ndarray, run: str, scorer: str) -> go.Figure:
    """Draw accuracy by predicted confidence. The area of a point is proportional to its number of cases.

    A click on a point lists wrong cases with a confidence up to the upper edge of its bin, the most confident first.
    `benchmarks.statistics.cluster_bootstrap.reliability` has the formula and its source.
    """
    bins, _ = reliability(margins, BINS)
    figure = go.Figure(
        go.Scatter(
            x=[bin_.confidence for bin_ in bins],
            y=[bin_.accuracy for bin_ in bins],
            customdata=[bin_.count for bin_ in bins],
            mode="markers",
            cliponaxis=False,
            marker={
                "size": [8 + 30 * (bin_.count / len(margins)) ** 0.5 for bin_ in bins],
                "color": PALETTE[0],
                "opacity": 0.8,
            },
            hovertemplate="predicted %{x:.3f}, right %{y:.3f}, %{customdata:,} cases<extra></extra>",
            **link_options(
                cases_query(run, scorer, outcome="wrong", order="worst", margin=""),
                [largest_margin(bin_.confidence) for bin_ in bins],
            ),
        )
    )
    figure.add_shape(type="line", x0=0.5, y0=0.5, x1=1, y1=1, line={"color": "#808080", "width": 1, "dash": "dash"})
    figure.update_xaxes(range=[0.48, 1.02])
    figure.update_yaxes(range=[-0.02, 1.02])
    return set_title(
        layout(figure, x="claimed P(right) = σ(|margin|)", y="share right", height=360),
        "Calibration",
        METRICS["calibration error"],
    )


def largest_margin(confidence: float) -> str:
    """Return the largest |margin| in the bin of a predicted confidence, with six digits. Empty for the last bin.

    >>> largest_margin(0.72), largest_margin(0.99)
    ('1.09861', '')
    """
    end = 0.5 + (math.floor((confidence - 0.5) * 2 * BINS) + 1) / (2 * BINS)
    return f"{math.log(end / (1 - end)):.6g}" if end < 1 - 1e-9 else ""


def calibration_html(margins: np.ndarray) -> str:
    """Return the expected calibration error and its number of cases."""
    if not len(margins):
        return '<p class="faint">This scorer judged no case.</p>'
    error = metric_html("calibration error", "Expected calibration error")
    return (
        f"<p>{error} {reliability(margins)[1]:.3f} over {len(margins):,} "
        "cases. A larger point stands for more cases.</p>"
    )


def length_figure(lengths: Lengths, run: str, scorer: str) -> go.Figure:
    """Draw the mean score by length with its standard error. A point's area shows its number of responses."""
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
            hovertemplate="%{x:.0f} characters: %{y:.4g}, %{customdata:,} responses<extra></extra>",
            **link_options(
                cases_query(run, scorer, outcome="all", length=""), [length_range(bin_.length) for bin_ in lengths.bins]
            ),
        )
    )
    ticks = length_ticks(min(x), max(x))
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])
    layout(figure, x="length of the response, characters", y="mean score ± standard error", height=360)
    return set_title(figure, "Score against length", METRICS["score against length"])


def length_range(length: float) -> str:
    """Return the range of lengths in characters of the bin that contains `length`. A bin spans a factor of √2.

    >>> length_range(30), length_range(33.0)
    ('23-31', '32-45')
    """
    half = math.floor(2 * math.log2(max(length, 1)) + 1e-9)
    return f"{math.ceil(2 ** (half / 2) - 1e-9)}-{math.ceil(2 ** ((half + 1) / 2) - 1e-9) - 1}"


def length_ticks(low: float, high: float) -> list[int]:
    """Return axis ticks 1, 2, 5, 10, 20 ... between two lengths. Only powers of ten if the lengths are far apart.

    >>> length_ticks(30, 700), length_ticks(1, 100_000)
    ([20, 50, 100, 200, 500, 1000], [1, 10, 100, 1000, 10000, 100000])
    """
    digits = (1, 2, 5) if high < 1000 * low else (1,)
    ticks = [digit * 10**power for power in range(math.ceil(math.log10(max(high, 1))) + 2) for digit in digits]
    first = max((index for index, tick in enumerate(ticks) if tick <= low), default=0)
    last = next(index for index, tick in enumerate(ticks) if tick >= high)
    return ticks[first : last + 1]


def length_html(row: Row, lengths: Lengths) -> str:
    """Return the slope of score per doubling of length over all responses, and within pairs if reported."""
    style = row.style
    pairs = style.get("pairs", 0)
    within = (
        f" Within the {pairs:,.0f} pairs of two responses to the same prompt: {_slope(style['length_slope'])} standard "
        f"deviations per doubling; accuracy over pairs of similar length {_percent(style['matched'])}, balanced over "
        f"longer and shorter right responses {_percent(style['balanced'])}."
        if pairs and "length_slope" in style
        else ""
    )
    return (
        f"<p>Over all responses to all prompts the score changes by {_slope(lengths.slope)} "
        f"(in units of the score) per doubling of length.{within}</p>"
    )


def _slope(value: float) -> str:
    return "–" if value != value else f"{value:+.3g}"


def _percent(share: float) -> str:
    return "–" if share != share else f"{100 * share:.1f} %"
