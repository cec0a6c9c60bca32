"""Explanation of a margin: causes whose contributions and remainder sum to the difference of two rewards."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

MOST_CAUSES = 8
"""Maximum number of words and sentences that are listed as separate causes."""


class Cause(NamedTuple):
    """A property or part of the responses, and its contribution to the margin for K objectives."""

    name: str
    values: np.ndarray
    """[K] in units of reward. Positive values raise the margin r(first) - r(second)."""
    detail: str = ""


class Pieces(NamedTuple):
    """A response in pieces, and the contribution of each to the margin for K objectives."""

    texts: tuple[str, ...]
    values: np.ndarray
    """[K, pieces] in units of reward. NaN for pieces whose effect was not measured."""
    note: str = ""


class Attribution(NamedTuple):
    """Causes of a margin, the pieces of both responses, and a sentence on how the contributions are defined."""

    causes: tuple[Cause, ...]
    pieces: tuple[Pieces, Pieces]
    method: str


class Explanation(NamedTuple):
    """Attribution of one model's margin between two responses."""

    model: str
    contract: str
    objectives: tuple[str, ...]
    labels: tuple[str, str]
    """Names of the first and the second response, such as "response 1"."""
    rewards: np.ndarray
    """[2, K]"""
    attribution: Attribution

    @property
    def margin(self) -> np.ndarray:
        """r(first) - r(second) [K]."""
        return self.rewards[0] - self.rewards[1]

    @property
    def remainder(self) -> np.ndarray:
        """The margin minus the contributions of all causes [K]."""
        return self.margin - sum(cause.values for cause in self.attribution.causes)

    def ranked(self, objective: int) -> list[Cause]:
        """Return the causes in descending order of their contribution to the lead of the better response."""
        side = -1 if self.margin[objective] < 0 else 1
        return sorted(self.attribution.causes, key=lambda cause: -side * cause.values[objective])

    def lead(self, objective: int) -> str:
        """Return a sentence on the main cause, as in "length explains 1.8 of the margin of 2.1"."""
        margin = float(self.margin[objective])
        if not margin:
            return "Both responses have the same reward."
        side, size, better = np.sign(margin), f"{abs(margin):.3g}", self.labels[int(margin < 0)]
        main = next(iter(self.ranked(objective)), None)
        if main is None or side * main.values[objective] <= 0:
            return f"None of the tested causes explains the margin of {size} for {better}."
        share = f"{main.name} explains {abs(main.values[objective]):.3g} of the margin of {size} for {better}"
        rest = abs(self.remainder[objective])
        more = f"; {rest:.3g} is not explained" if rest > abs(margin) / 2 else ""
        return f"{share[0].upper()}{share[1:]}{f' ({main.detail})' if main.detail else ''}{more}."


def bundle(causes: Iterable[Cause], noun: str) -> list[Cause]:
    """Add up causes of the same name, and return the largest and the sum of the others, with `noun` in its name."""
    sums: dict[str, Cause] = {}
    for cause in causes:
        total = sums.get(cause.name)
        sums[cause.name] = cause if total is None else total._replace(values=total.values + cause.values)
    ranked = sorted(sums.values(), key=lambda cause: -np.abs(cause.values).max())
    largest, others = ranked[:MOST_CAUSES], ranked[MOST_CAUSES:]
    if not others:
        return largest
    total = np.sum([cause.values for cause in others], axis=0)
    return [*largest, Cause(f"the sum of {len(others):,} other {noun}", total)]


def word_causes(pieces: Sequence[Pieces]) -> list[Cause]:
    """Return a cause for each distinct word of the pieces. Tokens within a word are joined."""
    return bundle(
        (Cause(f"the word '{word}'", values) for part in pieces for word, values in _words(part) if word), "words"
    )


def _words(part: Pieces) -> list[tuple[str, np.ndarray]]:
    """Return the words of consecutive pieces, and the sums [K] of their values."""
    words: list[tuple[str, np.ndarray]] = []
    before = " "
    for text, values in zip(part.texts, part.values.T, strict=True):
        if before[-1:].isspace() or text[:1].isspace():
            words.append((text, values))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1] + values)
        before = text or before
    return [(word_key(word), values) for word, values in words]


def word_key(word: str) -> str:
    """Return a word in lower case without the blanks and punctuation around it. Punctuation alone is returned as it is.

    >>> word_key("'Kind,' "), word_key("--")
    ('kind', '--')
    """
    lower = word.strip().casefold()
    return lower.strip(".,;:!?()[]{}\"'`*_#<>…“”‘’。、！？") or lower
