"""SDPO: self-distillation; the teacher is the policy with a good completion in its prompt."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, State, Transform


def sdpo(*, weight: float = 1.0, keep: float = 0.0) -> Transform:
    """A'_t = κ A_t + w (log π_T(y_t) - log π(y_t))                              SDPO 2026, arXiv:2601.20802

    π_T is the self-teacher (`rollout.teacher`): the policy π, with the best other completion of the group in its prompt
    if its reward is above the mean; otherwise A' is κ A. With `--loss reinforce` the gradient of the second term
    is that of w KL(π | π_T) on sampled tokens, the released code's distillation without full logits. w = `weight`; κ =
    `keep` is 0 in the paper. Not implemented: a teacher with averaged weights, feedback of an environment or judge, and
    the distillation of whole distributions.
    """
    if weight <= 0 or keep < 0:
        raise ValueError(f"sdpo: `weight` must be above 0 and `keep` at least 0, got {weight} and {keep}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        logprobs, teacher, total = rollout.require("sdpo", "logprobs", "teacher", "total")
        advantages = rollout.by_token(advantages)
        taught = rollout.response & ~teacher.isnan() & ~total.isnan()[:, None]
        gap = torch.where(taught, teacher - logprobs, 0)
        return state, torch.where(rollout.response, keep * advantages, 0) + weight * gap.to(advantages.dtype)

    return Transform("advantage", change, stage=4, reads=("logprobs", "teacher"))
