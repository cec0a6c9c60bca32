"""Settings of online R2M, and settings that turn it into a control (baseline)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ...rm.backbones.tokenization import Encoder
from ...rm.errors import UsageError
from ...rm.types import Example
from ..step.forward import states_of

# ---- which states the reward reads ----

States = Sequence[Float[Tensor, "S P"]]
Reads = Callable[[States, Sequence[Example], Generator], States]
"""(hidden states of the policy, completions, generator) -> the states that the reward model reads."""


def identity(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Return the policy's states of each completion unchanged."""
    return states


def stale(policy: Any, encoder: Encoder) -> Reads:
    """Return a function that computes the states of a frozen policy, such as the initial one, for the completions."""

    def read(states: States, examples: Sequence[Example], generator: Generator) -> States:
        return states_of(policy, encoder, examples)

    return read


def shuffled(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Return the states of the previous completion, which has the same prompt except at the start of a group."""
    return [*states[-1:], *states[:-1]]


def noise(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Return Gaussian noise with the mean and standard deviation of each dimension of the step's states."""
    everything = torch.cat([*states]).float()
    mean, std = everything.mean(0), everything.std(0, correction=0)
    return [mean + std * torch.randn(state.shape, generator=generator).to(mean.device) for state in states]


def fixed(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Return one vector of ones per completion, so that the reward head reads a learned constant."""
    return [torch.ones_like(state[:1]) for state in states]


# ---- settings ----


@dataclass(frozen=True)
class R2MArguments:
    """Settings of the reward model's updates; defaults are those of R2M, and `CONTROLS` has its baselines."""

    learning_rate: float = 1e-6
    alpha: float = 0.3
    """α: weight of the entropy term in the loss `grebt`."""
    floor: float = 0.6
    """Ω: final value of the reward token's weight ω. With 1 the hidden states are never read."""
    spread: str = "full"
    """"full": gradients flow through the entropy's standard deviation; "stopgrad": they do not."""
    epsilon: float = 1e-6
    pair_from: Literal["annotation", "refreshed"] = "annotation"
    """Rewards that determine best and worst of a group: those that the policy was trained on ("annotation"), or those
    computed from the hidden states after training ("refreshed")."""
    objectives: tuple[str, ...] = ()
    """Objectives, each with one pair of completions per group. All objectives if empty."""
    batch_groups: int = 0
    """Number of groups per optimizer step; 0 means all groups of the cycle. An update is one pass over them."""
    max_grad_norm: float = 1.0
    learns: Literal["nothing", "head", "everything"] = "head"
    """Trained parameters. With "everything", trainable parameters of the model's body are updated too, in place."""
    reads: Reads = identity
    refresh: bool = True
    """Whether the update uses the hidden states of the policy's last pass instead of those at the time of rating."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise `UsageError` for invalid values."""
        if self.pair_from not in ("annotation", "refreshed"):
            raise UsageError(f"pair_from must be 'annotation' or 'refreshed', got '{self.pair_from}'")
        if self.learns not in ("nothing", "head", "everything"):
            raise UsageError(f"learns must be 'nothing', 'head' or 'everything', got '{self.learns}'")
        if self.batch_groups < 0 or not 0 <= self.floor <= 1:
            raise UsageError(f"batch_groups must be >= 0 and floor in [0, 1], got {self.batch_groups} and {self.floor}")


CONTROLS: Mapping[str, Mapping[str, Any]] = {
    "frozen": {"floor": 1.0, "learns": "nothing"},  # the scalar reward model without updates
    "iterative_head": {"floor": 1.0},  # the same update of the scalar model's own head: states are not read
    "not_trained": {"learns": "nothing"},  # states are read by an untrained attention
    "without_pairs": {"alpha": 1.0},  # the entropy term alone
    "without_entropy": {"alpha": 0.0},  # the pair term alone
    "noise": {"reads": noise},  # more parameters, no information
    "fixed": {"reads": fixed},  # one constant instead of the states
    "shuffled": {"reads": shuffled},  # informative on policy and prompt, not on the completion
    "unrefreshed": {"refresh": False},  # the states at rating time, not those after the policy's update
    "full_update": {"learns": "everything"},  # the body is trained as well
}
"""Arguments of `R2MArguments` that each control changes. The controls are from the paper (G.5, 5.4), or our own.

Another control is `reads=stale(start policy, encoder)`: the same features of the completion, from a fixed policy. An
ensemble's mean - λ std is a separate source: `rm.kinds.ensemble.model` with a pessimism of λ.
"""
