"""Repetition within a completion, and diversity of a set of completions."""

import math
from collections.abc import Hashable, Sequence

Ngram = tuple[Hashable, ...]


def repetition(tokens: Sequence[Hashable], n: int = 3) -> float:
    """Return the share of n-grams that occurred before in the completion, in [0, 1); NaN for fewer than n tokens.

    seq-rep-n = 1 - |different n-grams| / |n-grams|                 Welleck et al. 2019, arXiv:1908.04319

    >>> repetition("a b a b a".split())
    0.33...
    """
    return 1 - _different(_ngrams(tokens, n))


def distinct(completions: Sequence[Sequence[Hashable]], n: int = 1) -> float:
    """Return |distinct n-grams| / |n-grams| over all completions; NaN if none has n tokens   arXiv:1510.03055"""
    return _different([gram for completion in completions for gram in _ngrams(completion, n)])


def _ngrams(tokens: Sequence[Hashable], n: int) -> list[Ngram]:
    return [*zip(*(tokens[start:] for start in range(n)), strict=False)]


def _different(grams: Sequence[Ngram]) -> float:
    return len({*grams}) / len(grams) if grams else math.nan
