"""Lexical search with the interface of `index.TextIndex`: TF-IDF and BM25."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ...rm.types import content_hash
from .index import collection_hash

WORDS = r"(?u)\b\w+\b"


class _WordIndex:
    """Index of texts as rows [N, V] of word weights. The matrix is None if the texts have no words."""

    ids: Sequence[str]
    vectorizer: Any
    matrix: Any

    def scores(self, queries: Sequence[str]) -> Float[np.ndarray, "Q N"]:
        """See `TextIndex`."""
        if self.matrix is None:
            return np.zeros((len(queries), len(self.ids)))
        return (sparse.csr_matrix(self.vectorizer.transform(queries)) @ self.matrix.T).toarray()


class TfidfIndex(_WordIndex):
    """TF-IDF index with cosine similarity: tf = 1 + log count, and scikit-learn's smooth idf, on lower-case words."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]):
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.ids: Sequence[str] = list(ids)
        self.contract = content_hash(["tfidf", collection_hash(ids, texts)])
        self.vectorizer = TfidfVectorizer(token_pattern=WORDS, sublinear_tf=True)
        self.matrix = _fit_transform(self.vectorizer, texts)


class Bm25Index(_WordIndex):
    """Okapi BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework"), of lower-case words.

        s(q, d) = Σ_{w in q} idf(w) · c(w, d) (k_1 + 1) / (c(w, d) + k_1 (1 - b + b |d| / mean |d|))
        idf(w)  = log(1 + (N - n(w) + 1/2) / (n(w) + 1/2))

    c(w, d) is the count of word w in a text d of |d| words, and n(w) the number of the N texts with w. k_1 and b are
    the parameters of Okapi BM25. Repeated words of the query q count repeatedly. The idf is Lucene's, which is never
    negative.
    """

    def __init__(self, ids: Sequence[str], texts: Sequence[str], *, k1: float = 1.2, b: float = 0.75):
        from sklearn.feature_extraction.text import CountVectorizer

        self.ids: Sequence[str] = list(ids)
        self.contract = content_hash(["bm25", k1, b, collection_hash(ids, texts)])
        self.vectorizer = CountVectorizer(token_pattern=WORDS)
        counts = _fit_transform(self.vectorizer, texts)
        self.matrix = None if counts is None else bm25_weights(counts, k1, b)


def bm25_weights(counts: sparse.csr_matrix, k1: float, b: float) -> sparse.csr_matrix:
    """Return the terms of `Bm25Index` for each text and word [N, V] from the word counts [N, V]."""
    cells = counts.astype(np.float64).tocoo()
    texts, words = counts.get_shape()
    length = np.asarray(counts.sum(1)).ravel()
    with_word = np.bincount(cells.col, minlength=words)
    idf = np.log1p((texts - with_word + 0.5) / (with_word + 0.5))
    norm = k1 * (1 - b + b * length / length.mean())
    values = idf[cells.col] * cells.data * (k1 + 1) / (cells.data + norm[cells.row])
    return sparse.csr_matrix((values, (cells.row, cells.col)), shape=(texts, words))


def _fit_transform(vectorizer: Any, texts: Sequence[str]) -> Any:
    """Fit a vectorizer and return the matrix of a collection; None if its texts have no words."""
    try:
        return sparse.csr_matrix(vectorizer.fit_transform(texts))
    except ValueError:
        return None
