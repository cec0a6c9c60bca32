"""What the policy's answers are expected to earn, token by token: PPO's critic, its loss, and how good it is."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class Critic(nn.Module):
    """V = wᵀ h + b on hidden states that are constants to it: the critic never moves the policy's trunk.

    It starts at V = 0, so that the first step's advantages are those without a critic.
    """

    def __init__(self, width: int):
        super().__init__()
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, states: Float[Tensor, "N L D"]) -> Float[Tensor, "N L"]:
        """float32, whatever the states' dtype."""
        return self.head(states.detach().to(self.head.weight.dtype)).squeeze(-1)


def value_loss(
    values: Float[Tensor, "N L"],
    old: Float[Tensor, "N L"],
    returns: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    *,
    clip: float,
) -> Float[Tensor, "N L"]:
    """½ max((V - R)², (clip(V, V_old ± ε) - R)²) of every token, 0 outside the answers; the caller reduces.

    The clipped value loss of PPO's released code: a value that has moved by more than ε towards its target gets no
    further gradient. ε = `clip` > 0; inf is none. R = A + V_old are the critic's targets.
    """
    if not clip > 0:
        raise ValueError(f"value_loss: clip is a distance > 0, or inf for none, got {clip}")
    near = old + (values - old).clamp(-clip, clip)
    loss = 0.5 * torch.maximum((values - returns).square(), (near - returns).square())
    return torch.where(response, loss, 0)


def explained_variance(
    values: Float[Tensor, "N ..."], returns: Float[Tensor, "N ..."], mask: Bool[Tensor, "N ..."]
) -> float:
    """1 - Var(R - V) / Var(R) where `mask`: 1 is perfect, 0 is no better than a constant; NaN if R is one."""
    v, r = values[mask].double(), returns[mask].double()
    if len(r) < 2 or bool(r.min() == r.max()):
        return float("nan")
    return (1 - (r - v).var() / r.var()).item()
