"""How much every token weighs in the loss: weights [N, L] that `kernels.ops.policy_loss` adds up with.

`answers` and `tokens` count those of the whole optimisation step, over all its micro-batches and processes: a mean over
a micro-batch would weigh a step's tokens by the company they happen to be in.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def token_mean(response: Bool[Tensor, "N L"], *, tokens: int) -> Float[Tensor, "N L"]:
    """1 / Σ_i n_i: every token of the step alike (DAPO, arXiv:2503.14476; PPO)."""
    return response.float() / max(tokens, 1)


def answer_mean(response: Bool[Tensor, "N L"], *, answers: int) -> Float[Tensor, "N L"]:
    """1 / (N n_i): every answer alike, so that a long answer's tokens weigh less (GRPO, arXiv:2402.03300, eq. 3)."""
    length = response.sum(1, keepdim=True).clamp_min(1)
    return response.float() / (length * max(answers, 1))


def fixed_length(response: Bool[Tensor, "N L"], *, answers: int, length: int) -> Float[Tensor, "N L"]:
    """1 / (N L_max): every token alike, whatever the step's lengths (Dr. GRPO, arXiv:2503.20783)."""
    if length < 1:
        raise ValueError(f"fixed_length: length is the longest answer's, at least 1, got {length}")
    return response.float() / (length * max(answers, 1))
