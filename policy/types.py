"""Types of policy training: rollouts, rewards, and the interfaces of estimators, transforms, schedulers and replays."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..rm.types import Example, RewardModel

State = Mapping[str, Any]
"""State of a stateful formula between steps. It is JSON-serializable and saved in checkpoints."""
FIELDS = {
    "tokens": "tokens",
    "logprobs": "log-probabilities of its tokens under the policy",
    "base": "log-probabilities of its tokens under the reference policy; leave --measure_kl on",
    "values": "critic's values; give the run a critic, or use an advantage estimator without a critic",
    "entropy": "entropies of its tokens",
    "states": "hidden states of its tokens",
    "total": "rewards",
    "prompt_logprobs": "log-probabilities of its prompts",
    "head": "output head of the policy",
    "teacher": "log-probabilities under a teacher",
}
"""Optional fields of `Rollout` -> their description in the message about a missing field."""


class Rollout(NamedTuple):
    """Completions of one step: N rows of L columns. `logprobs[n, t]` is the log-probability of `tokens[n, t]`.

    Optional fields are None unless a formula requires them.
    """

    group: Int[Tensor, " N"]
    """Index of the prompt's group; completions of one prompt share it."""
    response: Bool[Tensor, "N L"]
    """Mask of the tokens that the policy generated, including the end-of-text token."""
    finished: Bool[Tensor, " N"]
    """Whether the completion ends with an end-of-text token. False for truncated completions."""
    tokens: Int[Tensor, "N L"] | None = None
    logprobs: Float[Tensor, "N L"] | None = None
    """Log-probabilities under the policy at scoring time, in nats; 0 outside the completion."""
    base: Float[Tensor, "N L"] | None = None
    """Log-probabilities under the reference policy, in nats; 0 outside the completion."""
    values: Float[Tensor, "N L"] | None = None
    """The critic's value of the state before each token."""
    after: Float[Tensor, " N"] | None = None
    """The critic's value after the last token: an estimate of the future reward of a truncated completion."""
    entropy: Float[Tensor, "N L"] | None = None
    """Entropy of the generating policy's next-token distribution at each token, in nats; 0 outside the completion."""
    states: Float[Tensor, "N L D"] | None = None
    """The policy's last hidden states at the positions that predict the tokens."""
    total: Float[Tensor, " N"] | None = None
    """Total rewards after the reward transforms and before any KL penalty. Advantage transforms read this field."""
    written: Float[Tensor, "N L"] | None = None
    """Log-probabilities under the model that generated the tokens, such as a server's; in nats, 0 elsewhere."""
    steps: Float[Tensor, "N L"] | None = None
    """Step rewards after the reward transforms, as in `Rewards.steps`: for estimators and advantage transforms."""
    prompt_logprobs: Float[Tensor, "N P"] | None = None
    """Log-probabilities of the prompt's tokens after the first under the policy, in nats; NaN outside the prompt."""
    head: Callable[[Float[Tensor, "T D"]], Float[Tensor, "T V"]] | None = None
    """The policy's output head: log-probabilities of all V tokens, in nats, from hidden states such as `states`."""
    teacher: Float[Tensor, "N L"] | None = None
    """Log-probabilities under the policy with a better completion in its prompt, in nats; NaN if there is none."""

    def require(self, formula: str, *names: str) -> tuple[Any, ...]:
        """Return optional fields. Raise `ValueError` with the name of `formula` if one was not computed."""
        fields = self._asdict()
        if missing := [name for name in names if fields[name] is None]:
            raise ValueError(f"{formula}: the rollout has no {', no '.join(FIELDS[name] for name in missing)}")
        return tuple(fields[name] for name in names)

    def by_token(self, advantages: Float[Tensor, "N ..."]) -> Float[Tensor, "N L"]:
        """Expand the advantages of completions [N] to their tokens [N, L]. Advantages [N, L] are returned unchanged."""
        return advantages[:, None].expand_as(self.response) if advantages.dim() == 1 else advantages


ON_REQUEST = ("states", "prompt_logprobs", "head", "teacher")
"""Fields of `Rollout` that are computed only if a formula of the run reads them."""


@runtime_checkable
class AdvantageEstimator(Protocol):
    """Maps rewards to advantages [N], or [N, L] if they differ between tokens.

    A NaN reward is a missing reward: the row has advantage 0 and does not affect other rows. If the formula compares
    completions within groups, this also holds for a row whose group has no other reward.
    """

    def __call__(self, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, " N"] | Float[Tensor, "N L"]:
        """Return advantages; rewards are [N], one per completion, or [N, L] for a `TokenEstimator`."""
        ...


