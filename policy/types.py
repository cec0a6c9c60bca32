"""Types of policy training: rollouts, rewards, and the interfaces of estimators, transforms, schedulers and replays."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..rm.types import Example, RewardModel

State = Mapping[str, Any]
"""State of a stateful formula between steps: JSON-serializable, so that it can be checkpointed, replayed and shown."""


class Rollout(NamedTuple):
    """Completions of one step, `logprobs[n, t]` belonging to `tokens[n, t]`; fields not requested are None."""

    group: Int[Tensor, " N"]
    """Index of the prompt's group; completions of one prompt share it."""
    response: Bool[Tensor, "N L"]
    """Mask of the completion's own tokens, end of text included."""
    finished: Bool[Tensor, " N"]
    """Whether the completion ended by itself; the others were truncated."""
    tokens: Int[Tensor, "N L"] | None = None
    logprobs: Float[Tensor, "N L"] | None = None
    """Under the policy at scoring time, in nats; 0 outside the completion."""
    base: Float[Tensor, "N L"] | None = None
    """Under the reference policy, in nats; 0 outside the completion."""
    values: Float[Tensor, "N L"] | None = None
    """The critic's value before each token, computed from what precedes it."""
    after: Float[Tensor, " N"] | None = None
    """The critic's value after the last token, which estimates the rest of a truncated completion."""
    entropy: Float[Tensor, "N L"] | None = None
    """Entropy of the policy that generated each token, at that token, in nats; 0 outside the completion."""
    states: Float[Tensor, "N L D"] | None = None
    """The policy's last hidden states at the positions that predict the tokens."""
    total: Float[Tensor, " N"] | None = None
    """Total rewards as seen by advantage transforms: after the reward transforms, before any KL."""
    written: Float[Tensor, "N L"] | None = None
    """Under the model that generated them (a server, a partner or the policy), in nats; 0 outside the completion."""


@runtime_checkable
class AdvantageEstimator(Protocol):
    """Maps rewards to advantages [N], or [N, L] if they differ between tokens.

    A NaN reward is missing: its row has advantage 0 and no effect. The same holds for a row without another reward in
    its group, if the formula compares within groups.
    """

    def __call__(self, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, " N"] | Float[Tensor, "N L"]:
        """Return advantages; rewards are [N], one per completion, or [N, L] for a `TokenEstimator`."""
        ...


