"""Metrics of retrieval: recall at k, mean reciprocal rank, and precision among neighbours."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def ranks(scores: Float[np.ndarray, "Q N"], relevant: Int[np.ndarray, " Q"]) -> Int[np.ndarray, " Q"]:
    """Return the rank, from 1, of the one relevant text of each query: the number of texts that score at least as much.

    Ties count against the query, so that equal scores for all texts have the worst rank.

    >>> ranks(np.array([[0.2, 0.9, 0.2], [1.0, 0.0, 0.5]]), np.array([0, 0])).tolist()
    [3, 1]
    """
    score = np.take_along_axis(scores, relevant[:, None], 1)
    return (scores >= score).sum(1)


def recall_at(rank: Int[np.ndarray, " Q"], k: int) -> float:
    """Return the share of queries whose relevant text is among the first k.

    >>> recall_at(np.array([1, 3, 11, 2]), 2)
    0.5
    """
    return float((rank <= k).mean())


def mean_reciprocal_rank(rank: Int[np.ndarray, " Q"]) -> float:
    """Return mean 1 / rank, in (0, 1].

    >>> mean_reciprocal_rank(np.array([1, 2, 4]))
    0.5833333333333334
    """
    return float((1 / rank).mean())


def precision_at(scores: Float[np.ndarray, "N N"], groups: Sequence[str], k: int) -> float:
    """Return the mean share of a text's k nearest others that are of its own group; of texts with a group only.

    The nearest are by score, the first of equal ones first. Texts without a group are no neighbours either. Of fewer
    than k others all count; NaN where no text has another.
    """
    known = np.flatnonzero([bool(group) for group in groups])
    names = np.array(groups)[known]
    if len(known) < 2:
        return float("nan")
    within = scores[np.ix_(known, known)].astype(float)
    np.fill_diagonal(within, -np.inf)
    nearest = np.argsort(-within, axis=1, kind="stable")[:, : min(k, len(known) - 1)]  # a text itself is the last
    return float((names[nearest] == names[:, None]).mean())
