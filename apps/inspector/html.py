"""HTML of the inspector: every text is escaped, the style knows no fixed background."""

import math
import re
from collections.abc import Iterable
from html import escape

STYLE = """<style>
.rl {--line: color-mix(in srgb, currentColor 18%, transparent);
     --soft: color-mix(in srgb, currentColor 5%, transparent);
     --right: #15803d; --wrong: #b91c1c; --other: #7a5d00; --none: #4b5563; font-size: 14px; line-height: 1.5}
.dark .rl {--right: #4ade80; --wrong: #fca5a5; --other: #fbbf24; --none: #d1d5db}
.rl * {box-sizing: border-box}
.rl h1 {font-size: 18px; font-weight: 600; margin: 0; overflow-wrap: anywhere}
.rl h2.part {font-size: 16px; font-weight: 600; margin: 16px 0 6px}
.rl p {margin: 0 0 8px} .rl p:last-child {margin: 0}
.rl.heading {display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: baseline}
.rl .text:not(.rendered) {white-space: pre-wrap; overflow-wrap: anywhere; font-family: inherit; margin: 0}
.rl .box {border: 1px solid var(--line); border-radius: 8px; overflow: hidden; min-width: 0}
.rl .head {display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; padding: 7px 14px;
           background: var(--soft); border-bottom: 1px solid var(--line); font-weight: 600}
.rl .body {padding: 10px 14px; max-height: 32rem; overflow: auto}
.rl .prompt .body {max-height: 18rem}
.rl .turn + .turn {margin-top: 10px; padding-top: 10px; border-top: 1px dashed var(--line)}
.rl .faint {opacity: .65; font-weight: 400} .rl .faint:has(.wrong) {opacity: 1}
.rl .end {margin-left: auto; font-variant-numeric: tabular-nums}
.rl .pill {border: 1px solid; border-radius: 99px; padding: 0 9px; font-size: 12px; font-weight: 600}
.rl .right {color: var(--right)} .rl .wrong {color: var(--wrong)}
.rl .tie {color: var(--other)} .rl .abstained {color: var(--none)}
.rl .answers {display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
              margin: 12px 0}
.rl .box.best {border-color: var(--right); box-shadow: inset 4px 0 var(--right)}
.rl .scores {overflow-x: auto}
.rl table {border-collapse: collapse; width: 100%; margin: 0; font-variant-numeric: tabular-nums}
.rl th, .rl td {padding: 5px 14px; text-align: right; border: 0; border-bottom: 1px solid var(--line)}
.rl tbody:last-child tr:last-child > * {border-bottom: 0}
.rl tbody th {font-weight: 400}
.rl abbr {text-decoration: underline dotted; text-underline-offset: 3px; cursor: help}
.rl table a {color: inherit; text-decoration: none}
.rl table a:is(:hover, :focus-visible) {text-decoration: underline}
.rl thead th {background: var(--soft); font-weight: 600}
.rl td:first-child, .rl th:first-child {text-align: left; overflow-wrap: anywhere}
.rl :is(td, th):is(.words, .why) {text-align: left}
.rl .scores td:first-child, .rl .scores th:first-child {min-width: 9rem}
.rl ins, .rl del {text-decoration: none; border-radius: 3px}
.rl ins {background: color-mix(in srgb, var(--right) 20%, transparent); border-bottom: 2px solid var(--right)}
.rl del {background: color-mix(in srgb, var(--wrong) 16%, transparent); border-bottom: 2px dotted var(--wrong)}
.rl .star {color: var(--other)}
.rl tr.mine :is(td, th) {background: var(--soft); font-weight: 600}
.rl .with-csv {position: relative}
.rl button:is(.csv, .copy) {font: inherit; font-size: 12px; color: inherit; background: none; cursor: pointer;
    border: 1px solid var(--line); border-radius: 6px; padding: 1px 8px; white-space: nowrap}
.rl button:is(.csv, .copy):hover {background: var(--soft)}
.rl .with-csv > .csv {display: block; margin: 4px 0 0 auto}
.rl .empty {border: 1px dashed var(--line); border-radius: 8px; padding: 16px 20px; margin: 8px 0}
.rl .command {display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin-top: 8px}
.rl .command code {background: var(--soft); padding: 2px 8px; border-radius: 4px; overflow-wrap: anywhere}
.rl .skeleton i {display: block; height: 14px; margin: 14px 0; border-radius: 7px; background: var(--line)}
.rl .skeleton i:nth-child(3n + 1) {width: 92%} .rl .skeleton i:nth-child(3n + 2) {width: 78%}
.rl .skeleton i:nth-child(3n) {width: 85%}
.rl .mark {color: var(--other); font-size: 11px; border: 1px dotted; border-radius: 3px; padding: 0 3px}
@media (max-width: 700px) {
    .gradio-container > .main {padding-inline: 14px !important}
    .rl :is(th, td) {padding-inline: 7px}
    .rl .scores :is(td, th):first-child {min-width: 5.5rem}
}
</style>"""


HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
COMMAND = re.compile(r"`[^`]+`")
LONGEST = 100_000
CSV = '<button type="button" class="csv">Copy as CSV</button>'
"""Copies the table of the `with-csv` around it."""


def shown(text: str, longest: int = LONGEST) -> str:
    """Return an untrusted text as HTML: escaped, with visible control characters, and cut at `longest`.

    >>> shown("<b>\\x1b[31m\\u202etxt"), shown("abcdef", 4)
    ('&lt;b&gt;␛[31m<span class="mark">U+202E</span>txt', 'abcd<span class="mark">… 2 more characters</span>')
    """
    cut = f'<span class="mark">… {len(text) - longest:,} more characters</span>' if len(text) > longest else ""
    return HIDDEN.sub(_visible, escape(text[:longest])) + cut


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 32:
        return chr(0x2400 + code)
    return f'<span class="mark">U+{code:04X}</span>'


def pill(outcome: str) -> str:
    """Return a word in a coloured frame."""
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
    """Return the decimals for numbers of one column or row: the largest gets four digits.

    >>> decimals_of([34.0, 126.0]), decimals_of([1.3, -0.0002]), decimals_of([0.02]), decimals_of([5123.4])
    (0, 3, 4, 0)
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    if all(value == int(value) for value in known):
        return 0
    return min(4, max(0, 3 - math.floor(math.log10(max(known)))))


def with_csv(table: str) -> str:
    """Return a table in a frame, with a button that copies it as CSV."""
    return f'<div class="with-csv"><div class="box scores">{table}</div>{CSV}</div>'


def skeleton_html() -> str:
    """Return bars in place of texts that are still loaded."""
    return f'{STYLE}<div class="rl" aria-busy="true"><div class="skeleton">{"<i></i>" * 8}</div></div>'


def note_html(text: str) -> str:
    """Return a note in place of content that cannot be shown; lines in backticks are commands, which can be copied.

    >>> '<code>make demo</code><button type="button" class="copy">Copy</button>' in note_html("No run.\\n`make demo`")
    True
    """
    lines = text.split("\n")
    commands = [line[1:-1] for line in lines if COMMAND.fullmatch(line)]
    sentences = "\n".join(line for line in lines if not COMMAND.fullmatch(line))
    note = f'<p class="note">{shown(sentences)}</p>'
    if not commands:
        return f'{STYLE}<div class="rl">{note}</div>'
    copied = "".join(
        f'<div class="command"><code>{shown(command)}</code><button type="button" class="copy">Copy</button></div>'
        for command in commands
    )
    return f'{STYLE}<div class="rl"><div class="empty">{note}{copied}</div></div>'
