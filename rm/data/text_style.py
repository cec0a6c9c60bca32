"""Words, shingles, Markdown and repetition of texts, also in scripts that put no blanks between words."""

import math
import re
from collections.abc import Hashable, Sequence

FENCED = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"^#{1,6}[ \t]|^[ \t]*(?:[-*+]|\d+[.)])[ \t]|\*\*[^*\n]+\*\*", re.MULTILINE)
WORDS = 3
"""Words per shingle."""
KANA = r"\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
IDEOGRAPHS = rf"\u3005{KANA}\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Han and Kana."""
LETTERS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese and Khmer."""
UNITS = re.compile(rf"([{IDEOGRAPHS}])|([{LETTERS}])|[^\s{IDEOGRAPHS}{LETTERS}]+")
LONG = 60
"""Length of a word in sixtieths; a Chinese or Japanese character has 36 and a Thai letter 15, so that three words
correspond to 5 such characters or 12 such letters."""
LENGTHS = {1: 36, 2: 15, None: LONG}


def markdown_marks(text: str) -> int:
    """Count headers, list items, bold words and blocks of code; the contents of a block of code are not counted.

    >>> markdown_marks("# Title\\n- **one**\\n- two\\n```python\\n# no header\\n```")
    5
    """
    rest, blocks = FENCED.subn("", text)
    return blocks + len(MARKS.findall(rest))


def split_words(text: str) -> list[str]:
    """Split a text at blanks; parts in scripts without blanks are split into characters.

    >>> split_words("what is 光合作用?")
    ['what', 'is', '光', '合', '作', '用', '?']
    """
    return [match[0] for match in UNITS.finditer(text)]


def shingles(text: str) -> list[str]:
    """Return all sequences of three words, or of an equivalent number of characters in scripts without blanks.

    >>> shingles("a b c d")
    ['a b c', 'b c d']
    >>> shingles("植物的光合作用")
    ['植 物 的 光 合', '物 的 光 合 作', '的 光 合 作 用']
    """
    units = [(match[0], LENGTHS[match.lastindex]) for match in UNITS.finditer(text)]
    runs, end, length = [], 0, 0
    for start, (_, first) in enumerate(units):
        while end < len(units) and length < WORDS * LONG:
            length += units[end][1]
            end += 1
        if length < WORDS * LONG:
            break
        runs.append(" ".join(unit for unit, _ in units[start:end]))
        length -= first
    return runs


def word_count(text: str) -> float:
    """Return the length of a text in words. In scripts without blanks, characters are converted to words.

    >>> word_count("three little words"), word_count("植物的光合")
    (3.0, 3.0)
    """
    return sum(LENGTHS[match.lastindex] for match in UNITS.finditer(text)) / LONG


Ngram = tuple[Hashable, ...]


def repetition(tokens: Sequence[Hashable], n: int = 3) -> float:
    """Return the share of n-grams that occurred before in the completion, in [0, 1); NaN for fewer than n tokens.

    seq-rep-n = 1 - |different n-grams| / |n-grams|                 Welleck et al. 2019, arXiv:1908.04319

    >>> repetition("a b a b a".split())
    0.33...
    """
    return 1 - _distinct_share(_ngrams(tokens, n))


def distinct(completions: Sequence[Sequence[Hashable]], n: int = 1) -> float:
    """Return |distinct n-grams| / |n-grams| over all completions; NaN if none has n tokens   arXiv:1510.03055"""
    return _distinct_share([gram for completion in completions for gram in _ngrams(completion, n)])


def _ngrams(tokens: Sequence[Hashable], n: int) -> list[Ngram]:
    return [*zip(*(tokens[start:] for start in range(n)), strict=False)]


def _distinct_share(grams: Sequence[Ngram]) -> float:
    return len({*grams}) / len(grams) if grams else math.nan
