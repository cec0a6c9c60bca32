"""R2M's settings, and those of what it is compared with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ...rm.backbones.tokenization import Encoder
from ...rm.errors import UsageError
from ...rm.types import Example
from ..training.forward import states_of

# ---- which states the reward reads ----

States = Sequence[Float[Tensor, "S P"]]
Reads = Callable[[States, Sequence[Example], Generator], States]
"""The policy's states of a step's completions, in order, and the completions -> what the reward reads in their
place."""


def own(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Every completion's own."""
    return states


def stale(policy: Any, encoder: Encoder) -> Reads:
    """Those that a policy which does not learn, such as the one training starts from, has of the same completions."""

    def read(states: States, examples: Sequence[Example], generator: Generator) -> States:
        return states_of(policy, encoder, examples)

    return read


def shuffled(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Those of the completion before it, which completions the same prompt but for the first of a group."""
    return [*states[-1:], *states[:-1]]


def noise(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """Normal noise with the mean and the standard deviation that each dimension has in the step; as long as before."""
    everything = torch.cat([*states]).float()
    mean, std = everything.mean(0), everything.std(0, correction=0)
    return [mean + std * torch.randn(state.shape, generator=generator).to(mean.device) for state in states]


def fixed(states: States, examples: Sequence[Example], generator: Generator) -> States:
    """One vector of ones for all: what is read is a learnt constant."""
    return [torch.ones_like(state[:1]) for state in states]


# ---- settings ----


@dataclass(frozen=True)
class R2MArguments:
    """How the reward model learns. R2M's own settings; `CONTROLS` has those of what it is compared with."""

    learning_rate: float = 1e-6
    alpha: float = 0.3
    """α of `grebt`: the entropy's share of the loss."""
    floor: float = 0.6
    """Ω: where ω ends. With 1 no state is ever read."""
    spread: str = "full"
    """Whether the entropy's standard deviation carries a gradient: "full" or "stopgrad"."""
    epsilon: float = 1e-6
    pair_from: Literal["annotation", "refreshed"] = "annotation"
    """Which rewards choose a group's pair: those that the policy learnt from, or those on the states after it did."""
    objectives: tuple[str, ...] = ()
    """Whose rewards make pairs, each its own; none named: all."""
    batch_groups: int = 0
    """Groups of one optimizer step; 0: all of the cycle. Either way there is one pass."""
    max_grad_norm: float = 1.0
    learns: Literal["nothing", "head", "everything"] = "head"
    """With "everything" the body's trainable parameters move too, in place."""
    reads: Reads = own
    refresh: bool = True
    """Whether the update sees the states of the last pass or those of the annotation."""
    seed: int = 0

    def __post_init__(self) -> None:
        """A setting that is none is refused."""
        if self.pair_from not in ("annotation", "refreshed"):
            raise UsageError(f"pair_from is annotation or refreshed, got '{self.pair_from}'")
        if self.learns not in ("nothing", "head", "everything"):
            raise UsageError(f"learns is nothing, head or everything, got '{self.learns}'")
        if self.batch_groups < 0 or not 0 <= self.floor <= 1:
            raise UsageError(f"batch_groups >= 0 and floor in [0, 1]; got {self.batch_groups} and {self.floor}")


CONTROLS: Mapping[str, Mapping[str, Any]] = {
    "frozen": {"floor": 1.0, "learns": "nothing"},
    "iterative_head": {"floor": 1.0},
    "not_trained": {"learns": "nothing"},
    "without_pairs": {"alpha": 1.0},
    "without_entropy": {"alpha": 0.0},
    "noise": {"reads": noise},
    "fixed": {"reads": fixed},
    "shuffled": {"reads": shuffled},
    "unrefreshed": {"refresh": False},
    "full_update": {"learns": "everything"},
}
"""What each control changes in `R2MArguments`, for `dataclasses.replace`; the paper's G.5 and 5.4, and ours.

frozen           the scalar reward model as it is
iterative_head   the same update, but of the scalar model's own head: no state is read
not_trained      states are read by an untrained attention, and nothing learns
without_pairs    the entropy alone
without_entropy  the pairs alone
noise            normal noise with the states' mean and deviation: more parameters, no information
fixed            one constant instead of the states
shuffled         the states of another completion: of the policy and the prompt, not of the completion
unrefreshed      the update sees the states that the rewards were given on, not those after the policy moved
full_update      the body learns as well

`reads=stale(start policy, encoder)` is one more: the same features of the completion, of a policy that does not move.
An ensemble's mean - λ std is a source of its own: `rm.models.ensemble` with a pessimism of λ.
"""
