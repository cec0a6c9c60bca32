"""A row of the list of cases: outcome, prompt, margin as a bar, and subset."""

from ....html import shown
from ..queries import Line

OUTCOME_MARKS = {"right": "✓", "wrong": "✕", "tie": "=", "abstained": "–"}


def row_html(line: Line, scale: float, *, blind: bool = False) -> str:
    """Return the inside of a row; `scale` is the |margin| of a full bar, `blind` leaves out what scores say.

    >>> "✕" in row_html(Line("c", "chat", "wrong", -1.0, 0.0, 1.0, "Name a tree"), 2.0)
    True
    """
    prompt = f'<span class="row-prompt" dir="auto">{shown(line.prompt) or "(empty prompt)"}</span>'
    subset = f'<span class="row-subset">{shown(line.subset, 60)}</span>'
    if blind:
        return f'<span class="row-mark">·</span>{prompt}<span></span>{subset}'
    mark = (
        f'<span class="row-mark {line.outcome}" role="img" aria-label="{line.outcome}">'
        f"{OUTCOME_MARKS[line.outcome]}</span>"
    )
    return f'{mark}{prompt}<span class="row-margin">{_bar(line.margin, scale)}</span>{subset}'


def _bar(margin: float | None, scale: float) -> str:
    """Return a bar that starts in the middle and ends at the margin, and the margin."""
    if margin is None:
        return ""
    share = min(abs(margin) / scale, 1.0) * 50 if scale > 0 else 0.0
    left = 50 - share if margin < 0 else 50
    kind = "wrong" if margin < 0 else "right"
    bar = f'<i class="{kind}" style="left:{left:.1f}%;width:{share:.1f}%"></i>'
    return f'<span class="row-bar">{bar}</span><span class="row-number">{margin:.3f}</span>'
