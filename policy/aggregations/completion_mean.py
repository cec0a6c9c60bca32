"""Mean over completions: every completion has the same weight, so tokens of long completions have less."""

from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Aggregation


def completion_mean() -> Aggregation:
    """w_it = 1 / (N n_i)                                                 GRPO, arXiv:2402.03300, eq. 3

    w_it is the weight of token t of completion i, N the number of completions and n_i the token count of completion i.
    """

    def weigh(response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        return response.float() / (response.sum(1, keepdim=True).clamp_min(1) * max(completions, 1.0))

    return weigh
