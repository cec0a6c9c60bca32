"""HTML of the inspector. Every text is escaped."""

import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
COMMAND = re.compile(r"`[^`]+`")
LONGEST = 100_000
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#F0E442")
"""Colour-blind-safe palette of Okabe and Ito. The first two colours are the ends of diverging scales."""
CSV = '<button type="button" class="csv">Copy as CSV</button>'
"""HTML of a button that copies the table in the surrounding `with-csv` element."""


def text_html(text: str, longest: int = LONGEST) -> str:
    """Return an untrusted text as HTML: escaped, with visible control characters, and cut at `longest`.

    >>> text_html("<b>\\x1b[31m\\u202etxt"), text_html("abcdef", 4)
    ('&lt;b&gt;␛[31m<span class="mark">U+202E</span>txt', 'abcd<span class="mark">… 2 more characters</span>')
    """
    cut = f'<span class="mark">… {len(text) - longest:,} more characters</span>' if len(text) > longest else ""
    return HIDDEN.sub(_visible, escape(text[:longest])) + cut


def _visible(match: re.Match[str]) -> str:
    """Return a visible replacement for a matched control or direction character."""
    code = ord(match[0])
    if code < 32:
        return chr(0x2400 + code)
    return f'<span class="mark">U+{code:04X}</span>'


def pill(outcome: str) -> str:
    """Return an outcome as a word in a coloured frame."""
    return f'<span class="pill {escape(outcome)}">{escape(outcome)}</span>'


def number(value: float | None, decimals: int | None = None) -> str:
    """Format a number with four significant digits, or with the given number of decimals.

    >>> number(0.123456), number(-12345.678), number(1892.0), number(None), number(1.0, 2)
    ('0.1235', '-12,345.7', '1,892', '', '1.00')
    """
    if value is None:
        return ""
    if decimals is not None:
        return f"{value:,.{decimals}f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}".removesuffix(".0")


def decimals_of(values: Iterable[float | None]) -> int:
    """Return the number of decimals for a column or row of numbers, so that the largest has four significant digits.

    >>> decimals_of([34.0, 126.0]), decimals_of([1.3, -0.0002]), decimals_of([0.02]), decimals_of([5123.4])
    (0, 3, 4, 0)
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    if all(value == int(value) for value in known):
        return 0
    return min(4, max(0, 3 - math.floor(math.log10(max(known)))))


def line_text(text: str) -> str:
    """Return an untrusted text escaped for an attribute or an option. Hidden characters become codes such as U+202E."""
    return escape(HIDDEN.sub(lambda match: f"U+{ord(match[0]):04X}", text))


def select_html(name: str, label: str, choices: Iterable[tuple[str, str]], value: str | None, drops: str = "") -> str:
    """Return a drop-down list. A choice sets the value `name` of the address and removes the values in `drops`."""
    options = "".join(
        f'<option value="{line_text(choice)}"{" selected" if choice == value else ""}>{line_text(text)}</option>'
        for text, choice in choices
    )
    dropped = f' data-drops="{drops}"' if drops else ""
    return f'<label>{label}<select name="{name}" aria-label="{label}"{dropped}>{options}</select></label>'


def radio_html(name: str, label: str, choices: Iterable[tuple[str, str]], value: str, drops: str = "") -> str:
    """Return a group of radio buttons that acts like the list of `select_html`."""
    options = "".join(
        f'<label><input type="radio" name="{name}" value="{line_text(choice)}" data-drops="{drops}"'
        f"{' checked' if choice == value else ''}><span>{line_text(text)}</span></label>"
        for text, choice in choices
    )
    return f'<fieldset class="choices"><legend class="unseen">{label}</legend>{options}</fieldset>'


def input_html(name: str, label: str, value: Any, **attributes: Any) -> str:
    """Return an input field whose content becomes the value `name` of the address."""
    more = "".join(f' {key}="{escape(str(text))}"' for key, text in attributes.items())
    return f'<label>{label}<input name="{name}" aria-label="{label}" value="{line_text(str(value))}"{more}></label>'


def with_csv(table: str) -> str:
    """Return a table in a frame, with a button that copies it as CSV."""
    return f'<div class="with-csv"><div class="box scores">{table}</div>{CSV}</div>'


def box_html(head: str, body: str, kind: str = "") -> str:
    """Return a frame of HTML with a head and a body."""
    return f'<div class="box {kind}"><div class="head">{head}</div><div class="body">{body}</div></div>'


def template(*ids: str) -> str:
    """Return an empty element for each id."""
    return "".join(f'<div class="part" id="{id}"></div>' for id in ids)


def columns(*blocks: str) -> str:
    """Return blocks of HTML side by side, or below each other on a narrow page."""
    return f'<div class="columns">{"".join(f"<div>{block}</div>" for block in blocks)}</div>'


def skeleton_html() -> str:
    """Return grey bars, which a page shows while texts are loaded."""
    return f'<div class="skeleton" aria-busy="true">{"<i></i>" * 8}</div>'


def note_html(text: str) -> str:
    """Return a note in place of content that cannot be shown. Lines in backticks become commands with a copy button.

    >>> '<code>make demo</code><button type="button" class="copy">Copy</button>' in note_html("No run.\\n`make demo`")
    True
    """
    lines = text.split("\n")
    commands = [line[1:-1] for line in lines if COMMAND.fullmatch(line)]
    sentences = "\n".join(line for line in lines if not COMMAND.fullmatch(line))
    note = f'<p class="note">{text_html(sentences)}</p>'
    if not commands:
        return f'<div class="rl">{note}</div>'
    copied = "".join(
        f'<div class="command"><code>{text_html(command)}</code><button type="button" class="copy">Copy</button></div>'
        for command in commands
    )
    return f'<div class="rl"><div class="empty">{note}{copied}</div></div>'
