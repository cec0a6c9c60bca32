"""Token mean: every token has the same weight."""

from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Aggregation


def token_mean() -> Aggregation:
    """w_it = 1 / Σ_i n_i                                                 DAPO, arXiv:2503.14476; PPO"""

    def weigh(response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        return response.float() / max(tokens, 1.0)

    return weigh
