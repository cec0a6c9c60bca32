"""Policy training of the worlds' small models by the same formulas as `PolicyTrainer`, without TRL."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn
from transformers import PreTrainedModel

from ....kernels.policy_loss import ClipRule
from ....policy.aggregations.token_mean import token_mean
from ....policy.losses._kinds import TokenLoss
from ....policy.losses.ppo import ppo
from ....policy.step.algorithm import Algorithm, Scored
from ....policy.step.forward import Batch, CompletionBatch, PolicyOutputs, completion_states, own_states
from ....policy.step.step import PolicyStep
from ....policy.training.critic import CriticArguments, CriticLearner
from ....policy.training.replay_buffer import ReplayBuffer
from ....policy.types import Cycle, LearnsOnline, ReadsFields, Replay, Rewards, Rollout
from ....rm.backbones.tokenization import Encoder
from ....rm.errors import UsageError
from ....rm.registry import load
from ....rm.types import Example, Messages
from .sampling import LONGEST, Completions, sample_completions
from .trunk import Layout, completion_logprobs, completion_readings, layout_of


class Reward(Protocol):
    """Maps completions to rewards [N]; NaN is missing."""

    def __call__(self, completions: Completions) -> Tensor | np.ndarray:
        """Return the rewards."""
        ...


class OnlineReward(Protocol):
    """A reward model that reads the policy's states and learns after every cycle, such as `OnlineR2M`."""

    def rate(self, examples: Sequence[Example], states: Sequence[Tensor]) -> np.ndarray:
        """Return rewards [N, K] on the policy's states of the completions."""
        ...

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Learn from the completions of a cycle and return metrics."""
        ...


def clipped(advantage: str = "grpo", **options: Any) -> Algorithm:
    """Return a named advantage with PPO's clipped loss and the mean over tokens; `options` are those of `Algorithm`."""
    return Algorithm(load("policy.advantages", advantage)(), ppo(), token_mean(), **options)


@dataclass(frozen=True)
class PolicyLoop:
    """Settings of `train_policy`; a cycle is one batch of new completions."""

    cycles: int = 100
    prompts: int = 8
    """Prompts of a cycle."""
    group: int = 8
    """Completions of a prompt."""
    passes: int = 1
    """Optimizer steps on the completions of a cycle."""
    learning_rate: float = 5e-4
    longest: int = LONGEST
    """Largest number of tokens of a completion."""
    max_grad_norm: float = 1.0
    variants: int = 1
    """Number of consecutive prompts that are variants of one, whose completions share a group in equal parts."""


class CycleReport(NamedTuple):
    """What one cycle did."""

    cycle: int
    """Number of finished cycles: 0 before training."""
    scored: Scored | None
    metrics: dict[str, float]


