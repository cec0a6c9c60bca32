"""How much a completion repeats itself, and how varied completions are together."""

import math
from collections.abc import Hashable, Sequence

Ngram = tuple[Hashable, ...]


def repetition(tokens: Sequence[Hashable], n: int = 3) -> float:
    """The share of n-grams that the completion has said before, in [0, 1); NaN for fewer than n tokens.

    seq-rep-n = 1 - |different n-grams| / |n-grams|                 Welleck et al. 2019, arXiv:1908.04319

    >>> repetition("a b a b a".split())
    0.33...
    """
    return 1 - _different(_ngrams(tokens, n))


def distinct(completions: Sequence[Sequence[Hashable]], n: int = 1) -> float:
    """|different n-grams| / |n-grams| of all completions together, in (0, 1]; NaN where none has n tokens.

    distinct-n of Li et al. 2016, arXiv:1510.03055. It falls as the text grows: compare equal numbers of completions of
    like length.
    """
    return _different([gram for completion in completions for gram in _ngrams(completion, n)])


def _ngrams(tokens: Sequence[Hashable], n: int) -> list[Ngram]:
    return [*zip(*(tokens[start:] for start in range(n)), strict=False)]


def _different(grams: Sequence[Ngram]) -> float:
    return len({*grams}) / len(grams) if grams else math.nan
