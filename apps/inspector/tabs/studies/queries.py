"""Report of a study with its tables, and the figures in its folder as embedded images."""

import base64
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from .....rm.errors import DataError
from ...html import STYLE, text_html
from ...run_list import REPORT

LARGEST, LARGEST_TOTAL, MOST_FIGURES = 4_000_000, 16_000_000, 24  # bytes, bytes, files
LONGEST = 400_000  # characters of a report
PNG = b"\x89PNG\r\n\x1a\n"
PROSE = r"(?:(?!.*(?:```|~~~)).*\n)*"  # lines that neither begin nor end a fence
FENCED = re.compile(rf"({PROSE})(```[^`~\n]*\n{PROSE}```[ \t]*(?:\n|\Z))")
SPAN = re.compile(r"(?<![`\\])(?P<ticks>`+)(?!`)[^|\n]+?(?<!`)(?P=ticks)(?!`)")
BLANK = re.compile(r"(\n[ \t]*(?=\n))")
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
        raise DataError(f"{folder} has no {REPORT} that can be read ({error}); make the run again") from error
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
            left_out.append(f"{path.name} ({size / 1e6:.1f} MB) is too large for the page, or one too many")
            continue
        data = path.read_bytes()
        if not data.startswith(PNG):
            left_out.append(f"{path.name} is no PNG file")
            continue
        figures[path.name] = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        total_size += size
    return Figures(figures, tuple(left_out))


def safe_markdown(text: str, figures: Mapping[str, str] | None = None) -> str:
    """Return a report with escaped HTML. Images in `figures` are embedded; other images are replaced by their names.

    >>> safe_markdown("a <b> `x<y` ![all](all.png) ![it](http://x/y.png)", {"all.png": "data:image/png;base64,AA=="})
    'a &lt;b> `x<y` ![all](data:image/png;base64,AA==) *[it]*'
    """
    pieces = list(_pieces(text))
    return "".join(piece if code else _outside(piece, figures or {}) for piece, code in pieces)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield parts of the text, and whether each is code.

    Markdown renderers may disagree on where code ends. So only unambiguous code counts: plain fences without other
    fence marks before or inside them, and single-line spans in a paragraph without another backtick, outside of tables.
    """
    start = 0
    while match := FENCED.match(text, start):
        yield from _spans(match[1])
        yield match[2], True
        start = match.end()
    yield from _spans(text[start:])


def _spans(text: str) -> Iterator[tuple[str, bool]]:
    for paragraph in BLANK.split(text):
        end = 0
        for match in SPAN.finditer(paragraph) if "`" not in SPAN.sub("", paragraph) else ():
            yield paragraph[end : match.start()], False
            yield match[0], True
            end = match.end()
        yield paragraph[end:], False


def _outside(text: str, figures: Mapping[str, str]) -> str:
    """Escape text outside of code. URLs of figures contain no `![`, `<` or bracket, so they need no escaping."""
    known, last = [], 0
    for match in IMAGE.finditer(text):
        known += [_inert(text[last : match.start()]), _image(match[1], figures.get(match[2], ""))]
        last = match.end()
    return "".join([*known, _inert(text[last:])])


def _inert(text: str) -> str:
    return text.replace("<", "&lt;").replace("![", "!\\[")


def _image(name: str, address: str) -> str:
    return f"![{_inert(name)}]({address})" if address else f"*[{_inert(name)}]*"


def figures_html(text: str, figures: Figures) -> str:
    """Return the figures that the text does not contain as HTML, and notes on omitted figures."""
    mentioned = {match[2] for match in IMAGE.finditer(text)}
    images = "".join(_figure(*figure) for figure in figures.addresses.items() if figure[0] not in mentioned)
    notes = "".join(f"<p>{text_html(note)}</p>" for note in figures.left_out)
    style = "<style>.rl figure {margin: 16px 0} .rl figure img {max-width: 100%; background: white}</style>"
    return f'{STYLE}{style}<div class="rl">{images}{notes}</div>' if images or notes else ""


def _figure(name: str, address: str) -> str:
    caption = f'<figcaption class="faint">{text_html(name)}</figcaption>'
    return f'<figure><img src="{address}" alt="{escape(name)}">{caption}</figure>'
