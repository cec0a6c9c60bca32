"""Rewriting of other wordings, ordinals, negations and languages into the English forms that the grammars match.

Each row of a table is a pattern and its English form. Text without a matching row is kept, so that an unknown word
beside a verdict (a negation, a condition) prevents a match.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ...rm.io.checked_files import from_toml

Rows = Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]

X = r"(?<![A-Za-z0-9])(?:Response )?(?P<x>[AB])(?![A-Za-z0-9]) ?"
Y = r"(?:Response )?(?P<y>[AB])(?![A-Za-z0-9]) ?"

LANGUAGES = from_toml((Path(__file__).parent / "languages.toml").read_text(encoding="utf-8"))
"""Patterns of words by language. The file describes its format."""
CJK = r"[\u3040-\u30ff\u4e00-\u9fff]"
PUNCTUATION = str.maketrans({"。": ". ", "，": ", ", "、": ", ", "：": ": ", "；": "; ", "！": "! ", "？": "? "})


def translate_to_english(text: str) -> str:
    """Return the text with all words that `LANGUAGES` covers translated to English.

    >>> translate_to_english("Antwort B ist besser als Antwort A."), translate_to_english("回答B不好。")
    ('Response B is better than Response A.', 'Response B 不好. ')
    """
    for language in LANGUAGES:
        if _trigger(language).search(text):
            text = replace_patterns(text.translate(PUNCTUATION), _rows(language))
    return text


@cache
def _trigger(language: str) -> re.Pattern[str]:
    """Return a pattern of the words by which a text in the language is recognized."""
    names = ("response", "better", "tie", "verdict", "score")
    return re.compile("|".join(LANGUAGES[language][name] for name in names), re.IGNORECASE)


@cache
def _rows(language: str) -> Rows:
    """Return the patterns of the language, each with its English form."""
    words = LANGUAGES[language]
    clause = words["clause"].format(X=X, Y=Y, better=words["better"])
    table = {
        words["first"]: "Response A",
        words["second"]: "Response B",
        rf"{words['response']} ?[\"'(„“]*(?P<x>[AB])(?![A-Za-z0-9])[\"')“”]*": r"Response \g<x>",
        rf"{clause}(?![^\W\d_])": lambda match: (
            f"Response {match['x']} is better" + (f" than Response {match['y']}" if match["y"] else "")
        ),
        rf"(?<=Response [AB])(?={CJK})": " ",
        words["tie"]: "Tie",
        rf"(?:\b(?:der|die|das|le|la|el) )?(?:{words['verdict']})(?: ?:| (?:ist|est|es)\b|是|は)": "Winner:",
        rf"(?:{words['score']}) ?:": "Score:",
        words["therefore"]: "Therefore ",
        words["because"]: " because ",
        words["however"]: " however ",
        words["condition"]: " if ",
        words["actually"]: "Actually, ",
        words["unsure"]: " I am not sure",
    }
    return [(re.compile(pattern, re.IGNORECASE), english) for pattern, english in table.items()]


def replace_patterns(text: str, rows: Rows) -> str:
    """Return the text with each row's pattern replaced, in order."""
    for pattern, replacement in rows:
        text = pattern.sub(replacement, text)
    return text


NUMBERED = r"(?:response|assistant|output|candidate|completion|reply)"
PLACED = rf"(?:{NUMBERED}|answer|model)"  # no option or choice, which may be the task's
NOT_AN_ARTICLE = r"(?!(?-i:a\b))"
DENIED = (
    r"(?:i|we)\s+(?:(?:would|do|can|could)\s+not|(?:would|do|ca|could)n['’]t|cannot)\s+(?:say|think|believe)\s+"
    r"(?:that\s+)?"
)
WORSE = r"(?:is|was)\s+(?:(?:clearly|much|slightly|overall|far)\s+)*(?:worse|inferior|weaker)\s+(?:than|to)"


def wordings_of(labels: tuple[str, str], label: str, praise: str) -> Rows:
    """Return rewriting rows for two labels: positions, `is worse than`, `beats`, `not A but B`, `not that A is better`.

    `label` is the pattern of a labelled response, with a group of the same name. `praise` is the pattern of a phrase
    for the better response.
    """
    x, y = (NOT_AN_ARTICLE + label.replace("?P<label>", f"?P<{name}>") for name in "xy")
    any_label = label.replace("?P<label>", "?:")
    table = {
        rf"\b(?:the\s+first\s+{PLACED}|{NUMBERED}\s*#?(?:1|one))\b(?!['’.]\w)": f"Response {labels[0]}",
        rf"\b(?:the\s+second\s+{PLACED}|{NUMBERED}\s*#?(?:2|two))\b(?!['’.]\w)": f"Response {labels[1]}",
        rf"\b{x}\s+{WORSE}\s+{y}": r"Response \g<y> is better than Response \g<x>",
        rf"\s+(?:outperforms|beats|surpasses)\s+(?={any_label})": " is better than ",
        rf"\bnot\s+{x},?\s+but\s+{y}": r"Response \g<y>",
        rf"\b{x},?\s+(?:and\s+not|not|rather\s+than|instead\s+of)\s+{y},?": r"Response \g<x>",
        rf"(?:^|(?<=[.!?]\s))(?:{DENIED}{any_label}\s+is\s+{praise}|{any_label}\s+(?:is\s+not|isn['’]t)\s+{praise})"
        rf"\s*[.;,]\s*(?:but\s+|rather,?\s+)?{y}\s+is\s*(?=[.!]|$)": r"Response \g<y> is better",
    }
    return [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), english) for pattern, english in table.items()]
