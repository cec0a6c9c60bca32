"""Style of figures: colours, axis titles, and escaped names."""

from html import escape
from typing import Any

import plotly.graph_objects as go

from .html import HIDDEN

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#F0E442")
"""Okabe and Ito's colours, which colour-blind readers distinguish; the first two are the ends of diverging scales."""


def layout(figure: go.Figure, *, x: str, y: str, height: int = 320, **options: Any) -> go.Figure:
    """Return the figure with axis titles, a transparent background and small margins."""
    axis = {"gridcolor": "rgba(128, 128, 128, 0.25)", "zerolinecolor": "rgba(128, 128, 128, 0.6)", "automargin": True}
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 24, "b": 8},
        paper_bgcolor="rgba(0, 0, 0, 0)",
        plot_bgcolor="rgba(0, 0, 0, 0)",
        font={"color": "#808080", "size": 12},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        modebar={"orientation": "v"},
        **options,
    )
    figure.update_xaxes(title_text=plain(x), **axis)
    figure.update_yaxes(title_text=plain(y), **axis)
    return figure


def titled(figure: go.Figure, title: str) -> go.Figure:
    """With a title of its own, for figures that are next to each other."""
    title_options = {"x": 0, "xanchor": "left", "yref": "container", "y": 1, "yanchor": "top", "pad": {"l": 8, "t": 8}}
    figure.update_layout(title={"text": plain(title), "font": {"size": 13}, **title_options})
    return figure.update_layout(margin={"t": 56 if len(figure.data) > 1 else 36})


def plain(text: str, longest: int = 60) -> str:
    """An untrusted name for Plotly, which reads some HTML in its texts: escaped, on one line, cut where it is long.

    >>> plain("<b>rm</b>\\n"), plain("abcdef", 4)
    ('&lt;b&gt;rm&lt;/b&gt;', 'abc…')
    """
    line = " ".join(HIDDEN.sub("", text).split())
    return escape(line if len(line) <= longest else line[: longest - 1] + "…", quote=False)
