"""PPO's critic: value head, targets, clipped value loss, and explained variance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ...rm.training.distributed import broadcast_weights, reduce_gradients
from ..advantages._groups import end_column
from ..advantages.gae import gae
from ..step.algorithm import Scored
from ..step.forward import Batch, CompletionBatch, completion_states
from ..types import Rollout


@dataclass(frozen=True)
class CriticArguments:
    """Hyperparameters of PPO's critic."""

    learning_rate: float = 1e-3
    lam: float = 0.95
    """λ of the critic's targets: GAE returns with the discount γ of the advantages."""
    clip: float = math.inf
    """Distance of a value from its old value beyond which the value gets no gradient; inf disables clipping."""
    max_grad_norm: float = 1.0
    hidden: int = 0
    """Width of the critic's hidden layer. With 0 the critic is linear."""
    passes: int = 1
    """Number of critic steps on the completions of each policy step."""


class Critic(nn.Module):
    """V = wᵀ f(h) + b on detached hidden states: the critic's loss does not change the policy's trunk.

    h are hidden states of the policy; w and b are trained. f is the identity, or a hidden layer with SiLU. V is
    initialised to 0, so that the advantages of the first step equal those without a critic.
    """

    def __init__(self, width: int, hidden: int = 0):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.SiLU()) if hidden else nn.Identity()
        self.head = nn.Linear(hidden or width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, states: Float[Tensor, "N L D"]) -> Float[Tensor, "N L"]:
        """Return values in float32 for states of any dtype."""
        return self.head(self.inner(states.detach().to(self.head.weight.dtype))).squeeze(-1)


class Targets(NamedTuple):
    """Training targets of the critic for a batch of completions."""

    values: Float[Tensor, "N L"]
    """The critic's values at scoring time."""
    returns: Float[Tensor, "N L"]
    response: Bool[Tensor, "N L"]
    share: Float[Tensor, "N L"] | float
    """Factor of the token losses of the critic."""


def critic_returns(scored: Scored, rollout: Rollout, gamma: float, lam: float) -> Float[Tensor, "N L"]:
    """Compute the critic's targets R = V + GAE(γ, λ) from the rewards, including step rewards and a KL in the reward.

    γ = `gamma` must equal that of the advantages, since δ = r + γ V' - V is biased otherwise. λ = `lam` may differ from
    that of the advantages.
    """
    assert rollout.values is not None
    critic_rollout = rollout._replace(after=None) if scored.terminal else rollout
    return rollout.values + gae(gamma=gamma, lam=lam)(scored.earned, critic_rollout).to(rollout.values.dtype)


class CriticLearner:
    """Critic with its own optimizer, outside the policy module, since TRL saves and synchronises that module."""

    def __init__(self, width: int, arguments: CriticArguments, device: torch.device):
        self.arguments = arguments
        self.critic = Critic(width, arguments.hidden).to(device)
        broadcast_weights(self.critic)
        self.optimizer = torch.optim.AdamW(self.critic.parameters(), lr=arguments.learning_rate, weight_decay=0.0)
        self.batches: list[tuple[Tensor, Targets]] = []

    @torch.no_grad()
    def values(
        self, states: Float[Tensor, "N W D"], rows: CompletionBatch
    ) -> tuple[Float[Tensor, "N L"], Float[Tensor, " N"]]:
        """Return the values before the tokens of completions, and the values after the last tokens."""
        values = self.critic(completion_states(states, rows))
        return values[:, :-1] * rows.response, values.gather(1, end_column(rows.response)[:, None]).squeeze(1)

    def loss_inputs(self, scored: Scored, rollout: Rollout, gamma: float, updates: float = 1.0) -> Batch:
        """Return the columns of the critic's loss. Their weights sum to `updates`, the optimizer steps of one pass."""
        assert rollout.values is not None
        returns = critic_returns(scored, rollout, gamma, self.arguments.lam)
        weights = scored.trained * (updates / scored.trained.sum().clamp_min(1))
        return {"values": rollout.values, "returns": returns, "value_weights": weights}

    def learn_batch(self, states: Float[Tensor, "N W D"], rows: CompletionBatch, batch: Batch) -> float:
        """Accumulate the gradient of a micro-batch with the columns of `loss_inputs`. Return its mean loss."""
        weights = batch["value_weights"]
        targets = Targets(batch["values"], batch["returns"], weights > 0, weights)
        return self.learn(completion_states(states.detach(), rows), targets)

    def learn(self, states: Float[Tensor, "N M D"], targets: Targets) -> float:
        """Accumulate the gradient of a micro-batch; return its mean loss."""
        if self.arguments.passes > 1:
            self.batches.append((states, targets))
        return self._add(states, targets)

    def _add(self, states: Float[Tensor, "N M D"], targets: Targets) -> float:
        """Accumulate the gradient of a micro-batch; return its mean loss."""
        values, response = self.critic(states)[:, :-1], targets.response
        losses = value_loss(values, targets.values, targets.returns, response, clip=self.arguments.clip)
        (losses * targets.share).sum().backward()
        return (losses.sum() / response.sum().clamp_min(1)).item()

    def step(self) -> None:
        """Take `passes` optimizer steps with the gradients of all processes."""
        self._step_optimizer()
        for _ in range(self.arguments.passes - 1):
            for states, targets in self.batches:
                self._add(states, targets)
            self._step_optimizer()
        self.batches.clear()

    def _step_optimizer(self) -> None:
        """Take one optimizer step with the gradients of all processes."""
        reduce_gradients(self.critic.parameters(), "sum")
        nn.utils.clip_grad_norm_(self.critic.parameters(), self.arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"critic": self.critic.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the state from a checkpoint."""
        self.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["optimizer"])


def value_loss(
    values: Float[Tensor, "N L"],
    old: Float[Tensor, "N L"],
    returns: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    *,
    clip: float,
) -> Float[Tensor, "N L"]:
    """½ max((V - R)², (clip(V, V_old ± ε) - R)²) of every token, 0 outside completions; the caller reduces.

    The clipped value loss of PPO's released code: a value that has moved by more than ε towards its target gets no
    further gradient. ε = `clip` > 0; inf disables clipping. R = A + V_old are the critic's targets.
    """
    if not clip > 0:
        raise ValueError(f"value_loss: clip must be a distance > 0, or inf for no clipping, got {clip}")
    near = old + (values - old).clamp(-clip, clip)
    loss = 0.5 * torch.maximum((values - returns).square(), (near - returns).square())
    return torch.where(response, loss, 0)
