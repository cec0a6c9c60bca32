"""Split conformal prediction: bounds of rewards that cover a rater's score with a stated probability."""

import math

import numpy as np
from jaxtyping import Float

from ..errors import UsageError


def residual_bounds(residuals: Float[np.ndarray, " n"], level: float) -> tuple[float, float]:
    """Return the k-th smallest and the k-th largest residual,   k = ⌊(n + 1) (1 - level) / 2⌋

    The next residual lies between these two with probability 1 - 2k / (n + 1) >= level if it is exchangeable with the
    n. NaN residuals are ignored. Vovk et al. 2005; Lei et al. 2018 (arXiv:1604.04173, section 2.2), here for each side.
    Residuals may be divided by a predicted deviation, as in section 5.2 of that paper, so that intervals are wider
    where it is larger; UARM (arXiv:2606.19818) predicts quantiles instead.
    """
    finite = np.sort(residuals[~np.isnan(residuals)])
    k = math.floor((len(finite) + 1) * (1 - level) / 2 + 1e-9)
    if k < 1:
        needed = math.ceil(2 / (1 - level) - 1e-9) - 1
        raise UsageError(f"an interval of level {level} needs at least {needed} calibration scores, got {len(finite)}")
    return float(finite[k - 1]), float(finite[-k])
