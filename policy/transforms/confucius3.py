"""PSHW of Confucius3-Math: larger advantages for harder prompts."""

from jaxtyping import Float
from torch import Tensor

from ...rm.errors import UsageError
from ..advantages._groups import groups
from ..types import Rollout, State, Transform


def confucius3(*, slope: float = -0.256, offset: float = 1.256) -> Transform:
    """A' = (α μ + c) A, where μ is the mean reward of the group            Confucius3-Math 2025, arXiv:2506.18330

    Rewards are 1 for a right and -1 for a wrong completion (`rollout.total`), so a prompt that is never solved has the
    factor 1.512 and a prompt that is always solved 1. α = `slope` and c = `offset` are the paper's. Its A = R - μ is
    `--advantage dr_grpo`, with `--aggregation fixed_length`, as the paper does not normalise by the length.
    """

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (total,) = rollout.require("confucius3", "total")
        odd = total[total.abs() > 1]
        if len(odd):
            raise UsageError(
                f"confucius3: rewards must be in [-1, 1], got {odd[0].item():g}; rescale them, or remove confucius3"
            )
        factor = slope * groups(total, rollout.group).mean + offset
        factor = factor if advantages.dim() == 1 else factor[:, None]
        return state, (advantages * factor).to(advantages.dtype)

    return Transform("advantage", change, stage=1)
