"""HTML of tokens, each coloured by a value on a diverging scale and with its values as a tooltip."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from ..html import PALETTE, number, text_html

UP, DOWN = PALETTE[:2]
STRONGEST = 75  # per cent of the colour, so that letters stay readable on it
STYLE = f"""<style>
.rl .heat {{white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.75}}
.rl .heat i {{font-style: normal; border-radius: 2px;
    background: color-mix(in srgb, var(--c) var(--v, 0%), transparent)}}
.rl .heat .unread {{text-decoration: underline dotted}}
.rl .legend {{display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; font-size: 12px; margin: 8px 0}}
.rl .ramp {{width: 160px; height: 12px; border-radius: 3px; background: linear-gradient(to right,
    color-mix(in srgb, {DOWN} {STRONGEST}%, transparent), transparent,
    color-mix(in srgb, {UP} {STRONGEST}%, transparent))}}
.rl .swatch {{display: inline-block; width: 12px; height: 12px; border-radius: 3px; vertical-align: -1px}}
</style>"""


class Scale(NamedTuple):
    """Colour scale: no colour at `centre`, full colour at `centre` plus or minus `limit`."""

    centre: float
    limit: float

    def share(self, value: float) -> float:
        """Return the signed distance from the centre in units of `limit`, clipped to [-1, 1]. NaN stays NaN."""
        return float(np.clip((value - self.centre) / self.limit, -1, 1))


def scale_of(rows: Sequence[np.ndarray], centre: float = 0.0, quantile: float = 0.95) -> Scale:
    """Return a common scale for several rows. The limit is a quantile of the distances from the centre; NaN is ignored.

    >>> scale_of([np.array([-1.0, 2.0]), np.array([np.nan, 4.0])], quantile=1.0)
    Scale(centre=0.0, limit=4.0)
    """
    values = np.concatenate([*rows, np.empty(0)])
    away = np.abs(values[np.isfinite(values)] - centre)
    limit = float(np.quantile(away, quantile)) if len(away) else 0.0
    return Scale(float(centre), limit or (float(away.max()) if len(away) else 0.0) or 1.0)


# ---- HTML ----


class Shade(NamedTuple):
    """A colour and its strength in [0, 1]. The strength is NaN for a token without a value."""

    colour: str
    strength: float


def shades(values: Sequence[float], scale: Scale) -> list[Shade]:
    """Return diverging shades: one colour above the centre, another below it."""
    shares = map(scale.share, values)
    return [Shade(UP if share > 0 else DOWN, abs(share)) for share in shares]


def heat_html(texts: Sequence[str], colours: Sequence[Shade], titles: Sequence[str]) -> str:
    """Return texts as HTML, each with its colour and tooltip."""
    spans = (_span(*span) for span in zip(texts, colours, titles, strict=True))
    return f'<div class="heat">{"".join(spans)}</div>'


def _span(text: str, shade: Shade, title: str) -> str:
    if shade.strength != shade.strength:
        return f'<i class="unread" title="{escape(title)}">{_visible(text)}</i>'
    style = f"--c:{shade.colour};--v:{shade.strength * STRONGEST:.0f}%"
    return f'<i style="{style}" title="{escape(title)}">{_visible(text)}</i>'


def _visible(text: str) -> str:
    """Return the text as HTML. A lone newline is shown as a visible sign, so that it can be coloured."""
    return text_html(text) if text.strip() else text_html(text.replace("\n", "↵\n"))


def legend_html(scale: Scale, *, unit: str, low: str, high: str) -> str:
    """Return the legend of a scale, with value and label at both ends."""
    ends = [number(scale.centre + side * scale.limit) for side in (-1, 1)]
    return (
        f'<div class="legend"><span>{text_html(low)} {ends[0]}</span><span class="ramp"></span>'
        f"<span>{ends[1]} {text_html(unit)} {text_html(high)}</span>"
        f'<span class="faint">no colour at {number(scale.centre)}; stronger values keep the end\'s colour</span></div>'
    )


def swatches_html(names: Sequence[str]) -> str:
    """Return a legend of names with their colours of the palette."""
    return " ".join(
        f'<span><span class="swatch" style="background:{PALETTE[i % len(PALETTE)]}"></span> {text_html(name)}</span>'
        for i, name in enumerate(names)
    )