@dataclass(frozen=True)
class TokenEstimator:
    """An estimator from token rewards [N, L] to token advantages [N, L].

    All other estimators take one reward per completion [N]: the sum of the completion's token rewards, which include
    step rewards and a KL penalty in the reward.
    """

    estimate: AdvantageEstimator
    gamma: float = 1.0
    """Discount factor of later rewards. The critic uses the same value."""
    reads: tuple[str, ...] = ()
    """Required fields of the rollout."""

    def __call__(self, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        """Return the advantages."""
        return self.estimate(rewards, rollout)


@runtime_checkable
class Aggregation(Protocol):
    """Maps the mask of completion tokens to the tokens' weights in the loss."""

    def __call__(self, response: Bool[Tensor, "N L"], completions: float, tokens: float) -> Float[Tensor, "N L"]:
        """Return the weights, 0 outside completions.

        `completions` and `tokens` are the totals over all micro-batches and processes; over these the weights sum to 1.
        """
        ...


@dataclass(frozen=True)
class Rewards:
    """Rewards of every completion by one or more reward sources."""

    values: Float[Tensor, "N K"]
    """Rewards of N completions by K components. NaN is a missing reward."""
    names: tuple[str, ...]
    """Names of the K components."""
    steps: Float[Tensor, "N L"] | None = None
    """Process rewards at the last token of each step; NaN at other tokens."""
    members: Float[Tensor, "N K M"] | None = None
    """Rewards by each of the M members of an ensemble."""
    step_names: tuple[str, ...] = ()
    """Names of the components of the source of `steps`. If one of them is missing, the step rewards are missing too."""

    def __post_init__(self) -> None:
        """Convert integers to float64, which can represent NaN and derived values."""
        if not self.values.is_floating_point():
            object.__setattr__(self, "values", self.values.double())

    def step_rewards(self, formula: str) -> Float[Tensor, "N L"]:
        """Return `steps`. Raise `ValueError` with the name of the formula if no source rewards steps."""
        if self.steps is None:
            raise ValueError(f"{formula}: no reward source scores steps; use a process reward model or another formula")
        return self.steps

    def __getitem__(self, name: str) -> Float[Tensor, " N"]:
        """Return a component by name."""
        return self.values[:, self.index(name)]

    def index(self, name: str) -> int:
        """Return the column of a component."""
        if name not in self.names:
            raise ValueError(f"no reward is called '{name}'; the rewards are {', '.join(self.names)}")
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
    """A stateful transform of `Rewards` or of advantages. NaN stays NaN and does not affect other values."""

    slot: str
    """Which values are transformed: "reward" or "advantage"."""
    change: Change
    """The transform as a function: (state, x, rollout) -> (next state, transformed x)."""
    stage: int = 0
    """Stage of an advantage transform: 1 groups, 2 completions, 3 completions to tokens, 4 token weights, 5 masks."""
    start: State = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    """Required fields of the rollout."""
    check: Callable[[AdvantageEstimator, Sequence[str]], None] | None = None
    """(estimator, names of the rewards in the total) -> None. Raises `ValueError` if the transform has no effect."""

    def __post_init__(self) -> None:
        """Raise `ValueError` if the slot is unknown or has no such stage."""
        if self.slot not in ("reward", "advantage"):
            raise ValueError(f"a transform's slot must be 'reward' or 'advantage', got {self.slot!r}")
        if self.stage not in (range(1, 6) if self.slot == "advantage" else (0,)):
            raise ValueError(f"the stage must be 1 to 5 for advantages and 0 for rewards, got {self.stage}")


@runtime_checkable
class Scheduler(Protocol):
    """Maps the scores of a step's completions to training weights, with a state between steps."""

    def __call__(
        self, state: State, scores: Float[Tensor, " N"], rollout: Rollout
    ) -> tuple[State, Float[Tensor, " N"]]:
        """Return the next state, and weights [N] >= 0 with mean 1; a NaN score has weight 0."""
        ...


class Cycle(NamedTuple):
    """Completions of one generation, from which `LearnsOnline` sources learn after the policy was trained on them."""

    examples: Sequence[Example]
    rollout: Rollout
    total: Float[Tensor, " N"]
    """Total rewards of the completions."""
    states: list[Float[Tensor, "S D"]] | None
    """The policy's last hidden states at positions that predict a token, from the last pass; detached, on the CPU."""
    advantage: Float[Tensor, "N L"]
    """Advantages with which the policy was trained on the completions."""


Curriculum = Callable[[State, Mapping[str, Sequence[float]]], tuple[State, dict[str, float]]]
"""(state, absolute advantages by prompt kind) -> (next state, share of each kind among the next prompts).

A curriculum whose attribute `reads_rewards` is true gets total rewards instead of absolute advantages.
"""


class Past(NamedTuple):
    """Previous completions: the input of a replay."""

    advantage: Float[Tensor, "M L"]
    rollout: Rollout
    """Rollout of the previous completions, with `total` and without the fields of `ON_REQUEST`."""
    age: Int[Tensor, " M"] | None = None
    """Age of each completion in batches."""
    clipped: Float[Tensor, " M"] | None = None
    """Share of clipped tokens of each completion in the last training step that used the completion."""
    now: Rollout | None = None
    """Rollout of the current batch."""


@runtime_checkable
class Replay(Protocol):
    """Selects previous completions to train on again. Ratios are relative to the policy that generated them.

    The previous completions are those of the last batch, or of the last `ReplaysBatches.remembers` batches, oldest
    first.
    """

    def __call__(
        self, state: State, total: Float[Tensor, " N"], past: Past
    ) -> tuple[State, Float[Tensor, " M"] | Float[Tensor, "M L"] | None]:
        """Return the next state and new advantages of previous completions. The replay is skipped if they are None.

        A completion with advantage NaN is not trained on. At most one batch of completions is trained on.
        """
        ...


@runtime_checkable
class ReplaysBatches(Protocol):
    """A replay of the completions of several batches."""

    remembers: int
    """Number of batches."""


@runtime_checkable
class ReadsFields(Protocol):
    """A formula that requires optional fields of the rollout."""

    @property
    def reads(self) -> Sequence[str]:
        """Names of the fields."""
        ...


# ---- sources of completions and rewards ----


class RolloutSource(Protocol):
    """Generates completions: a rollout function of TRL's trainers."""

    def __call__(self, prompts: Sequence[Any], trainer: Any, /) -> dict[str, Any]:
        """Return `prompt_ids`, `completion_ids` and `logprobs` by row, and optionally further columns.

        If `logprobs` is None, the trainer computes them.
        """
        ...


RewardFunction = Callable[[Sequence[Example]], Sequence[float | None] | Awaitable[Sequence[float | None]]]
"""Returns a number for each completion, or None for a missing reward. May be a coroutine function."""
RewardSource = RewardModel | RewardFunction
"""Source of rewards of completions. The protocols below describe optional abilities of a source."""


@runtime_checkable
class RatesCompletions(Protocol):
    """A source with `rate`, which returns rewards [N, K], and a scoring contract that lists the K objectives."""

    contract: Any

    def rate(self, examples: Sequence[Example]) -> Any:
        """Return rewards [N, K]."""
        ...


@runtime_checkable
class ReadsStates(Protocol):
    """A source called as `rate(examples, states)`, where `states` are the policy's hidden states of each completion."""

    reads_states: bool


@runtime_checkable
class ReadsRows(Protocol):
    """A source called as `source(examples, rows)`, where `rows` are the data rows of the prompts."""

    reads_rows: bool


@runtime_checkable
class ReadsFinished(Protocol):
    """A source called as `source(examples, rows, finished)`; `finished` is False for truncated completions."""

    reads_finished: bool


@runtime_checkable
class ComparesCompletions(Protocol):
    """A source whose rewards depend on the other completions of the prompt if `compares` is true."""

    compares: bool


@runtime_checkable
class RewardsSteps(Protocol):
    """A source of process rewards: one reward per reasoning step. A run may have at most one such source."""

    def step_rewards(self, examples: Sequence[Example]) -> Sequence[Sequence[Any]]:
        """Return the `StepReward`s of the completions in the last call of `rate`."""
        ...


@runtime_checkable
class LearnsOnline(Protocol):
    """A source that is trained after each `Cycle`. `state()` and `load(state)` save and restore it in checkpoints."""

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Learn from the completions of a cycle, and return metrics."""
        ...


@runtime_checkable
class HasVersion(Protocol):
    """A source whose rewards depend on the text and on its current `version`, a named tuple."""

    version: Any


@runtime_checkable
class HasMetrics(Protocol):
    """A source with metrics of the completions in its last call."""

    def facts(self) -> Mapping[str, float]:
        """Return the metrics by name."""
        ...
