"""Squared error of predicted attribute scores, in the units of the raters."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor


def attribute_regression() -> Callable[[Float[Tensor, "N K"], Float[Tensor, "N K"]], Float[Tensor, "N K"]]:
    """l = (r_k - s_k)² of every completion and objective k, with reward r_k and score s_k; NaN if s_k is NaN.

    Not reduced.

    Multi-attribute regression as in HelpSteer2, Wang et al. 2024 (arXiv:2406.08673), and in the first stage of ArmoRM,
    Wang et al. 2024 (arXiv:2406.12845). Scores keep their own units; those of the papers are 0 to 4 and [0, 1].
    """

    def loss(rewards: Float[Tensor, "N K"], scores: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        labelled = ~scores.isnan()
        error = (rewards - scores.nan_to_num(0.0)).square()
        return error.masked_fill(~labelled, float("nan"))

    return loss
