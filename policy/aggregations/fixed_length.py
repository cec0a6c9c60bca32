"""Fixed length: every token has the same weight, independent of the lengths of the step's completions."""

from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Aggregation


def fixed_length(length: int) -> Aggregation:
    """w_it = 1 / (N L_max)                                               Dr. GRPO, arXiv:2503.20783

    w_it is the weight of token t of completion i, N the number of completions and L_max = `length`.
    """
    if length < 1:
        raise ValueError(f"fixed_length: length, the maximum completion length, must be at least 1, got {length}")

    def weigh(response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        return response.float() / (length * max(completions, 1.0))

    return weigh
