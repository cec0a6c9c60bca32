"""RuscaRL: the full rubric for a group's first completion, none for its last, with a decay over training."""

import math

from ._scaffold import Schedule


def ruscarl(*, steepness: float = 125.0, middle: float = 0.2) -> Schedule:
    """λ_i = (G - i)/(G - 1) · 1/(1 + exp(α (τ - t0))),  i = 1..G                        RuscaRL: arXiv:2508.16949

    λ_i is the share of hints for completion i, τ in [0, 1] the progress of training, α = `steepness`, and t0 =
    `middle`. The second factor is 0.92 at τ = 0.18 and 0.08 at 0.22 by default. For G = 1 the first factor is 1.
    """

    def shares(progress: float, size: int) -> list[float]:
        decay = 0.5 * (1 - math.tanh(steepness * (progress - middle) / 2))  # the logistic function, without overflow
        return [decay * (size - 1 - index) / (size - 1) for index in range(size)] if size > 1 else [decay]

    return shares
