"""DPO on pairs of a group's completions: RPO's likelihood term, dynamic reward scaling, and Step-APO's margin."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._kinds import CompletionLoss, CompletionLossInputs


def rpo(*, beta: float, eta: float, scale: float = 0.0, rate: float = 1.0, margin: float = 0.0) -> CompletionLoss:
    """L_ij = -log σ(β_ij (h_i - h_j) - m δ) - η log π(y_i),   h = log π(y) - log π_base(y),   δ = r_i - r_j > 0

    RPO: Liu et al. 2024, arXiv:2405.16436, on pairs of completions of a group; the weight η = 0 is DPO. β_ij = β (1 + w
    (1 - e^{-k δ})) with w = `scale` and k = `rate` is the dynamic reward scaling of MM-RLHF (arXiv:2502.10391). m =
    `margin` > 0 is Step-APO's margin by advantages (arXiv:2409.08642), on completions instead of steps. The papers' w,
    k and m are not known to us; w = 0 and m = 0 change nothing. β > 0, k > 0 and the others are 0 or more. Each
    completion of a pair gets half of L_ij, and L_i is the mean over the group's other completions. Log-probabilities
    are sums over the tokens of a completion in nats. π_base is the reference policy and requires `--measure_kl` or a KL
    penalty. r are rewards, or advantages of `dr_grpo`. Completions with equal or NaN rewards form no pair.
    """
    if beta <= 0 or eta < 0:
        raise ValueError(f"rpo: beta must be above 0 and eta at least 0, got {beta} and {eta}")
    if scale < 0 or rate <= 0 or margin < 0:
        raise ValueError(f"rpo: rate must be above 0, scale and margin at least 0, got {rate}, {scale} and {margin}")

    def loss(completions: CompletionLossInputs) -> Float[Tensor, " N"]:
        if completions.base is None:
            raise ValueError("rpo: the completions have no reference log-probabilities; leave --measure_kl on")
        valid, group = ~completions.advantage.isnan(), completions.group
        r = completions.advantage.detach()
        same = group[:, None] == group
        better = same & (r[:, None] > r)
        logprob = torch.where(valid, completions.logprob, 0)
        h = logprob - torch.where(valid, completions.base.detach(), 0)
        gap = torch.where(better, r[:, None] - r, 0)
        slope = beta * (1 - scale * torch.expm1(-rate * gap))
        pair = -logsigmoid(slope * (h[:, None] - h) - margin * gap) - eta * logprob[:, None]
        value = torch.where(better, pair, 0) / 2
        others = (same & valid & valid[:, None]).sum(1) - 1
        return (value.sum(1) + value.sum(0)) / others.clamp_min(1)

    return loss
