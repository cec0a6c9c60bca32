"""Bradley-Terry on fixed features: fit the weights of a linear reward with scikit-learn."""

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from ..errors import DataError


def pairwise_logistic(differences: Any, wins: np.ndarray, *, C: float, max_iter: int = 1000) -> np.ndarray:
    """Return the weights w [D] that minimise ½|w|² - C Σ p log σ(w·d) + (1 - p) log σ(-w·d).

    d = φ(chosen) - φ(rejected) is the difference of a pair's features.
    `differences` [B, D] may be sparse; `wins` is p [B] in [0, 1]; a tie (0.5) pulls w·d towards 0. Each pair enters in
    both orders: the likelihood is unchanged, and scikit-learn gets the two classes that it requires.
    """
    known = ~np.isnan(wins)
    if not known.any():
        raise DataError("no pair has a preference for this objective; name an objective that the data are labelled for")
    differences, wins = differences[known], wins[known]
    stack = sparse.vstack if sparse.issparse(differences) else np.vstack
    features, weight = stack([differences, -differences]), np.concatenate([wins, 1 - wins])
    counts = weight > 0
    features, weight = features[counts], weight[counts] / 2
    target = np.repeat([1, 0], counts.sum())
    features, weight = stack([features, -features]), np.tile(weight, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = LogisticRegression(C=C, fit_intercept=False, max_iter=max_iter, solver="lbfgs")
        try:
            model.fit(features, target, sample_weight=weight)
        except ConvergenceWarning as error:
            raise DataError(f"the fit did not converge with C = {C}; lower --inverse_regularization") from error
    return model.coef_[0]
