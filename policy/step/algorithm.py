"""Algorithm of policy training: from a step's rewards to advantages and token weights, with every stage recorded."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.policy_loss import ClipRule, divergence
from ..advantages._groups import at_last_token
from ..losses._kinds import AuxiliaryLoss, CompletionLoss, TokenLoss
from ..types import (
    AdvantageEstimator,
    Aggregation,
    ReadsFields,
    Rewards,
    Rollout,
    Scheduler,
    State,
    TokenEstimator,
    Transform,
)

PENALTY_LEVELS = ("loss", "token", "completion")
ON_MISSING = ("group", "strict", "sum")


@dataclass(frozen=True)
class Penalty:
    """β KL(π | base): a term of the loss, of every token's reward, or of the completion's reward.

    β is the coefficient, π the policy and base the reference policy. In a reward, token t costs
    β k(log π_old(y_t), log base(y_t)), where π_old is the policy at scoring time. `kind` (the estimator k of the KL)
    and `corrected` are arguments of `kernels.policy_loss`. The default is TRL's: a term of the loss whose gradient is
    that of KL(π | base).
    """

    beta: float = 0.0
    place: str = "loss"
    kind: str = "k3"
    corrected: bool = True

    def __post_init__(self) -> None:
        """Raise `ValueError` if `place` is unknown."""
        if self.place not in PENALTY_LEVELS:
            raise ValueError(f"the KL penalty's place must be one of {', '.join(PENALTY_LEVELS)}, got {self.place!r}")

    @property
    def in_reward(self) -> bool:
        """Whether the penalty is part of the rewards."""
        return self.beta != 0 and self.place != "loss"

    def cost(self, rollout: Rollout) -> Float[Tensor, "N L"]:
        """Return the penalty β k of each token; 0 outside completions."""
        logprobs, base = rollout.require("a KL penalty in the reward", "logprobs", "base")
        kl = divergence(self.kind, logprobs.flatten(), base.flatten())
        return torch.where(rollout.response, self.beta * kl.view_as(base), 0)


class Scored(NamedTuple):
    """Rewards, advantages and token weights of a step, with every intermediate stage."""

    rewards: dict[str, Rewards]
    """Rewards by stage: `sources`, then each reward transform."""
    total: Float[Tensor, " N"]
    """Weighted sum Σ_k w_k r_k of the reward components after the transforms, before any KL penalty; NaN if missing."""
    earned: Float[Tensor, "N ..."]
    """`total` minus a KL penalty in the reward: [N], or token rewards [N, L] with `total` at the last token."""
    terminal: bool
    """Whether `total` is a reward of the whole completion. False if only a source of step rewards has a weight."""
    advantages: dict[str, Tensor]
    """Advantages by stage: `estimate` [N] or [N, L], then each transform. The last stage is used for training."""
    trained: Bool[Tensor, "N L"]
    """Mask of the tokens in the loss. False for completions with a missing reward and for masked completions."""
    weights: Float[Tensor, "N L"]
    """Weights of the tokens in the loss: the product of aggregation and scheduler weights."""
    missing: dict[str, Bool[Tensor, " N"]]
    """For each reward component of the total, a mask of the completions that lack this reward."""

    @property
    def advantage(self) -> Float[Tensor, "N L"]:
        """Advantages of the last stage, expanded to tokens."""
        last = [*self.advantages.values()][-1]
        return last if last.dim() == 2 else last[:, None].expand_as(self.weights)


@dataclass
class Algorithm:
    """A policy-gradient method composed of formulas. `state` is the state of the formulas between steps."""

    advantage: AdvantageEstimator
    rule: ClipRule | TokenLoss | CompletionLoss
    """The policy loss: a clip rule, a loss of single tokens, or a loss of whole completions."""
    aggregation: Aggregation
    shares: Mapping[str, float] = field(default_factory=dict)
    """Weights w_k of the reward components. Other components of the sources are only logged; a component that a
    transform adds has weight 1. If empty, each component has weight 1."""
    apart: bool = False
    """Whether the estimator gets the weighted components [N, K] separately instead of their sum [N]."""
    on_missing: str = "group"
    """Rule of `without_reward` by which completions with some missing rewards are dropped. The others are trained on
    their remaining rewards."""
    penalty: Penalty = field(default_factory=Penalty)
    entropy: float = 0.0
    """Weight of the entropy bonus in the loss."""
    reward_transforms: Mapping[str, Transform] = field(default_factory=dict)
    advantage_transforms: Mapping[str, Transform] = field(default_factory=dict)
    scheduler: Scheduler | None = None
    auxiliary: AuxiliaryLoss | None = None
    """Loss with a second term, which is added to the policy loss; its `rule` is that policy loss."""
    formulas: Mapping[str, str] = field(default_factory=dict)
    """Formula of each field as the user wrote it, such as `my_code:advantage(x=1)`, for error messages."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for transforms in the wrong order or without effect, and an unusable KL penalty."""
        if self.on_missing not in ON_MISSING:
            raise ValueError(f"on_missing must be one of {', '.join(ON_MISSING)}, got {self.on_missing!r}")
        if self.apart and self.penalty.in_reward:
            raise ValueError(
                "an estimator of separate reward components cannot use a KL penalty in the reward; move it to the loss"
            )
        trained = [name for name, share in self.shares.items() if share]
        for transform in [*self.reward_transforms.values()][-1:]:
            if transform.check and not self.apart:
                transform.check(self.advantage, trained)
        self._rewards = TransformChain("reward", self.reward_transforms)
        self._advantages = TransformChain("advantage", self.advantage_transforms)
        self._scheduled: State = {}

    @property
    def reads(self) -> set[str]:
        """Fields of `Rollout` that the formulas require."""
        transforms = (*self.reward_transforms.values(), *self.advantage_transforms.values())
        formulas = (*transforms, self.advantage, self.scheduler)
        reads = {name for formula in formulas if isinstance(formula, ReadsFields) for name in formula.reads}
        return reads | ({"head"} if self.auxiliary else set())

    @property
    def gamma(self) -> float:
        """Discount factor of later rewards in the advantages. 1 for estimators on whole completions."""
        return self.advantage.gamma if isinstance(self.advantage, TokenEstimator) else 1.0

    @property
    def state(self) -> dict[str, Any]:
        """JSON-serializable copy of the formulas' state."""
        states = {"rewards": self._rewards.state, "advantages": self._advantages.state, "scheduler": self._scheduled}
        return copy.deepcopy(states)

    def weighted(self, rewards: Rewards) -> Float[Tensor, " N"]:
        """Return Σ_k w_k r_k of rewards before the transforms; NaN where a component with a weight is missing."""
        shares = self.shares or dict.fromkeys(rewards.names, 1.0)
        return weighted_sum(rewards.values, [shares.get(name, 0.0) for name in rewards.names])

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the state from a checkpoint."""
        self._rewards.load(state["rewards"])
        self._advantages.load(state["advantages"])
        self._scheduled = state["scheduler"]

    def __call__(self, rewards: Rewards, rollout: Rollout, *, mask_truncated: bool = False) -> Scored:
        """Compute the advantages and token weights of one step, and update the state of the formulas.

        With `mask_truncated`, truncated completions get advantages but are not in the loss.
        """
        rewards_by_stage = {"sources": rewards, **dict(self._rewards(rewards, rollout))}
        last = [*rewards_by_stage.values()][-1]
        shares = dict(self.shares or dict.fromkeys(rewards.names, 1.0))
        for name in shares:
            last.index(name)
        _check_weights_of_steps(last.step_names, shares)
        shares |= {name: 1.0 for name in last.names if name not in {*rewards.names, *shares}}  # added by transforms
        missing = {name: last[name].isnan() for name in last.names if shares.get(name) or name in last.step_names}
        total = self._total(last, shares, [*missing], rollout.group)
        names = [name for name, share in shares.items() if share]
        terminal = any(name not in last.step_names for name in names)
        if terminal:
            rollout = rollout._replace(after=None)
        rollout = rollout._replace(steps=last.steps)
        earned = self._earned_rewards(last, total, rollout)
        estimate = self.advantage(self._estimator_input(last, names, earned, total), rollout)
        stages = {"estimate": estimate, **dict(self._advantages(estimate, rollout._replace(total=total)))}
        by_token = last.steps is not None or (self.penalty.in_reward and self.penalty.place == "token")
        self._check_levels(stages, token_rewards=by_token)
        trained = rollout.response & ~total.isnan()[:, None]
        if mask_truncated:
            trained = trained & rollout.finished[:, None]
        weights = self._weights(total, trained, rollout)
        return Scored(rewards_by_stage, total, earned, terminal, stages, trained, weights, missing)

    def _total(
        self, rewards: Rewards, shares: Mapping[str, float], components: Sequence[str], group: Int[Tensor, " N"]
    ) -> Float[Tensor, " N"]:
        """Return the weighted sum of each completion's present rewards. NaN if `on_missing` drops the completion."""
        missing = rewards.values.isnan()
        weights = [shares.get(name, 0.0) for name in rewards.names]
        total = weighted_sum(torch.where(missing, 0, rewards.values), weights)
        lacks = missing[:, [rewards.index(name) for name in components]]
        return torch.where(without_reward(lacks, group, self.on_missing), torch.nan, total)

    def _estimator_input(
        self, rewards: Rewards, trained: Sequence[str], earned: Float[Tensor, "N ..."], total: Float[Tensor, " N"]
    ) -> Tensor:
        """Return the estimator's input: [N], [N, K] if `apart`, or [N, L] for a token estimator and token rewards."""
        if self.apart:
            if rewards.steps is not None:
                raise ValueError(
                    "an estimator of separate reward components cannot use step rewards; use another estimator"
                )
            components = rewards.values[:, [rewards.index(name) for name in trained]]
            if self.on_missing == "strict":  # the estimator decides what a row with some of them is worth to its group
                return components
            return torch.where(total.isnan()[:, None], torch.nan, components)
        if earned.dim() == 1 or isinstance(self.advantage, TokenEstimator):
            return earned
        return torch.where(total.isnan(), total, earned.sum(1))

    def _earned_rewards(self, rewards: Rewards, total: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, "N ..."]:
        """Return completion rewards [N], or token rewards [N, L] if the run has token rewards."""
        if self.penalty.in_reward and self.penalty.place == "completion":
            total = total - self.penalty.cost(rollout).sum(1)
        tokens = [] if rewards.steps is None else [rewards.steps.nan_to_num(0)]
        if self.penalty.in_reward and self.penalty.place == "token":
            tokens.append(-self.penalty.cost(rollout))
        if not tokens:
            return total
        return at_last_token(total, rollout.response) + torch.where(rollout.response, torch.stack(tokens).sum(0), 0)

    def _check_levels(self, stages: Mapping[str, Tensor], *, token_rewards: bool) -> None:
        """Raise an error for token advantages if token rewards were summed or the loss is of whole completions."""
        of_tokens = next((name for name, advantage in stages.items() if advantage.dim() == 2), None)
        if token_rewards and of_tokens == "estimate" and not isinstance(self.advantage, TokenEstimator):
            raise ValueError(
                "the estimator returns token advantages but does not get the token rewards of this run; wrap it in "
                "policy.types.TokenEstimator"
            )
        if of_tokens and not isinstance(self.rule, ClipRule | TokenLoss):
            stage = "the estimator" if of_tokens == "estimate" else f"'{of_tokens}'"
            raise ValueError(
                f"a loss of whole completions reads one advantage per completion, but {stage} returns one per token; "
                "replace it, or use a clip rule such as ppo as the loss"
            )

    def _weights(
        self, total: Float[Tensor, " N"], trained: Bool[Tensor, "N L"], rollout: Rollout
    ) -> Float[Tensor, "N L"]:
        weights = self.aggregation(trained, float((~total.isnan()).sum()), float(trained.sum()))
        if self.scheduler is None:
            return weights
        self._scheduled, often = self.scheduler(self._scheduled, total, rollout)
        return weights * often[:, None]


