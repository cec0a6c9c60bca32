"""Signs by which one could guess the better answer of every pair without reading the prompt: a data set's leaks."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse, stats
from sklearn.feature_extraction.text import CountVectorizer

from .types import PreferencePair

SURE = 1e-6
"""Largest p, of a binomial test with Bonferroni's correction over all signs, at which a sign is told."""


class Leak(NamedTuple):
    """A sign that stands on one side of some pairs, and how often that is the chosen side."""

    kind: str
    """`length`, `position`, `marker`, `opening` or `ending`."""
    sign: str
    pairs: int
    """In which it tells the answers apart."""
    right: float
    """How often the better guess by it is right, in [0.5, 1]."""
    rows: tuple[int, ...]
    """Of those pairs, in order."""

    @property
    def sentence(self) -> str:
        """For a reader."""
        return f"{self.sign}: right in {self.right:.1%} of {self.pairs:,} pairs"


def leaks(
    pairs: Sequence[PreferencePair], first: Sequence[bool | None] = (), *, right: float = 0.8, share: float = 0.005
) -> list[Leak]:
    """The signs that tell the label in at least `right` of the pairs that have them, and stand in `share` of all.

    `first` says of each pair whether its chosen answer stood first in the data, where they say. Signs are: which answer
    is longer (by words), which stood first, and every word that stands in one of the two answers alone, anywhere, as
    its first word or as its last.
    """
    if not 0.5 < right <= 1:
        raise ValueError(f"right is a share in (0.5, 1], got {right}")
    least = max(20, share * len(pairs))
    told = [*_length(pairs), *_position(first), *_words(pairs, least)]
    return [
        one for one in told if one.pairs >= least and one.right >= right and _chance(one) * max(len(told), 1) <= SURE
    ]


def _chance(leak: Leak) -> float:
    """P of so many right guesses or more, if each is right with 1/2; two-sided."""
    return float(stats.binomtest(round(leak.right * leak.pairs), leak.pairs).pvalue)


def _length(pairs: Sequence[PreferencePair]) -> Iterator[Leak]:
    gaps = np.array([len(pair.chosen.split()) - len(pair.rejected.split()) for pair in pairs])
    yield from _told("length", ("the longer answer is chosen", "the shorter answer is chosen"), np.sign(gaps))


def _position(first: Sequence[bool | None]) -> Iterator[Leak]:
    signs = np.array([0 if one is None else 1 if one else -1 for one in first])
    yield from _told("position", ("the first answer is chosen", "the second answer is chosen"), signs)


def _told(kind: str, names: tuple[str, str], signs: np.ndarray) -> Iterator[Leak]:
    """Signs [N]: 1 where they point to the chosen answer, -1 to the rejected one, 0 where they do not tell."""
    rows = np.flatnonzero(signs)
    if len(rows):
        chosen = int((signs > 0).sum())
        sign = names[0] if 2 * chosen >= len(rows) else names[1]
        yield Leak(kind, sign, len(rows), max(chosen, len(rows) - chosen) / len(rows), tuple(rows.tolist()))


def _words(pairs: Sequence[PreferencePair], least: float) -> Iterator[Leak]:
    sides = [[_with_edges(one) for one in side] for side in zip(*((p.chosen, p.rejected) for p in pairs), strict=True)]
    counter = CountVectorizer(analyzer=str.split, binary=True, min_df=min(int(least), 2 * len(pairs)), dtype=np.int8)
    try:
        counter.fit([text for side in sides for text in side])
    except ValueError:  # no word is frequent enough
        return
    chosen, rejected = (sparse.csc_matrix(counter.transform(side)) for side in sides)
    apart = sparse.csc_matrix(chosen - rejected)
    apart.eliminate_zeros()
    for place, word in enumerate(counter.get_feature_names_out()):
        signs = apart.data[apart.indptr[place] : apart.indptr[place + 1]]
        if len(signs) < least:
            continue
        up = int((signs > 0).sum())
        kind, sign = _name(word, "chosen" if 2 * up >= len(signs) else "rejected")
        rows = np.sort(apart.indices[apart.indptr[place] : apart.indptr[place + 1]])
        yield Leak(kind, sign, len(signs), max(up, len(signs) - up) / len(signs), tuple(rows.tolist()))


def _with_edges(answer: str) -> str:
    """The words, and the first and the last one once more, marked: `^sure`, `day$`."""
    words = re.findall(r"\w+|[^\w\s]+", answer.lower())
    return " ".join([*words, f"^{words[0]}", f"{words[-1]}$"] if words else [])


def _name(word: str, side: str) -> tuple[str, str]:
    if word.startswith("^"):
        return "opening", f"the {side} answer begins with '{word[1:]}'"
    if word.endswith("$"):
        return "ending", f"the {side} answer ends with '{word[:-1]}'"
    return "marker", f"the {side} answer says '{word}'"
