"""HTML of the inspector: every text is escaped, the style knows no fixed background."""

import re
from html import escape

STYLE = """<style>
.rl {--line: color-mix(in srgb, currentColor 18%, transparent);
     --soft: color-mix(in srgb, currentColor 5%, transparent);
     --right: #15803d; --wrong: #b91c1c; --other: #a14a07; font-size: 14px; line-height: 1.5}
.dark .rl {--right: #4ade80; --wrong: #fca5a5; --other: #fbbf24}
.rl * {box-sizing: border-box}
.rl h1 {font-size: 22px; font-weight: 600; margin: 0; overflow-wrap: anywhere}
.rl.heading {display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: baseline}
.rl .text {white-space: pre-wrap; overflow-wrap: anywhere; font-family: inherit; margin: 0}
.rl .box {border: 1px solid var(--line); border-radius: 8px; overflow: hidden; min-width: 0}
.rl .head {display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; padding: 7px 14px;
           background: var(--soft); border-bottom: 1px solid var(--line); font-weight: 600}
.rl .body {padding: 10px 14px; max-height: 32rem; overflow: auto}
.rl .prompt .body {max-height: 18rem}
.rl .turn + .turn {margin-top: 10px; padding-top: 10px; border-top: 1px dashed var(--line)}
.rl .faint {opacity: .65; font-weight: 400}
.rl .end {margin-left: auto; font-variant-numeric: tabular-nums}
.rl .pill {border: 1px solid; border-radius: 99px; padding: 0 9px; font-size: 12px; font-weight: 600}
.rl .right {color: var(--right)} .rl .wrong {color: var(--wrong)}
.rl .tie, .rl .abstained {color: var(--other)}
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
.rl td.why {text-align: left}
.rl .scores td:first-child, .rl .scores th:first-child {min-width: 9rem}
.rl ins, .rl del {text-decoration: none; border-radius: 3px}
.rl ins {background: color-mix(in srgb, var(--right) 20%, transparent); border-bottom: 2px solid var(--right)}
.rl del {background: color-mix(in srgb, var(--wrong) 16%, transparent); border-bottom: 2px dotted var(--wrong)}
.rl .star {color: var(--other)}
.rl tr.mine :is(td, th) {background: var(--soft); font-weight: 600}
.rl .mark {color: var(--other); font-size: 11px; border: 1px dotted; border-radius: 3px; padding: 0 3px}
</style>"""


HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
LONGEST = 100_000


def shown(text: str, longest: int = LONGEST) -> str:
    """An untrusted text as HTML: escaped, with control and direction marks made visible, and cut where it is endless.

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


def number(value: float | None) -> str:
    """Four significant digits, without an exponent where a reader expects none.

    >>> number(0.123456), number(-12345.678), number(1892.0), number(None)
    ('0.1235', '-12,345.7', '1,892', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}".removesuffix(".0")


def note_html(text: str) -> str:
    """Return a note in place of content that cannot be shown."""
    return f'{STYLE}<div class="rl"><p class="note">{shown(text)}</p></div>'
