"""Label leakage: features (length, position, single words) that predict the label without reading the prompt."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrc

from ..types import PreferencePair
from .text_style import split_words

SURE = 1e-6
"""Significance level of reported features: binomial test, Bonferroni-corrected over all features."""
PARTS = re.compile(r"\w+|[^\w\s]+")
FIRST, LAST = "first=", "last="


class Leak(NamedTuple):
    """A feature that differs between the completions of pairs, and its accuracy as a predictor of the label."""

    kind: str
    """Kind of feature: `length`, `position`, `marker`, `opening` or `ending`."""
    sign: str
    pairs: int
    """Number of pairs whose completions differ in the feature."""
    right: float
    """Accuracy in [0.5, 1] of the better rule: completions with the feature win, or completions without it win."""
    rows: tuple[int, ...]
    """Indices of the pairs whose completions differ in the feature, ascending."""

    @property
    def sentence(self) -> str:
        """Return the finding as a sentence for reports."""
        return f"{self.sign}: right in {self.right:.1%} of {self.pairs:,} pairs"


def leaks(pairs: Sequence[PreferencePair], first: Sequence[bool | None] = ()) -> list[Leak]:
    """Find features that differ in at least 0.5 % of the pairs, and predict the label of these with accuracy >= 0.8.

    `first` states for each pair whether its chosen completion came first in the data (None: unknown). Features are the
    longer completion (in words), the first completion, and every word that only one of the two completions contains,
    begins with or ends with. The label is the preferred completion in the first objective that has a preference; pairs
    without a preference are not counted.
    """
    least = max(20, 0.005 * len(pairs))
    sides = _pair_labels(pairs)
    longer = np.sign([len(split_words(pair.texts[0])) - len(split_words(pair.texts[1])) for pair in pairs])
    came_first = np.array([0 if chosen_first is None else 1 if chosen_first else -1 for chosen_first in first])
    positions = came_first * sides[: len(came_first)]
    candidates = [
        *_leaks("length", ("the longer completion is chosen", "the shorter completion is chosen"), longer * sides),
        *_leaks("position", ("the first completion is chosen", "the second completion is chosen"), positions),
        *_word_leaks(pairs, sides, least),
    ]
    large = [leak for leak in candidates if leak.pairs >= least and leak.right >= 0.8]
    return [leak for leak in large if _chance(leak) * len(candidates) <= SURE]


def _chance(leak: Leak) -> float:
    """Return the two-sided p-value of k >= n/2 correct predictions: min(1, 2 P(X >= k)) for X ~ Binomial(n, 1/2)."""
    correct = round(leak.right * leak.pairs)
    return min(1.0, 2 * float(bdtrc(correct - 1, leak.pairs, 0.5)))


def _pair_labels(pairs: Sequence[PreferencePair]) -> np.ndarray:
    """Return labels [N]: 1 if the chosen completion is preferred, -1 if the rejected one is, 0 if neither is."""
    better = [next(filter(None, map(pair.preferred, pair.wins)), None) for pair in pairs]
    sides = (0 if choice is None else 1 if choice is pair else -1 for choice, pair in zip(better, pairs, strict=True))
    return np.fromiter(sides, np.int8)


def _leaks(kind: str, names: tuple[str, str], signs: np.ndarray) -> Iterator[Leak]:
    """Yield the leak of a feature with signs [N]: 1 if only chosen has it, -1 if only rejected has it, else 0."""
    rows = np.flatnonzero(signs)
    if len(rows):
        chosen = int((signs > 0).sum())
        sign = names[0] if 2 * chosen >= len(rows) else names[1]
        yield Leak(kind, sign, len(rows), max(chosen, len(rows) - chosen) / len(rows), tuple(rows.tolist()))


def _word_leaks(pairs: Sequence[PreferencePair], sides: np.ndarray, least: float) -> Iterator[Leak]:
    """Yield the leaks of words that only one completion contains, begins with or ends with."""
    texts = [tuple(map(_words_of, pair.texts)) for pair in pairs]
    counts = Counter(word for sides_of_pair in texts for words in sides_of_pair for word in words)
    rows_by_word: dict[str, tuple[array, array]] = defaultdict(lambda: (array("q"), array("b")))
    for row, (chosen, rejected) in enumerate(texts):
        for words, side in ((chosen - rejected, sides[row]), (rejected - chosen, -sides[row])):
            for word in words if side else ():
                if counts[word] >= int(least):
                    rows, signs = rows_by_word[word]
                    rows.append(row)
                    signs.append(int(side))
    for word in sorted(rows_by_word):
        rows, signs = rows_by_word[word]
        if len(signs) < least:
            continue
        up = sum(sign > 0 for sign in signs)
        kind, sign = _feature_name(word, "chosen" if 2 * up >= len(signs) else "rejected")
        yield Leak(kind, sign, len(signs), max(up, len(signs) - up) / len(signs), tuple(rows))


def _words_of(completion: str) -> set[str]:
    """Return the distinct words, and the first and the last word with a prefix: `first=sure`, `last=day`."""
    parts = [part for word in split_words(completion.lower()) for part in PARTS.findall(word)]
    return {*parts, FIRST + parts[0], LAST + parts[-1]} if parts else set()


def _feature_name(word: str, side: str) -> tuple[str, str]:
    if word.startswith(FIRST):
        return "opening", f"the {side} completion begins with '{word.removeprefix(FIRST)}'"
    if word.startswith(LAST):
        return "ending", f"the {side} completion ends with '{word.removeprefix(LAST)}'"
    return "marker", f"the {side} completion says '{word}'"