def _check_weights_of_steps(names: Sequence[str], shares: Mapping[str, float]) -> None:
    """Raise `ValueError` for a weight of the source of step rewards other than 1, or 0 for its completion rewards."""
    for name in names:
        if (share := shares.get(name, 1.0)) not in (0, 1):
            raise ValueError(
                f"the weight of '{name}' is {share:g}, but its rewards are of single steps, which no weight scales; "
                "scale them in their source, as process(scale=...) does, and leave the weight out"
            )


# ---- transforms and sums of rewards ----

STAGES = {1: "groups as a whole", 2: "completions", 3: "completions to tokens", 4: "token weights", 5: "token masks"}


class TransformChain:
    """Transforms of rewards or of advantages, in order. `state` is JSON-serializable and saved in checkpoints."""

    def __init__(self, slot: str, transforms: Mapping[str, Transform]):
        for name, transform in transforms.items():
            if transform.slot != slot:
                raise ValueError(f"'{name}' transforms {transform.slot}s but is listed as a transform of {slot}s")
        for (first, before), (second, after) in pairwise(transforms.items()):
            if before.stage > after.stage:
                raise ValueError(
                    f"'{second}' is of stage {after.stage} ({STAGES[after.stage]}) but comes after '{first}' of "
                    f"stage {before.stage} ({STAGES[before.stage]}); list the earlier stage first"
                )
        self.transforms = dict(transforms)
        self.state: dict[str, State] = {name: dict(transform.start) for name, transform in transforms.items()}

    def __call__(self, x: Any, rollout: Rollout) -> list[tuple[str, Any]]:
        """Return name and output of each transform, in order. The last output is the result. Empty if no transforms."""
        stages = []
        for name, transform in self.transforms.items():
            self.state[name], x = transform.change(self.state[name], x, rollout)
            stages.append((name, x))
        return stages

    def load(self, state: Mapping[str, State]) -> None:
        """Load the state from a checkpoint of the same transforms."""
        if [*state] != [*self.transforms]:
            raise ValueError(
                f"the state has the transforms {', '.join(state)}, not {', '.join(self.transforms)}; use the same"
            )
        self.state = {name: dict(transform_state) for name, transform_state in state.items()}


