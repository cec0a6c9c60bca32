"""Bradley-Terry on fixed features: fit the weights of a linear reward with scikit-learn."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from ..errors import DataError


def pairwise_logistic(differences: Any, wins: np.ndarray, *, C: float, max_iter: int = 1000) -> np.ndarray:
    """Return the weights w [D] that minimise ½|w|² - C Σ p log σ(w·d) + (1 - p) log σ(-w·d).

    d = φ(chosen) - φ(rejected) is the difference of a pair's features.
    `differences` [B, D] may be sparse; `wins` is p [B] in [0, 1]; a tie (0.5) pulls w·d towards 0.
    """
    labelled = ~np.isnan(wins)
    if not labelled.any():
        raise DataError("no pair has a preference for this objective; name an objective that the data are labelled for")
    if not labelled.all():
        differences, wins = differences[labelled], wins[labelled]
    if len(wins) == 1:
        differences, wins, C = _concatenate_rows([differences, differences]), np.repeat(wins, 2), C / 2
    features, target, weight = _two_classes(differences, wins)
    del differences
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = LogisticRegression(C=C, fit_intercept=False, max_iter=max_iter, solver="lbfgs")
        try:
            model.fit(features, target, sample_weight=weight)
        except ConvergenceWarning as error:
            raise DataError(f"the fit did not converge with C = {C}; lower --inverse_regularization") from error
    return model.coef_[0]


def _two_classes(differences: Any, wins: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return features, classes and sample weights with the same likelihood, as a two-class problem for scikit-learn.

    Every second pair (d, p) is swapped to (-d, 1 - p); soft labels are in both classes, weighted by p and 1 - p.
    """
    sign = np.where((wins < 0.5) ^ (np.arange(len(wins)) % 2 > 0), -1.0, 1.0)
    turned, p = sparse.diags(sign) @ differences, np.where(sign > 0, wins, 1 - wins)
    soft = (p > 0) & (p < 1)
    weight = np.where(soft, p, 1.0)
    if not soft.any():
        return turned, p, weight
    target = np.concatenate([p > 0, np.zeros(soft.sum())])
    return _concatenate_rows([turned, turned[soft]]), target, np.concatenate([weight, 1 - p[soft]])


def _concatenate_rows(parts: Sequence[Any]) -> Any:
    """Concatenate the rows of matrices, dense or sparse."""
    return sparse.vstack(parts) if sparse.issparse(parts[0]) else np.vstack(parts)
