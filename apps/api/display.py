"""Results as text and as HTML for notebooks: headings, tables and figures, with all text escaped in HTML."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..summary import short_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_ROWS, MOST_LETTERS = 40, 60


def heading(text: str) -> str:
    """Return a heading as a line of bold HTML."""
    return f"<p><b>{escape(text)}</b></p>"


def frame_of(rows: Any) -> "pd.DataFrame":
    """Return rows or columns as a pandas `DataFrame`. pandas is imported on first use."""
    import pandas as pd

    return pd.DataFrame(rows)


def table(frame: "pd.DataFrame") -> str:
    """Return the first rows of a table as HTML, and the total number of rows."""
    more = f"<p>{MOST_ROWS} of {len(frame)} rows</p>" if len(frame) > MOST_ROWS else ""
    return frame.head(MOST_ROWS).to_html(index=False, escape=True, border=0, na_rep="–") + more


def facts_table(facts: Mapping[str, Any]) -> str:
    """Return the numbers and texts of a summary as an HTML table with columns for name and value."""
    cells = _plain_facts(facts)
    return table(frame_of({"": list(cells), "value": [short_text(value) for value in cells.values()]}))


def facts_text(title: str, facts: Mapping[str, Any]) -> str:
    """Return the numbers and texts of a summary as lines of text."""
    return text_table(title, [*_plain_facts(facts).items()])


def _plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if isinstance(value, str | int | float | bool)}


def short_repr(result: object, *facts: str, path: Path | None = None) -> str:
    """Return the class of a result and a few facts on one line.

    >>> short_repr(Path(), "24 rows", path=Path("runs/scores.jsonl"))
    "PosixPath(24 rows, path='runs/scores.jsonl')"
    """
    path_text = [] if path is None else [f"path='{path}'"]
    return f"{type(result).__name__}({', '.join([*facts, *path_text])})"


def text_table(title: str, rows: Sequence[Sequence[Any]]) -> str:
    """Return a title and the first rows of a table as aligned columns of text, each cell cut to one short line.

    >>> print(text_table("Rewards", [["id", "reward"], ["a", 0.25]]))
    Rewards
    id  reward
    a   0.25
    """
    cells = [[_cell(value) for value in row] for row in rows[: MOST_ROWS + 1]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([title, *lines, *(["..."] if len(rows) > len(cells) else [])])


def _cell(value: Any) -> str:
    words = " ".join(short_text(value).split())
    return words if len(words) <= MOST_LETTERS else words[: MOST_LETTERS - 3] + "..."


def figure_image(drawing: "Figure") -> str:
    """Return a figure as an inline image."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=110)
    content = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="" style="max-width:100%" src="data:image/png;base64,{content}">'
