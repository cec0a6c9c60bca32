"""Word-by-word difference of two responses."""

import re
from difflib import SequenceMatcher
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
    left = max(0, len(words) - WORDS) + max(0, len(others) - WORDS)
    compared, against = words[:WORDS], others[:WORDS]
    ours, theirs = [word.rstrip() for word in compared], [word.rstrip() for word in against]
    start = next(
        (k for k, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), min(len(ours), len(theirs))
    )
    blocks = SequenceMatcher(None, ours[start:], theirs[start:]).get_matching_blocks()
    common = [(0, 0, start), *((a + start, b + start, size) for a, b, size in blocks)]
    return Diff(
        _pieces(compared, [(a, size) for a, _, size in common], "".join(words[WORDS:])),
        _pieces(against, [(b, size) for _, b, size in common], "".join(others[WORDS:])),
        left,
    )


def _pieces(words: list[str], common: list[tuple[int, int]], rest: str) -> list[Piece]:
    """Return alternating pieces. Words that were not compared count as common, so that they are not marked."""
    pieces, end = [], 0
    for start, size in common:
        pieces += [Piece("".join(words[end:start]), False), Piece("".join(words[start : start + size]), True)]
        end = start + size
    merged: list[Piece] = []
    for piece in (piece for piece in [*pieces, Piece(rest, True)] if piece.text):
        if merged and merged[-1].common == piece.common:
            merged[-1] = Piece(merged[-1].text + piece.text, piece.common)
        else:
            merged.append(piece)
    return merged


def pieces_html(pieces: list[Piece], kind: str, longest: int = LONGEST) -> str:
    """Return a response as HTML, cut at `longest`. Words of this response only are marked as `kind` (`ins`, `del`)."""
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
