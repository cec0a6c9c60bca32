"""Word-by-word difference of two responses."""

import re
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from typing import NamedTuple

from ...html import LONGEST, text_html

WORD = re.compile(r"\S+\s*|\s+")
WORDS = 2_000
"""Maximum number of words of each response that are compared, to bound the time."""


class Piece(NamedTuple):
    """A part of a response, and whether the other response contains it too."""

    text: str
    common: bool


class Diff(NamedTuple):
    """Both responses in pieces, which join to the whole text. `left` is the number of words that were not compared."""

    first: list[Piece]
    second: list[Piece]
    left: int


def word_diff(first: str, second: str) -> Diff:
    """Compare two texts word by word, ignoring white space.

    >>> word_diff("an old oak", "an oak").first
    [Piece(text='an ', common=True), Piece(text='old ', common=False), Piece(text='oak', common=True)]
    """
    words, others = WORD.findall(first), WORD.findall(second)
    ours, theirs = ([word.rstrip() for word in text[:WORDS]] for text in (words, others))
    start = len(commonprefix([ours, theirs]))  # difflib finds no match among frequent words alone
    blocks = SequenceMatcher(None, ours[start:], theirs[start:]).get_matching_blocks()
    common = [(0, 0, start), *((a + start, b + start, size) for a, b, size in blocks)]
    left = max(0, len(words) - WORDS) + max(0, len(others) - WORDS)
    pieces = _pieces(words, [(a, size) for a, _, size in common])
    return Diff(pieces, _pieces(others, [(b, size) for _, b, size in common]), left)


def _pieces(words: list[str], common: list[tuple[int, int]]) -> list[Piece]:
    """Return alternating pieces. Words that were not compared count as common, so that they are not marked."""
    marks = [index >= WORDS for index in range(len(words))]
    for start, size in common:
        marks[start : start + size] = [True] * size
    runs = groupby(zip(words, marks, strict=True), key=itemgetter(1))
    return [Piece("".join(word for word, _ in run), mark) for mark, run in runs]


def pieces_html(pieces: list[Piece], kind: str, longest: int = LONGEST) -> str:
    """Return a response as HTML, cut at `longest`. Words of only this response get the tag `kind` (`ins`, `del`)."""
    html, remaining = [], longest
    for piece in pieces:
        text = text_html(piece.text, max(remaining, 0))
        html.append(text if piece.common else f"<{kind}>{text}</{kind}>")
        remaining -= len(piece.text)
        if remaining < 0:
            break
    hidden = sum(len(piece.text) for piece in pieces[len(html) :])
    more = f'<span class="mark">… {hidden:,} more characters</span>' if hidden else ""
    return "".join(html) + more
