"""What the formulas of a policy's training say to each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..rm.types import Example

State = Mapping[str, Any]
"""What a stateful formula remembers between steps: JSON-able, so that it is checkpointed, replayed and shown."""


class Rollout(NamedTuple):
    """The completions of one step, aligned at full length: `logprobs[n, t]` belongs to `tokens[n, t]`.

    Fields that are None were not asked for.
    """

    group: Int[Tensor, " N"]
    """Completions to one prompt share a number."""
    response: Bool[Tensor, "N L"]
    """The completion's own tokens, end of text included."""
    finished: Bool[Tensor, " N"]
    """Whether the completion ended by itself; the others were cut off."""
    tokens: Int[Tensor, "N L"] | None = None
    logprobs: Float[Tensor, "N L"] | None = None
    """Under the policy when they were scored, in nats; 0 outside the completion."""
    base: Float[Tensor, "N L"] | None = None
    """Under the policy that training started from."""
    values: Float[Tensor, "N L"] | None = None
    """The critic's expectation where the token is chosen, so of what precedes it."""
    after: Float[Tensor, " N"] | None = None
    """The critic's expectation behind the last token: what follows a cut-off completion without a terminal reward."""
    entropy: Float[Tensor, "N L"] | None = None
    """Of the policy that wrote them, where the token was chosen, in nats; 0 outside the completion."""
    states: Float[Tensor, "N L D"] | None = None
    """The policy's last hidden states, where the token was chosen."""
    total: Float[Tensor, " N"] | None = None
    """Their rewards, as transforms of advantages see them: after the rewards' transforms, before any KL."""
    written: Float[Tensor, "N L"] | None = None
    """Under the model that wrote them: a server, a partner or the policy; nats, 0 outside the completion."""


@runtime_checkable
class AdvantageEstimator(Protocol):
    """Rewards -> advantages [N], or [N, L] where tokens differ.

    A reward that is NaN is missing: its row has advantage 0 and has no effect. So has a row that has no other with
    a reward in its group, where the formula compares within groups.
    """

    def __call__(self, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, " N"] | Float[Tensor, "N L"]:
        """Rewards are [N], one a completion, or of a `TokenEstimator` also [N, L], one a token."""
        ...


