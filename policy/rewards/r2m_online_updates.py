"""Online R2M: a reward model that reads the policy's hidden states and is updated after each cycle of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from ...rm.backbones.loading import fingerprint
from ...rm.errors import DataError, UsageError
from ...rm.kinds.r2m.model import R2MRewardModel, reward_tokens
from ...rm.losses.grebt import GroupLosses, Pairs, extremes, grebt, omega
from ...rm.training.distributed import reduce_gradients
from ...rm.types import Example, Labeller, content_hash
from ..step.forward import STATE_DTYPE
from ..types import Cycle
from .r2m_controls import R2MArguments, States


@dataclass(frozen=True)
class Anchor:
    """External labels for the update: a labeller returns P(best is better than worst) for some groups of each cycle."""

    labeller: Labeller
    groups: int
    """Number of labelled groups per cycle, drawn at random. Each takes one call of the labeller."""
    only: bool = False
    """Whether to drop the pairs of the other groups instead of labelling them by the model's own rewards."""

    def __post_init__(self) -> None:
        """Raise `UsageError` unless at least one group is labelled."""
        if self.groups < 1:
            raise UsageError(f"an anchor must label at least one group in every cycle, got {self.groups}")


class Version(NamedTuple):
    """Versions of the reward model and of the policy, which determine a reward together with the text."""

    body: str
    """Fingerprint of the reward model at the start of training."""
    head: int
    """Number of updates of the reward head."""
    policy: int
    """Number of cycles that the policy was trained on."""
    omega: float


class _Annotation(NamedTuple):
    """Completions of a cycle with their tokens, rewards and hidden states at the time of `rate`."""

    examples: list[Example]
    tokens: Float[Tensor, "N D"]
    rewards: Float[Tensor, "N K"]
    states: States | None
    """Hidden states, stored only if the update uses them instead of the states of the last pass."""


class _UpdateBatch(NamedTuple):
    """Completions of a cycle: inputs of the reward model's update."""

    examples: list[Example]
    tokens: Float[Tensor, "N D"]
    states: States
    rows: Int[Tensor, "G R"]
    """Row indices of every group."""
    rewarded: Bool[Tensor, " N"]
    """Whether the policy was trained on the completion."""


# ---- the source ----


