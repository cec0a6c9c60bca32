"""Counts of words and of neighbouring words, as integers: a suite's responses hold millions of distinct word pairs."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

WORD = re.compile(CountVectorizer().token_pattern)


def gram_counts(texts: Sequence[str], uses: np.ndarray, least: int) -> sparse.csr_matrix:
    """Count words and pairs of neighbouring words in every text: [N, G], grams in alphabetical order.

    Only grams that occur in at least `least` documents are counted; text n stands for `uses[n]` documents. The columns
    are those of scikit-learn's `CountVectorizer(ngram_range=(1, 2))`, which holds every gram as a string.
    """
    grams, counts, lengths = _grams(*_word_ranks(texts))
    distinct = _distinct(grams)
    index = np.searchsorted(distinct, grams).astype(np.int32)
    del grams
    known = np.bincount(index, weights=np.repeat(uses, lengths), minlength=len(distinct)) >= least
    counted = known[index]
    columns = (np.cumsum(known, dtype=np.int32) - 1)[index[counted]]
    ends = np.concatenate([[0], np.cumsum(counted)])[np.cumsum([0, *lengths])]
    return sparse.csr_matrix((counts[counted].astype(np.float64), columns, ends), shape=(len(texts), int(known.sum())))


def _word_ranks(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the alphabetical rank of every word [T], where each text begins [N + 1], and the number of words."""
    ids: dict[str, int] = {}
    rows = [
        np.array([ids.setdefault(word, len(ids)) for word in WORD.findall(text.lower())], np.int32) for text in texts
    ]
    rank = np.empty(len(ids), np.int32)
    rank[[ids[word] for word in sorted(ids)]] = np.arange(len(ids))
    return rank[np.concatenate([np.empty(0, np.int32), *rows])], np.cumsum([0, *map(len, rows)]), len(ids)


def _grams(words: np.ndarray, offsets: np.ndarray, distinct: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the sorted grams of each text, one text behind the other, with their counts and the grams in each text.

    The gram "a" is a·(V + 1), and "a b" is a·(V + 1) + b + 1, so that they sort as their texts do.
    """
    grams, counts, lengths, end = np.empty(2 * len(words), np.int64), np.empty(2 * len(words), np.int32), [], 0
    for first, last in pairwise(offsets):
        singles = words[first:last] * np.int64(distinct + 1)
        unique, count = np.unique(
            np.concatenate([singles, singles[:-1] + words[first + 1 : last] + 1]), return_counts=True
        )
        grams[end : end + len(unique)], counts[end : end + len(unique)] = unique, count
        lengths.append(len(unique))
        end += len(unique)
    return grams[:end], counts[:end], lengths


def _distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values in order, with fewer copies than `np.unique` makes."""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values
