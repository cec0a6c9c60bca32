"""Escaping of untrusted texts (names, prompts, errors) for terminals, spreadsheets, Markdown and manifests."""

import re
from collections.abc import Sequence
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move the cursor, set colours, hide or reverse text; tabs and line ends are kept."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
SCRIPTED = re.compile(r"\](?=[(:]\s*<?\s*(?:javascript|vbscript|data)\s*:)", re.IGNORECASE)
ESCAPES = re.compile(r"\\(?=\|)|(?<=!)\\(?=\[)|\\(?=\][(:])")
"""Pattern of the backslash escapes that `escape_markdown` and `table` write."""
SECRET = re.compile(
    r"(?P<name>[\w-]*(?:token|secret|password|api[_-]?key)(?!s|izer|\w*env\b)\w*)(?P<sign>=|:\s*)(?P<value>[^\s,)&]+)",
    re.IGNORECASE,
)
SECRET_FLAG = re.compile(r"--[\w-]*(?:token|secret|password|api[_-]?key)(?!s|izer|\w*env\b)\w*", re.IGNORECASE)
KEYS = re.compile(r"\b(?:hf_|sk-|ghp_|xox[bp]-)[\w-]{16,}|(?<=://)[^/\s@]+:[^/\s@]+(?=@)")
HIDDEN = "***"


def escape_terminal(text: str) -> str:
    r"""Replace control characters that a terminal would execute; line ends are kept.

    >>> escape_terminal("\x1b[31mred\x1b[0m\n\u202etxt")
    '�[31mred�[0m\n�txt'
    """
    return CONTROL.sub("\ufffd", text)


def terminal_json(text: str) -> str:
    r"""Escape control characters in a line of JSON, so that its values stay the same.

    >>> terminal_json('["\x9b31m"]')
    '["\\u009b31m"]'
    """
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_formula(value: Any) -> Any:
    """Return a cell's value, changed such that no spreadsheet evaluates it as a formula. Numbers are unchanged.

    >>> escape_formula("=1+1"), escape_formula(" @SUM(A1)"), escape_formula("a = b"), escape_formula(-1.5)
    ("'=1+1", "' @SUM(A1)", 'a = b', -1.5)
    """
    if isinstance(value, str) and (value.startswith(FORMULA) or value.lstrip().startswith(FORMULA)):
        return f"'{value}"
    return value


def escape_markdown(text: str) -> str:
    """Return one line of Markdown without HTML, images and script links; other markup is kept.

    >>> escape_markdown("a <b>x</b> ![p](http://x) [c](javascript:f) p < 0.05")
    'a &lt;b>x&lt;/b> !\\\\[p](http://x) [c\\\\](javascript:f) p < 0.05'
    """
    flat = " ".join(escape_terminal(text).split("\n"))
    return SCRIPTED.sub(r"\\]", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", flat).replace("![", "!\\["))


def unescape(markdown: str) -> str:
    r"""Return Markdown as text for a terminal: without the escapes of `escape_markdown` and of tables.

    >>> unescape(escape_markdown("a <b> ![p](http://x)")), unescape(r"| a\|b |")
    ('a <b> ![p](http://x)', '| a|b |')
    """
    return ESCAPES.sub("", markdown).replace("&lt;", "<")


def redact(words: Sequence[str]) -> list[str]:
    """Return the words of a command with tokens, keys and passwords replaced by asterisks.

    >>> redact(["serve", "--token", "abc", "--max_tokens", "9", "--judge", "j(api_key=xyz, n=1)", "http://u:p@h/"])
    ['serve', '--token', '***', '--max_tokens', '9', '--judge', 'j(api_key=***, n=1)', 'http://***@h/']
    """
    redactions, hide = [], False
    for word in words:
        masked = SECRET.sub(rf"\g<name>\g<sign>{HIDDEN}", word)
        redactions.append(HIDDEN if hide else KEYS.sub(HIDDEN, masked))
        hide = bool(SECRET_FLAG.fullmatch(word))
    return redactions
