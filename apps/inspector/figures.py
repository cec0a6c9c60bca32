"""Style of figures: colours, axis titles, and escaped names."""

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from .html import HIDDEN, PALETTE

__all__ = ["PALETTE", "layout", "link_options", "plot_text", "set_title"]

FONT = '"Source Sans Pro", system-ui, sans-serif'
"""Font of the page. Plotly needs it to measure texts."""
LIGHT, DARK = "#4b5563", "#d1d5db"
"""Colours of texts on a light and on a dark page. `style.CSS` sets the colour on a dark page."""


def link_options(address: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return options of a trace whose points are links: `address` followed by the id of the point."""
    return {"meta": address, "ids": [*ids]}


def layout(figure: go.Figure, *, x: str, y: str, height: int = 320, **options: Any) -> go.Figure:
    """Return the figure with axis titles, a transparent background and small margins."""
    axis = {"gridcolor": "rgba(128, 128, 128, 0.25)", "zerolinecolor": "rgba(128, 128, 128, 0.6)", "automargin": True}
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 24, "b": 8},
        paper_bgcolor="rgba(0, 0, 0, 0)",
        plot_bgcolor="rgba(0, 0, 0, 0)",
        font={"color": LIGHT, "family": FONT, "size": 13},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        modebar={"orientation": "v", "remove": ["zoomin", "zoomout", "autoscale", "pan", "select", "lasso"]},
        **options,
    )
    size = {"size": 13}
    figure.update_xaxes(title={"text": plot_text(x), "font": size}, **axis)
    figure.update_yaxes(title={"text": plot_text(y), "font": size}, **axis)
    return figure


def set_title(figure: go.Figure, title: str, definition: str = "") -> go.Figure:
    """Return the figure with a title and the definition of the plotted value, both of which the page displays."""
    figure.update_layout(meta={"title": title, "definition": definition})
    return figure.update_layout(margin={"t": 32 if len(figure.data) > 1 else 8})


def plot_text(text: str, longest: int = 60) -> str:
    """Return an untrusted name for Plotly, which renders some HTML: escaped, on one line, at most `longest` characters.

    >>> plot_text("<b>rm</b>\\n"), plot_text("abcdef", 4)
    ('&lt;b&gt;rm&lt;/b&gt;', 'abc…')
    """
    line = " ".join(HIDDEN.sub("", text).split())
    return escape(line if len(line) <= longest else line[: longest - 1] + "…", quote=False)