@dataclass(frozen=True)
class TokenEstimator:
    """An estimator that reads rewards of tokens, [N, L], and returns advantages of tokens.

    Every other estimator is of whole completions: it reads rewards [N], in which what single tokens earned (the rewards
    of steps, a KL in the tokens' rewards) is summed over the completion.
    """

    estimate: AdvantageEstimator
    gamma: float = 1.0
    """Discount of later rewards; the values that a critic learns beside it have the same."""

    def __call__(self, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        """Return the advantages."""
        return self.estimate(rewards, rollout)


@runtime_checkable
class Aggregation(Protocol):
    """Which tokens count -> how much each weighs in the loss."""

    def __call__(self, response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        """Weights, 0 outside the completions; `completions` and `tokens` are how many their sum of 1 is spread over."""
        ...


@dataclass(frozen=True)
class Rewards:
    """What one reward source, or several, say of every completion."""

    values: Float[Tensor, "N K"]
    """NaN: missing."""
    names: tuple[str, ...]
    """Of the K components."""
    steps: Float[Tensor, "N L"] | None = None
    """Rewards of steps where they end, NaN elsewhere (process rewards)."""
    members: Float[Tensor, "N K M"] | None = None
    """What each of an ensemble's M members says."""

    def __post_init__(self) -> None:
        """Convert integers to float64, which has room for NaN and for what is computed from them."""
        if not self.values.is_floating_point():
            object.__setattr__(self, "values", self.values.double())

    def __getitem__(self, name: str) -> Float[Tensor, " N"]:
        """A component by its name."""
        return self.values[:, self.index(name)]

    def index(self, name: str) -> int:
        """Return a component's column."""
        if name not in self.names:
            raise ValueError(f"no reward is called '{name}'; there are {', '.join(self.names)}")
        return self.names.index(name)

    def replaced(self, name: str, value: Float[Tensor, " N"]) -> "Rewards":
        """The same with another component of that name, behind the others if it is new."""
        if name not in self.names:
            return replace(self, values=torch.cat([self.values, value[:, None]], 1), names=(*self.names, name))
        columns = list(self.values.unbind(1))
        columns[self.index(name)] = value
        return replace(self, values=torch.stack(columns, 1))


Change = Callable[[State, Any, Rollout], tuple[State, Any]]


@dataclass(frozen=True)
class Transform:
    """`Rewards` or advantages, changed; a reducer over steps. NaN stays NaN and has no effect."""

    slot: str
    """"reward" or "advantage"."""
    change: Change
    """(state, x, rollout) -> (next state, x)."""
    stage: int = 0
    """Of an advantage: 1 whole groups, 2 completions, 3 completions to tokens, 4 tokens weighted, 5 tokens masked."""
    start: State = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    """Fields of the rollout that have to be there."""
    check: Callable[[AdvantageEstimator, Sequence[str]], None] | None = None
    """(estimator, rewards with a share) -> a `ValueError` where the last transform of rewards is for nothing."""

    def __post_init__(self) -> None:
        """Stages belong to advantages."""
        if self.slot not in ("reward", "advantage"):
            raise ValueError(f"a transform's slot is 'reward' or 'advantage', got {self.slot!r}")
        if self.stage not in (range(1, 6) if self.slot == "advantage" else (0,)):
            raise ValueError(f"an advantage's transform has a stage of 1 to 5, a reward's 0; got {self.stage}")


@runtime_checkable
class Scheduler(Protocol):
    """Scores of a step's completions -> how often each is trained on, on average; a reducer over steps."""

    def __call__(
        self, state: State, scores: Float[Tensor, " N"], rollout: Rollout
    ) -> tuple[State, Float[Tensor, " N"]]:
        """The next state, and weights [N] >= 0 whose mean is 1; a NaN score has weight 0."""
        ...


class Cycle(NamedTuple):
    """Some completions after the policy has learnt from them, for a reward model that learns too."""

    examples: Sequence[Example]
    rollout: Rollout
    total: Float[Tensor, " N"]
    """Their rewards."""
    states: list[Float[Tensor, "S D"]] | None
    """The policy's last hidden states of the last pass, at every position that predicts a token; detached, on a CPU."""
    advantage: Float[Tensor, "N L"]
    """What they were trained on."""


Curriculum = Callable[[State, Mapping[str, Sequence[float]]], tuple[State, dict[str, float]]]
"""(state, |A| of a step's completions by their prompts' kind) -> (next state, each kind's share of the next
prompts)."""


class Past(NamedTuple):
    """Completions that were trained on, as a replay sees them again."""

    advantage: Float[Tensor, "M L"]
    rollout: Rollout
    """With `total`, without `states`."""
    age: Int[Tensor, " M"] | None = None
    """How many batches ago each completion was written."""
    clipped: Float[Tensor, " M"] | None = None
    """Share of each completion's tokens whose ratio was out of bounds when it was last trained on."""
    now: Rollout | None = None
    """The present batch."""


@runtime_checkable
class Replay(Protocol):
    """Trains once more on previous completions, against the policy that wrote them; a reducer over steps.

    They are those of the previous batch, or of as many batches as its `remembers` says, the oldest first.
    """

    def __call__(
        self, state: State, total: Float[Tensor, " N"], past: Past
    ) -> tuple[State, Float[Tensor, " M"] | Float[Tensor, "M L"] | None]:
        """The present batch's rewards and the past -> the latter's new advantages; None: not this time.

        NaN: not this completion. As many as a batch has are trained on at most.
        """
        ...
