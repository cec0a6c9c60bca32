"""Counts of words and of neighbouring words, as integers: a suite's responses hold millions of distinct word pairs."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

WORD = re.compile(CountVectorizer().token_pattern)
PART = 2**18  # words whose grams are counted at once


def gram_counts(texts: Sequence[str], uses: np.ndarray, least: int) -> sparse.csr_matrix:
    """Count words and pairs of neighbouring words in every text: [N, G], grams in alphabetical order.

    Only grams that occur in at least `least` documents are counted; text n stands for `uses[n]` documents. The columns
    are those of scikit-learn's `CountVectorizer(ngram_range=(1, 2))`, which holds every gram as a string.
    """
    words, lengths = _word_ranks(texts)
    text = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
    parts = [_count_grams(words, text, first, last, uses, least) for first, last in pairwise(_ranges(words))]
    counts, rows, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    del parts
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return sparse.csr_matrix(sparse.csc_matrix((counts, rows, ends), shape=(len(texts), len(sizes))))


def _word_ranks(texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Return the alphabetical rank of every word [T] of the concatenated texts, and the length of each text."""
    ids: dict[str, int] = {}
    rows = [
        np.array([ids.setdefault(word, len(ids)) for word in WORD.findall(text.lower())], np.int32) for text in texts
    ]
    rank = np.empty(len(ids), np.int32)
    rank[[ids[word] for word in sorted(ids)]] = np.arange(len(ids))
    return rank[np.concatenate([np.empty(0, np.int32), *rows])], [*map(len, rows)]


def _ranges(words: np.ndarray) -> np.ndarray:
    """Split word ranks into ranges with about `PART` words of the texts each, to bound memory; return the bounds."""
    begun = np.cumsum(np.bincount(words, minlength=1))
    inner = np.searchsorted(begun, np.arange(PART, begun[-1], PART))
    return np.unique([0, *inner, len(begun)])


def _count_grams(
    words: np.ndarray, text: np.ndarray, first: int, last: int, uses: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count grams by first word in [first, last): "a" is a·(V + 1), "a b" a·(V + 1) + b + 1, in the strings' order."""
    at = np.flatnonzero((words >= first) & (words < last))
    followed = at[at < len(words) - 1]
    followed = followed[text[followed] == text[followed + 1]]
    size = np.int64(words.max(initial=0) + 2)
    grams = np.concatenate([words[at] * size, words[followed] * size + words[followed + 1] + 1])
    order = np.argsort(grams, kind="stable")  # the texts of a gram stay in order
    grams, rows = grams[order], text[np.concatenate([at, followed])][order]
    gram_starts = _differs_from_previous(grams)
    starts = np.flatnonzero(gram_starts | _differs_from_previous(rows))
    counts, rows = np.diff(starts, append=len(grams)).astype(np.int32), rows[starts]
    gram = np.cumsum(gram_starts[starts]) - 1
    frequent = np.bincount(gram, weights=uses[rows]) >= least
    return counts[frequent[gram]], rows[frequent[gram]], np.bincount(gram)[frequent]


def _differs_from_previous(values: np.ndarray) -> np.ndarray:
    """Return True at every value that differs from the previous value, and at the first value."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]