@dataclass(frozen=True)
class TokenEstimator:
    """An estimator from token rewards [N, L] to token advantages [N, L].

    All other estimators work on completions: their rewards [N] are sums over the completion's tokens, including step
    rewards and a KL in the token rewards.
    """

    estimate: AdvantageEstimator
    gamma: float = 1.0
    """Discount of later rewards; a critic trained with it uses the same."""

    def __call__(self, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        """Return the advantages."""
        return self.estimate(rewards, rollout)


@runtime_checkable
class Aggregation(Protocol):
    """Maps the mask of counted tokens to their weights in the loss."""

    def __call__(self, response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        """Return weights, 0 outside completions; their sum of 1 is spread over `completions` or `tokens` in total."""
        ...


@dataclass(frozen=True)
class Rewards:
    """Rewards of every completion by one or more reward sources."""

    values: Float[Tensor, "N K"]
    """NaN is a missing reward."""
    names: tuple[str, ...]
    """Names of the K components."""
    steps: Float[Tensor, "N L"] | None = None
    """Process rewards at the tokens where steps end, NaN elsewhere."""
    members: Float[Tensor, "N K M"] | None = None
    """Rewards of each of an ensemble's M members."""
    step_names: tuple[str, ...] = ()
    """Names of the components of the source of `steps`; where one is missing, so are the steps."""

    def __post_init__(self) -> None:
        """Convert integers to float64, which can represent NaN and derived values."""
        if not self.values.is_floating_point():
            object.__setattr__(self, "values", self.values.double())

    def __getitem__(self, name: str) -> Float[Tensor, " N"]:
        """Return a component by name."""
        return self.values[:, self.index(name)]

    def index(self, name: str) -> int:
        """Return the column of a component."""
        if name not in self.names:
            raise ValueError(f"no reward is called '{name}'; there are {', '.join(self.names)}")
        return self.names.index(name)

    def replaced(self, name: str, value: Float[Tensor, " N"]) -> "Rewards":
        """Return a copy with the component replaced, or appended if it is new."""
        if name not in self.names:
            return replace(self, values=torch.cat([self.values, value[:, None]], 1), names=(*self.names, name))
        columns = list(self.values.unbind(1))
        columns[self.index(name)] = value
        return replace(self, values=torch.stack(columns, 1))


Change = Callable[[State, Any, Rollout], tuple[State, Any]]


@dataclass(frozen=True)
class Transform:
    """A change of `Rewards` or advantages, as a reducer over steps. NaN stays NaN and has no effect."""

    slot: str
    """"reward" or "advantage"."""
    change: Change
    """(state, x, rollout) -> (next state, x)."""
    stage: int = 0
    """Stage of an advantage transform: 1 groups, 2 completions, 3 completions to tokens, 4 token weights, 5 masks."""
    start: State = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    """Fields of the rollout that are required."""
    check: Callable[[AdvantageEstimator, Sequence[str]], None] | None = None
    """(estimator, names of rewards with a share) -> None; raises `ValueError` if the transform would have no effect."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an unknown slot or a stage that does not belong to it."""
        if self.slot not in ("reward", "advantage"):
            raise ValueError(f"a transform's slot is 'reward' or 'advantage', got {self.slot!r}")
        if self.stage not in (range(1, 6) if self.slot == "advantage" else (0,)):
            raise ValueError(f"an advantage's transform has a stage of 1 to 5, a reward's 0; got {self.stage}")


@runtime_checkable
class Scheduler(Protocol):
    """Maps the scores of a step's completions to training weights, as a reducer over steps."""

    def __call__(
        self, state: State, scores: Float[Tensor, " N"], rollout: Rollout
    ) -> tuple[State, Float[Tensor, " N"]]:
        """Return the next state, and weights [N] >= 0 with mean 1; a NaN score has weight 0."""
        ...


class Cycle(NamedTuple):
    """Completions that the policy was trained on, for training an online reward model."""

    examples: Sequence[Example]
    rollout: Rollout
    total: Float[Tensor, " N"]
    """Their total rewards."""
    states: list[Float[Tensor, "S D"]] | None
    """The policy's last hidden states in the last pass, at positions that predict a token; detached, on the CPU."""
    advantage: Float[Tensor, "N L"]
    """The advantages that they were trained with."""


Curriculum = Callable[[State, Mapping[str, Sequence[float]]], tuple[State, dict[str, float]]]
"""(state, |A| of a step's completions by kind of prompt) -> (next state, each kind's share of the next prompts)."""


class Past(NamedTuple):
    """Previous completions as a replay sees them."""

    advantage: Float[Tensor, "M L"]
    rollout: Rollout
    """Their rollout, with `total` and without `states`."""
    age: Int[Tensor, " M"] | None = None
    """Age of each completion in batches."""
    clipped: Float[Tensor, " M"] | None = None
    """Share of each completion's tokens whose ratio was clipped when it was last trained on."""
    now: Rollout | None = None
    """Rollout of the current batch."""


@runtime_checkable
class Replay(Protocol):
    """Trains again on previous completions, relative to the policy that generated them; a reducer over steps.

    These are the completions of the last batch, or of as many as `ReplaysBatches` says, oldest first.
    """

    def __call__(
        self, state: State, total: Float[Tensor, " N"], past: Past
    ) -> tuple[State, Float[Tensor, " M"] | Float[Tensor, "M L"] | None]:
        """Return the next state and new advantages of past completions; None skips the replay.

        NaN leaves a completion out. At most as many completions as in a batch are trained on.
        """
        ...


@runtime_checkable
class ReplaysBatches(Protocol):
    """A replay of the completions of several batches."""

    remembers: int
    """Number of batches."""


@runtime_checkable
class ReadsFields(Protocol):
    """A formula that requires fields of the rollout which are otherwise not computed."""

    @property
    def reads(self) -> Sequence[str]:
        """Names of the fields."""
        ...


# ---- sources of completions and rewards ----


class RolloutSource(Protocol):
    """Generates completions: a rollout function of TRL's trainers."""

    def __call__(self, prompts: Sequence[Any], trainer: Any, /) -> dict[str, Any]:
        """Return `prompt_ids`, `completion_ids` and `logprobs` (None: to be computed) by row, and further columns."""
        ...


RewardFunction = Callable[[Sequence[Example]], Sequence[float | None] | Awaitable[Sequence[float | None]]]
"""Returns a number for every completion, or None for a missing reward; may be a coroutine function."""
RewardSource = RewardModel | RewardFunction
"""Rewards of completions; the protocols below are its optional abilities."""


@runtime_checkable
class RatesCompletions(Protocol):
    """A source with `rate`, which returns rewards [N, K], and a contract with its K objectives."""

    contract: Any

    def rate(self, examples: Sequence[Example]) -> Any:
        """Return rewards [N, K]."""
        ...


@runtime_checkable
class ReadsStates(Protocol):
    """A source that is called as `rate(examples, states)`, with the policy's hidden states of every completion."""

    reads_states: bool


@runtime_checkable
class ReadsRows(Protocol):
    """A source that is called as `source(examples, rows)`, with the row of the data that each prompt comes from."""

    reads_rows: bool


@runtime_checkable
class ReadsFinished(Protocol):
    """A source called as `source(examples, rows, finished)`, also with whether each completion ended by itself."""

    reads_finished: bool


@runtime_checkable
class ComparesCompletions(Protocol):
    """A source whose rewards depend on the prompt's other completions, if `compares`."""

    compares: bool


@runtime_checkable
class RewardsSteps(Protocol):
    """A source with rewards of the steps of completions; a run may have one."""

    def step_rewards(self, examples: Sequence[Example]) -> Sequence[Sequence[Any]]:
        """Return the `StepReward`s of the completions rated last."""
        ...


@runtime_checkable
class LearnsOnline(Protocol):
    """A source that learns after each cycle; `state()` and `load(state)` are for checkpoints."""

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Learn from the completions of a cycle, and return metrics."""
        ...


@runtime_checkable
class HasVersion(Protocol):
    """A source whose rewards are determined by a version, a named tuple, besides the text."""

    version: Any


@runtime_checkable
class HasMetrics(Protocol):
    """A source with metrics of the completions rated last."""

    def facts(self) -> Mapping[str, float]:
        """Return the metrics by name."""
        ...