def weighted_sum(values: Any, weights: Sequence[float]) -> Any:
    """Compute Σ_k w_k r_k of rewards r [N, K] with weights w. NaN if a component with non-zero weight is missing."""
    if len(weights) != values.shape[1]:
        raise ValueError(f"got {len(weights)} weights for {values.shape[1]} rewards; give one weight per reward")
    used = [index for index, weight in enumerate(weights) if weight]
    return sum((weights[component] * values[:, component] for component in used), start=values.new_zeros(len(values)))


def without_reward(missing: Bool[Tensor, "N K"], group: Int[Tensor, " N"], rule: str) -> Bool[Tensor, " N"]:
    """Return a mask of the completions that have no total reward, from the mask of their K missing rewards.

    The rules are:

    strict   at least one reward is missing.
    sum      all rewards are missing, as in TRL. A missing reward then acts like a reward of 0 in the sum.
    group    all rewards are missing, or at least one that another completion of the group has. A reward that all
             completions of the group lack does not apply to the prompt.
    """
    if rule == "strict" or not missing.shape[1]:
        return missing.any(1)
    if rule == "group":
        return missing.all(1) | uneven(missing, group)
    return missing.all(1)


def uneven(missing: Bool[Tensor, "N K"], group: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    """Return a mask of the completions that lack a reward which another completion of their group has."""
    index = torch.unique(group, return_inverse=True)[1]
    number = torch.zeros(len(missing), missing.shape[1], device=missing.device)
    present = number.index_add(0, index, (~missing).float())[index] > 0
    return (missing & present).any(1)
