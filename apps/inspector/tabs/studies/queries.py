"""Report of a study with its tables, and the figures in its folder as embedded images."""

import base64
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from .....rm.errors import DataError
from ...html import text_html
from ...run_list import REPORT
from ...texts.rendering import rendered_html

LARGEST, LARGEST_TOTAL, MOST_FIGURES = 4_000_000, 16_000_000, 24  # bytes, bytes, files
LONGEST = 400_000  # characters of a report
PNG = b"\x89PNG\r\n\x1a\n"
IMAGE = re.compile(r"!\[([^\]\n]*)\]\(([^()\s]*)\)")


class Figures(NamedTuple):
    """PNG files by name as `data:` URLs, and a sentence for each omitted file."""

    addresses: Mapping[str, str]
    left_out: tuple[str, ...]


def read_text(folder: Path) -> str:
    """Return the text of `report.md`, truncated if it is long."""
    try:
        text = (folder / REPORT).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"{folder} has no {REPORT} that can be read ({error}); repeat the run") from error
    cut = len(text) - LONGEST
    return f"{text[:LONGEST]}\n\n… {cut:,} more characters\n" if cut > 0 else text


def read_figures(folder: Path) -> Figures:
    """Load the PNG files of a folder by name. Large files and links are omitted."""
    figures: dict[str, str] = {}
    left_out, total_size = [], 0
    for path in sorted(folder.glob("*.png")):
        size = path.stat().st_size if path.is_file() and not path.is_symlink() else -1
        if size < 0:
            continue
        if size > LARGEST or total_size + size > LARGEST_TOTAL or len(figures) == MOST_FIGURES:
            left_out.append(f"{path.name} ({size / 1e6:.1f} MB) is left out: too large, or too many figures")
            continue
        data = path.read_bytes()
        if not data.startswith(PNG):
            left_out.append(f"{path.name} is no PNG file")
            continue
        figures[path.name] = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        total_size += size
    return Figures(figures, tuple(left_out))


def report_html(text: str, figures: Figures | None = None) -> str:
    r"""Return a report as inert HTML. Images in `figures` are embedded; others are shown as their name and address.

    >>> report_html("# a <b>\n![all](all.png)", Figures({"all.png": "data:image/png;base64,AA=="}, ()))
    '<h2 dir="auto">a &lt;b&gt;</h2>\n<p dir="auto"><img src="data:image/png;base64,AA==" alt="all"></p>\n'
    """
    return rendered_html(text, LONGEST + 100, figures.addresses if figures else {})


def figures_html(text: str, figures: Figures) -> str:
    """Return the figures that the text does not contain as HTML, and notes on omitted figures."""
    mentioned = {match[2] for match in IMAGE.finditer(text)}
    images = "".join(
        f'<figure><img src="{address}" alt="{escape(name)}"><figcaption class="faint">{text_html(name)}</figcaption>'
        "</figure>"
        for name, address in figures.addresses.items()
        if name not in mentioned
    )
    notes = "".join(f"<p>{text_html(note)}</p>" for note in figures.left_out)
    return images + notes
