"""RPO: DPO on pairs of a group's completions, with a likelihood term on the better completion of each pair."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._kinds import CompletionLoss, CompletionLossInputs


def rpo(*, beta: float, eta: float) -> CompletionLoss:
    """L_ij = -log σ(β (h_i - h_j)) - η log π(y_i),   h = log π(y) - log π_base(y),   for r_i > r_j

    Liu et al. 2024, arXiv:2405.16436, on pairs of completions of a group; η = 0 is DPO. β > 0 and η >= 0. Each
    completion of a pair gets half of L_ij, and L_i is the mean over the group's other completions. Log-probabilities
    are sums over the tokens of a completion in nats. π_base is the reference policy and requires `--measure_kl` or a KL
    penalty. r are rewards, or advantages of `dr_grpo`. Completions with equal or NaN rewards form no pair.
    """
    if beta <= 0 or eta < 0:
        raise ValueError(f"rpo: beta is above 0 and eta is 0 or more, got {beta} and {eta}")

    def loss(completions: CompletionLossInputs) -> Float[Tensor, " N"]:
        if completions.base is None:
            raise ValueError("rpo: the completions have no log-probabilities under a base; leave --measure_kl on")
        valid, group = ~completions.advantage.isnan(), completions.group
        r = completions.advantage.detach()
        same = group[:, None] == group
        better = same & (r[:, None] > r)
        logprob = torch.where(valid, completions.logprob, 0)
        h = logprob - torch.where(valid, completions.base.detach(), 0)
        pair = -logsigmoid(beta * (h[:, None] - h)) - eta * logprob[:, None]
        value = torch.where(better, pair, 0) / 2
        others = (same & valid & valid[:, None]).sum(1) - 1
        return (value.sum(1) + value.sum(0)) / others.clamp_min(1)

    return loss
