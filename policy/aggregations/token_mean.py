"""Token mean: every token has the same weight."""

from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Aggregation


def token_mean() -> Aggregation:
    """w_it = 1 / Σ_j n_j                                                 DAPO, arXiv:2503.14476; PPO

    w_it is the weight of token t of completion i, and n_j the number of tokens of completion j.
    """

    def weigh(response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        return response.float() / max(tokens, 1.0)

    return weigh