class OnlineR2M:
    """A reward source by algorithm 1 of R2M (Huang et al. 2026, arXiv:2601.22664), with one update per cycle.

    In cycle t of `rounds`, completions get rewards at weight ω(t) from the policy's hidden states. After the policy's
    last pass over them, the reward head is updated by the loss `grebt` and AdamW (no weight decay) on the best and the
    worst completion of each group, with the states of that pass. As published, the model's own rewards determine best
    and worst; with an `anchor`, a labeller compares the two.
    """

    reads_states = True

    def __init__(
        self, model: R2MRewardModel, rounds: int, arguments: R2MArguments | None = None, *, anchor: Anchor | None = None
    ):
        self.model, self.rounds, self.anchor = model, rounds, anchor
        self.arguments = arguments = arguments or R2MArguments()
        self.contract = model.contract
        self.loss = grebt(arguments.alpha, spread=arguments.spread, epsilon=arguments.epsilon)
        self.columns = _columns(model.contract.objectives, arguments.objectives)
        if anchor and (len(self.columns) != 1 or arguments.alpha == 1):
            raise UsageError(
                f"an anchor needs a single objective and alpha < 1, got {len(self.columns)} objectives and alpha "
                f"{arguments.alpha}; change these arguments"
            )
        head = [*model.head.parameters()]
        body = [parameter for parameter in model.body.model.parameters() if parameter.requires_grad]
        self.learning = {"nothing": [], "head": head, "everything": head + body}[arguments.learns]
        self.optimizer = None
        if self.learning:
            self.optimizer = torch.optim.AdamW(self.learning, lr=arguments.learning_rate, weight_decay=0.0)
        self._body = fingerprint(model.body.model)
        self.cycles = self.updates = self.calls = 0
        self._begin()

    def _begin(self) -> None:
        """Start a cycle: set ω from the cycle's number, and delete the stored completions."""
        self.model.omega = omega(self.cycles, self.rounds, self.arguments.floor)
        self._annotations: list[_Annotation] = []

    @property
    def version(self) -> Version:
        """Version of the current rewards."""
        return Version(self._body, self.updates, self.cycles, self.model.omega)

    # ---- rating ----

    @torch.no_grad()
    def rate(self, examples: Sequence[Example], states: States) -> np.ndarray:
        """Return rewards [N, K] at the current ω. They are stored until the next update."""
        tokens, inputs = reward_tokens(self.model.body, examples), self._head_inputs(states, examples, "rate")
        rewards = self.model.rewards(tokens, inputs).cpu()
        self._annotations.append(_Annotation([*examples], tokens, rewards, None if self.arguments.refresh else inputs))
        return rewards.double().numpy()

    def _head_inputs(self, states: States, examples: Sequence[Example], use: str) -> States:
        return [
            state.detach().to("cpu", STATE_DTYPE) for state in self.arguments.reads(states, examples, self._random(use))
        ]

    def _random(self, use: str) -> Generator:
        """Create a random number generator that depends only on seed, cycle and `use`."""
        return Generator().manual_seed(int(content_hash([self.arguments.seed, self.cycles, use]), 16))

    # ---- learning ----

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Update the model by one pass over the cycle's groups. Return metrics of the model before the update."""
        annotation, version = self._annotation(cycle), self.version
        batch = self._update_batch(cycle, annotation)
        indices = batch.rows.flatten()
        rewards = self._by_group(annotation.rewards[indices], batch, indices)
        if self.arguments.pair_from == "refreshed":
            rewards = self._refreshed_rewards(batch)
        pairs, random, facts = extremes(rewards), self._random("update"), {}
        if self.anchor:
            pairs, facts = self._label_with_anchor(self.anchor, pairs, self._refreshed_rewards(batch), batch, random)
        losses = self._update(batch, pairs, random)
        self.updates += bool(self.optimizer and not losses.loss.isnan().all())
        self.cycles += 1
        self._begin()
        return _update_metrics(version, losses, facts)

    def _annotation(self, cycle: Cycle) -> _Annotation:
        """Gather the stored completions of all processes, so that all processes make the same update."""
        examples = [*cycle.examples]
        here, share = PartialState(), len(examples) // PartialState().num_processes
        examples = examples[here.process_index * share : (here.process_index + 1) * share]
        existing = [annotation for annotation in self._annotations if annotation.examples == examples]
        if not existing:
            raise UsageError(
                f"the reward model, at version {self.updates}, has not rated these {len(examples)} completions, and it "
                "learns from its own rewards; call `rate` on them before `learn`"
            )
        last = existing[-1]
        return _concatenate(gather_object([last._replace(tokens=last.tokens.cpu())]), last.tokens.device)

    def _update_batch(self, cycle: Cycle, annotation: _Annotation) -> _UpdateBatch:
        states = annotation.states
        if states is None:
            if cycle.states is None:
                raise UsageError(
                    "the cycle has no hidden states of the policy's last pass; pass them, or set refresh to False"
                )
            states = self._head_inputs(cycle.states, annotation.examples, "refresh")
        rows, rewarded = rows_of_groups(cycle.rollout.group.cpu()), ~cycle.total.isnan().cpu()
        return _UpdateBatch(annotation.examples, annotation.tokens, states, rows, rewarded)

    @torch.no_grad()
    def _refreshed_rewards(self, batch: _UpdateBatch) -> Float[Tensor, "G R"]:
        """Compute rewards on the states of the last pass, before the update."""
        return self._rewards(batch, torch.arange(len(batch.rows)))

    def _rewards(self, batch: _UpdateBatch, groups: Int[Tensor, " _"]) -> Float[Tensor, "G R"]:
        """Compute differentiable rewards of the given groups with the current model, on the CPU."""
        indices = batch.rows[groups].flatten()
        tokens = batch.tokens[indices]
        if self.arguments.learns == "everything":
            tokens = reward_tokens(self.model.body, [batch.examples[position] for position in indices])
        rewards = self.model.rewards(tokens, [batch.states[position] for position in indices])
        return self._by_group(rewards.cpu(), batch, indices)

    def _by_group(
        self, rewards: Float[Tensor, "M K"], batch: _UpdateBatch, indices: Int[Tensor, " M"]
    ) -> Float[Tensor, "G R"]:
        """Arrange rewards in one row per group and objective. NaN for completions that were not trained on."""
        masked = rewards.masked_fill(~batch.rewarded[indices, None], torch.nan)[:, self.columns]
        return masked.unflatten(0, (-1, batch.rows.shape[1])).transpose(1, 2).flatten(0, 1)

    def _update(self, batch: _UpdateBatch, pairs: Pairs, random: Generator) -> GroupLosses:
        """Run one pass over shuffled groups; return the losses before each step."""
        number, K, step_losses = len(batch.rows), len(self.columns), []
        for groups in torch.randperm(number, generator=random).split(self.arguments.batch_groups or number):
            indices = (groups[:, None] * K + torch.arange(K)).flatten()
            with torch.set_grad_enabled(self.optimizer is not None):
                losses = self.loss(self._rewards(batch, groups), Pairs(*(pair[indices] for pair in pairs)))
            self._step(losses.loss)
            step_losses.append([loss.detach() for loss in losses])
        return GroupLosses(*map(torch.cat, zip(*step_losses, strict=True)))

    def _step(self, loss: Float[Tensor, " G"]) -> None:
        """Take an optimizer step on the mean of the losses that are not NaN, if there are any."""
        counts = ~loss.isnan()
        if self.optimizer is None or not counts.any():
            return
        loss[counts].mean().backward()
        reduce_gradients(self.learning)
        nn.utils.clip_grad_norm_(self.learning, self.arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    # ---- external labels ----

    def _label_with_anchor(
        self, anchor: Anchor, pairs: Pairs, refreshed: Float[Tensor, "G R"], batch: _UpdateBatch, random: Generator
    ) -> tuple[Pairs, dict[str, float]]:
        """Label the pairs of random groups; return all pairs, and metrics of the agreement of model and labeller."""
        if anchor.groups > len(batch.rows):
            raise UsageError(
                f"an anchor labels {anchor.groups} groups, but the cycle has {len(batch.rows)}; set fewer groups"
            )
        groups = torch.randperm(len(batch.rows), generator=random)[: anchor.groups]
        groups = groups[~pairs.wins[groups].isnan()]
        labels = torch.full_like(pairs.wins, torch.nan)
        labeller = anchor.labeller if PartialState().is_main_process else lambda *_: float("nan")  # rank 0 asks
        for group in groups.tolist():
            best, worst = (batch.examples[batch.rows[group, side[group]]] for side in (pairs.best, pairs.worst))
            labels[group] = label_pair(labeller, best, worst, random)
        labels = broadcast_object_list([labels])[0]
        self.calls += len(groups)
        wins = torch.full_like(labels, torch.nan) if anchor.only else pairs.wins.clone()
        wins[groups] = labels[groups]
        gap = (refreshed.gather(1, pairs.best[:, None]) - refreshed.gather(1, pairs.worst[:, None])).squeeze(1)
        right = ((gap * (labels - 0.5)) > 0)[~labels.isnan() & (labels != 0.5)].float()
        abstained = int(labels[groups].isnan().sum())
        facts = {"asked": len(groups), "abstained": abstained, "accuracy": right.mean().item(), "calls": self.calls}
        return pairs._replace(wins=wins), facts

    # ---- checkpoints ----

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        body = self.model.body.model.state_dict() if self.arguments.learns == "everything" else None
        return {
            "made": self._fixed_settings(),
            "counts": [self.cycles, self.updates, self.calls],
            "head": self.model.head.state_dict(),
            "body": body,
            "optimizer": self.optimizer.state_dict() if self.optimizer else None,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the state from a checkpoint. Raise `DataError` if its reward model or number of rounds differs."""
        settings = self._fixed_settings()
        if other := [name for name in settings if state["made"].get(name) != settings[name]]:
            raise DataError(
                f"the checkpoint's reward model has {other[0]} {state['made'].get(other[0])}, but this run has "
                f"{settings[other[0]]}; resume with the settings of the original run"
            )
        self.model.head.load_state_dict(state["head"])
        if state["body"] is not None:
            self.model.body.model.load_state_dict(state["body"])
        if self.optimizer:
            self.optimizer.load_state_dict(state["optimizer"])
        self.cycles, self.updates, self.calls = state["counts"]
        self._begin()

    def _fixed_settings(self) -> dict[str, Any]:
        """Return the settings that must be equal when a checkpoint is loaded."""
        D, width = self.model.head.W_q.shape
        return {
            "rounds": self.rounds,
            "objectives": [*self.contract.objectives],
            "widths": [D, self.model.head.W_k.shape[0], width],
            "learns": self.arguments.learns,
            "body": self._body,
        }


def _concatenate(parts: Sequence[_Annotation], device: torch.device) -> _Annotation:
    """Concatenate the annotations of all processes, by rank."""
    examples, tokens, rewards, states = zip(*parts, strict=True)
    joined_states = None if None in states else [item for some in states for item in some]
    return _Annotation(
        [item for some in examples for item in some], torch.cat(tokens).to(device), torch.cat(rewards), joined_states
    )


def rows_of_groups(group: Int[Tensor, " N"]) -> Int[Tensor, "G R"]:
    """Return the row indices of every group, in order; raise `ValueError` for groups of different sizes."""
    sizes = torch.unique(group, return_counts=True)[1]
    if (sizes != sizes[0]).any():
        raise ValueError(f"rows_of_groups: groups must have equal sizes, got {sizes.tolist()[:8]}")
    return group.argsort(stable=True).view(len(sizes), -1)


def label_pair(labeller: Labeller, first: Example, second: Example, random: Generator) -> float:
    """Return the labeller's P(first is better), or NaN. The order is random, to cancel the labeller's position bias."""
    swapped = bool(torch.randint(2, (), generator=random))
    completions = (second.text, first.text) if swapped else (first.text, second.text)
    chance = float(labeller(first.prompt, completions))
    if not (np.isnan(chance) or 0 <= chance <= 1):
        raise DataError(
            f"a labeller must return P(first is better) in [0, 1] or NaN, got {chance} for {completions[0][:60]!r}"
        )
    return 1 - chance if swapped else chance


def _columns(objectives: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Return the columns of the named objectives; of all objectives if no name is given."""
    if unknown := [name for name in names if name not in objectives]:
        raise UsageError(f"no objective '{unknown[0]}' in the reward model; it has {', '.join(objectives)}")
    return [objectives.index(name) for name in names or objectives]


def _update_metrics(version: Version, losses: GroupLosses, facts: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an update. NaN values are left out."""
    metrics = {
        "head_version": version.head,
        "policy_version": version.policy,
        "omega": version.omega,
        "loss": losses.loss.nanmean().item(),
        "bt": losses.pair.nanmean().item(),
        "gre": losses.entropy.nanmean().item(),
        "skipped_groups": int(losses.loss.isnan().sum()),
        **facts,
    }
    return {name: float(value) for name, value in metrics.items() if not np.isnan(value)}