def train_policy(
    policy: PreTrainedModel,
    reward: Reward | OnlineReward,
    algorithm: Algorithm,
    loop: PolicyLoop,
    prompts: Sequence[Messages],
    *,
    seed: int,
    reference: PreTrainedModel | None = None,
    critic: CriticArguments | None = None,
    replay: Replay | None = None,
    encoder: Encoder | None = None,
) -> Iterator[CycleReport]:
    """Train the policy in place and yield before the first cycle and after each, so that the caller can measure it.

    Prompts are drawn without replacement, anew when all were drawn. AdamW without weight decay, constant learning
    rate. `reference` is the policy of the KL penalty. A `replay` takes one more optimizer step in each cycle, before
    those on the new completions, as in `PolicyTrainer`. `encoder` is by default that of the worlds' policies. Raises
    UsageError for a loss that compares completions, or an entropy bonus, which this loop does not compute.
    """
    if not isinstance(algorithm.rule, ClipRule | TokenLoss) or algorithm.entropy:
        raise UsageError(
            "the worlds' fast loop trains on clip rules and losses of single tokens without an entropy bonus"
        )
    trainer = _Trainer(policy, reward, algorithm, loop, reference, critic, replay, encoder)
    yield CycleReport(0, None, {})
    starts_of_groups = _draws(len(prompts) // loop.variants, seed)
    for cycle in range(loop.cycles):
        starts = [loop.variants * next(starts_of_groups) for _ in range(loop.prompts)]
        batch = [prompt for start in starts for prompt in prompts[start : start + loop.variants]]
        yield CycleReport(cycle + 1, *trainer.cycle(batch, seed=(seed + 1) * 1_000_003 + cycle))


def _draws(number: int, seed: int) -> Iterator[int]:
    generator = Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(number, generator=generator).tolist()


class _Trainer:
    """Policy, optimizer and everything that lasts from one cycle to the next."""

    def __init__(
        self,
        policy: PreTrainedModel,
        reward: Any,
        algorithm: Algorithm,
        loop: PolicyLoop,
        reference: PreTrainedModel | None,
        critic: CriticArguments | None,
        replay: Replay | None,
        encoder: Encoder | None,
    ):
        self.policy, self.reward, self.loop, self.reference, self.encoder = policy, reward, loop, reference, encoder
        self.step = PolicyStep(algorithm, loop.group)
        self.parameters = [weight for weight in policy.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=loop.learning_rate, weight_decay=0.0, fused=True)
        self.learner = CriticLearner(policy.config.hidden_size, critic, torch.device("cpu")) if critic else None
        self.replay = ReplayBuffer(replay, 1) if replay else None
        self.reads_states = isinstance(reward, LearnsOnline)
        self.last_states: Tensor | None = None

    def cycle(self, prompts: Sequence[Messages], seed: int) -> tuple[Scored, dict[str, float]]:
        """Sample, rate and train once; every prompt gets an equal part of its group's completions."""
        prompts = [prompt for prompt in prompts for _ in range(self.loop.group // self.loop.variants)]
        completions = sample_completions(
            self.policy, prompts, seed=seed, longest=self.loop.longest, encoder=self.encoder
        )
        rows = completions.rows
        layout = layout_of(rows)
        rollout, reading = self._rollout(completions, layout)
        if self.reads_states:
            assert reading is not None
            values: Any = self.reward.rate(completions.examples, own_states(reading.states, rows))[:, 0]
        else:
            values = self.reward(completions)
        rewards = Rewards(torch.as_tensor(np.asarray(values, dtype=np.float64))[:, None], ("reward",))
        scored = self.step.score(rewards, rollout)
        critic = self.learner.loss_inputs(scored, rollout, self.step.algorithm.gamma) if self.learner else None
        width = rows.response.shape[1]
        batch = rows._asdict() | self.step.loss_inputs(scored, rollout, width=width, critic=critic)
        if self.replay:
            self.replay.next_cycle(batch, scored, rollout)
            self._update(self.replay.micro_batches[0])
        for _ in range(self.loop.passes):
            self._update(batch, layout)
        metrics = {"reward": scored.total.nanmean().item()}
        if self.reads_states:
            assert self.last_states is not None
            states = own_states(self.last_states, rows)
            metrics |= self.reward.learn(Cycle(completions.examples, rollout, scored.total, states, scored.advantage))
        return scored, metrics

    @torch.no_grad()
    def _rollout(self, completions: Completions, layout: Layout) -> tuple[Rollout, PolicyOutputs | None]:
        """Return the completions as formulas read them, and the policy's reading if something needs its states."""
        rows = completions.rows
        replay = self.replay and self.replay.replay
        reads = self.step.algorithm.reads | {*(replay.reads if isinstance(replay, ReadsFields) else ())}
        needed = self.learner or self.reads_states or reads & {"states", "entropy"}
        reading = completion_readings(self.policy, rows, layout) if needed else None
        values, after = self.learner.values(reading.states, rows) if self.learner and reading else (None, None)
        rollout = self.step.rollout(
            rows.response,
            completions.finished,
            logprobs=completions.logprob,
            base=None if self.reference is None else completion_logprobs(self.reference, rows, layout),
            values=values,
            after=after,
            entropy=reading and reading.entropy,
            states=completion_states(reading.states, rows)[:, :-1] if reading and "states" in reads else None,
        )
        return rollout, reading

    def _update(self, batch: Batch, layout: Layout | None = None) -> None:
        """Take one optimizer step, unless no completion has a gradient: AdamW would still move the weights."""
        penalty = self.step.algorithm.penalty
        factor = 1 if penalty.beta and penalty.place == "loss" else batch["advantages"]
        if not (factor * batch["weights"]).any():
            return
        rows = CompletionBatch(*(batch[name] for name in CompletionBatch._fields))
        reading = completion_readings(self.policy, rows, layout) if self.learner or self.reads_states else None
        logprob = reading.logprob if reading else completion_logprobs(self.policy, rows, layout)
        loss = self.step.loss(logprob, None, rows.response, batch)
        loss.total.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.loop.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.replay:
            self.replay.record_clipped(batch["row"], loss.sums)
        if reading:
            self.last_states = reading.states.detach()
        if self.learner and reading and batch["value_weights"].any():
            self.learner.learn_batch(reading.states, rows, batch)
            self.learner.step()
