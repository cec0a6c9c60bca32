"""One step of policy training: rollout -> rewards and advantages -> loss inputs -> loss; losses that compare groups."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.policy_loss import ClipRule, PolicyLoss, policy_loss
from ..advantages._groups import bounds_of_rows
from ..losses._kinds import CompletionLoss, CompletionLossInputs, TokenLoss, n_own_completions
from ..types import Rewards, Rollout
from .algorithm import Algorithm, Scored
from .forward import Batch, CompletionBatch, PolicyOutputs, batch_of, completion_states

UNBOUNDED = ClipRule((0.0, math.inf), (0.0, math.inf))


def token_objective(
    algorithm: Algorithm,
    logprob: Float[Tensor, "N L"],
    old: Float[Tensor, "N L"],
    advantages: Float[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    *,
    base: Float[Tensor, "N L"] | None = None,
    importance: Tensor | float = 1.0,
    is_own: Bool[Tensor, " N"] | None = None,
) -> PolicyLoss:
    """Compute Σ_t w_t (i_t L_t + β KL_t) over the tokens t of a micro-batch.

    w are token weights, i importance weights (`importance`), L token losses and β the coefficient of the KL penalty.
    L is 0 if the loss is one of whole completions. `is_own` marks the completions by the policy, not by partners.
    """
    clips, penalty = isinstance(algorithm.rule, ClipRule), algorithm.penalty
    in_loss = penalty.place == "loss"
    loss = policy_loss(
        logprob.flatten(),
        old.flatten(),
        (advantages * importance * clips).flatten(),  # the weights also scale the KL
        weights.flatten(),
        bounds_of_rows(logprob),
        rule=algorithm.rule if isinstance(algorithm.rule, ClipRule) else UNBOUNDED,
        mask=response.flatten(),
        base=None if base is None else base.flatten(),
        beta=penalty.beta if in_loss else 0.0,
        kl=penalty.kind if in_loss else "k1",
        corrected=penalty.corrected and in_loss,
    )
    if isinstance(algorithm.rule, TokenLoss):
        of_rule = algorithm.rule.total(logprob, old, advantages, weights * importance, response, is_own)
        loss = loss._replace(total=loss.total + of_rule)
    return loss


# ---- losses of whole completions ----


def concatenate(parts: Sequence[CompletionLossInputs], gather: Callable[[Tensor], Tensor]) -> CompletionLossInputs:
    """Concatenate the completions of several micro-batches, and gather the completions of all processes."""
    columns = zip(*parts, strict=True)
    return CompletionLossInputs(
        *(gather(torch.cat(column)) if isinstance(column[0], Tensor) else column[0] for column in columns)
    )


def shares_and_slopes(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the weighted losses w_i L_i of N completions, and the slopes d_i = ∂(Σ_j w_j L_j) / ∂ log π(y_i).

    The loss depends on the policy π only through log π(y_i) of the completions y_i, so its gradient is
    Σ_i d_i ∇ log π(y_i). With known d_i, each completion can be in a separate micro-batch.
    """
    with torch.enable_grad():
        logprob = completions.logprob.detach().requires_grad_()
        share = weight.detach() * rule(completions._replace(logprob=logprob))
        if not share.requires_grad:
            return share, torch.zeros_like(logprob)
        (slope,) = torch.autograd.grad(share.sum(), logprob)
    return share.detach(), slope


def completion_loss(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"], inputs: Mapping[str, Tensor]
) -> Float[Tensor, ""]:
    """Return Σ_i w_i L_i of a micro-batch: the sum of weighted completion losses.

    With slopes from `PolicyStep.attach_slopes`, the gradients of micro-batches sum to that of the step's loss.
    """
    if "loss_slope" not in inputs:
        return (weight * rule(completions)).sum()
    # zero in value; its gradient is that of log π(y_i)
    moved = completions.logprob - completions.logprob.detach()
    return (inputs["loss_share"] + inputs["loss_slope"] * moved).sum()


def completion_loss_inputs(
    logprob: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    inputs: Mapping[str, Tensor],
    size: int,
    updates: int,
) -> CompletionLossInputs:
    """Return the inputs of a completion loss for one micro-batch. Completions with weight 0 get the advantage NaN."""
    logprob_sum, old, base = (logprob * response).sum(1), inputs.get("old_per_token_logps"), inputs.get("base")
    return CompletionLossInputs(
        logprob_sum,
        logprob_sum.detach() if old is None else (old * response).sum(1),
        inputs["advantages"][:, 0].masked_fill(weights.sum(1) == 0, torch.nan),
        inputs["row"] // size,
        response.sum(1),
        inputs["row"] % size,
        size,
        updates,
        None if base is None else (base * response).sum(1),
    )


# ---- a step ----


@dataclass(frozen=True)
class Processes:
    """The processes of a distributed training run. Each process has the same number of rows of a batch."""

    accelerator: Any = None

    @property
    def number(self) -> int:
        """Number of processes."""
        return self.accelerator.num_processes if self.accelerator else 1

    @property
    def rank(self) -> int:
        """Index of this process."""
        return self.accelerator.process_index if self.accelerator else 0

    def local(self, rows: int) -> slice:
        """Return the slice of this process's rows among the rows of all processes."""
        size = rows // self.number
        return slice(self.rank * size, (self.rank + 1) * size)

    def gather(self, x: Tensor, padding: float = 0) -> Tensor:
        """Gather the rows of all processes, padded to the longest row."""
        if self.accelerator is None:
            return x
        if x.dtype == torch.bool:  # padding would convert to int64, and only in the processes that need padding
            return self.gather(x.byte()).bool()
        x = self.accelerator.pad_across_processes(x, dim=1, pad_index=padding) if x.dim() > 1 else x
        return self.accelerator.gather(x)

    def widen(self, x: Tensor, dim: int, padding: float) -> Tensor:
        """Pad dimension `dim` to its largest size over all processes."""
        return self.accelerator.pad_across_processes(x, dim=dim, pad_index=padding) if self.accelerator else x

    def sum(self, x: Any) -> Tensor:
        """Sum numbers over all processes."""
        if self.accelerator is None:
            return torch.as_tensor(x)
        return self.accelerator.reduce(torch.as_tensor(x, device=self.accelerator.device), reduction="sum")


@dataclass(frozen=True)
class PolicyStep:
    """The computations of a training step. The methods are called in the order of their definition.

    The caller samples completions, runs the models and steps the optimizer. Inputs are the completions of this process,
    where `size` consecutive completions form a group. `Rollout` and `Scored` contain the completions of all processes,
    because a group may be spread over several processes.
    """

    algorithm: Algorithm
    size: int
    """Completions per group."""
    processes: Processes = Processes()

    def rollout(self, response: Bool[Tensor, "N L"], finished: Bool[Tensor, " N"], **columns: Tensor | None) -> Rollout:
        """Gather the completions of all processes; `columns` are the other fields of `Rollout`, by name.

        In `written`, the log-probability under the policy replaces NaN.
        """
        gather = self.processes.gather
        response, finished = gather(response), gather(finished)
        padding = {"prompt_logprobs": math.nan}
        fields = {name: gather(x, padding.get(name, 0)) for name, x in columns.items() if x is not None}
        if "written" in fields:
            written = fields["written"].to(fields["logprobs"].dtype)
            fields["written"] = torch.where(written.isnan(), fields["logprobs"], written) * response
        return Rollout(torch.arange(len(finished), device=finished.device) // self.size, response, finished, **fields)

    def score(
        self, rewards: Rewards, rollout: Rollout, *, mask_truncated: bool = False, training: bool = True
    ) -> Scored:
        """Gather the rewards of all processes and compute the advantages of their completions.

        The state of the formulas changes only in training, not in evaluation.
        """
        before = None if training else self.algorithm.state
        scored = self.algorithm(self._gather_rewards(rewards, rollout), rollout, mask_truncated=mask_truncated)
        if before is not None:
            self.algorithm.load(before)
        return scored

    def _gather_rewards(self, rewards: Rewards, rollout: Rollout) -> Rewards:
        """Gather the rewards of all processes. Step rewards [N, L] are padded with NaN: no step ends there.

        Scores of ensembles [N, K, M] are padded to the largest M of all processes.
        """
        device = rollout.response.device
        fields = {"values": rewards.values, "steps": rewards.steps}
        if rewards.members is not None:
            fields["members"] = self.processes.widen(rewards.members.to(device), 2, math.nan)
        gather = self.processes.gather
        tensors = {name: gather(x.to(device), math.nan) for name, x in fields.items() if x is not None}
        return replace(rewards, **tensors)

    def loss_inputs(
        self,
        scored: Scored,
        rollout: Rollout,
        *,
        width: int,
        updates: float = 1.0,
        critic: Mapping[str, Tensor] | None = None,
        corrected: bool = False,
    ) -> Batch:
        """Return the inputs of the loss for this process's completions, as columns [N, `width`], and the row numbers.

        The token weights sum to `updates`, the number of optimizer steps per pass, on average over the processes, as in
        DDP. `critic` are the columns of the critic's loss. If `corrected`, the ratio of the policy to the model that
        generated the completions is an importance weight; otherwise the ratios in the loss are relative to that model.
        """
        weights = scored.weights.float() * updates * self.processes.number
        batch = {"advantages": scored.advantage.float(), "weights": weights, **(critic or {})}
        if self.algorithm.auxiliary:
            target, weight = self.algorithm.auxiliary.targets([*scored.rewards.values()][-1], rollout)
            scaled = weight.float() * updates * self.processes.number
            batch |= {"auxiliary_target": target.float()[:, None], "auxiliary_weight": scaled[:, None]}
        if rollout.base is not None:
            batch["base"] = rollout.base
        if rollout.logprobs is not None:
            other = None if corrected else rollout.written
            batch["old_per_token_logps"] = rollout.logprobs if other is None else other
        local = self.processes.local(len(rollout.finished))
        columns = {name: column[local, :width].contiguous() for name, column in batch.items()}
        return columns | {"row": torch.arange(local.stop - local.start, device=weights.device)}

    def attach_slopes(
        self,
        micro_batches: Sequence[Batch],
        read: Callable[[CompletionBatch], PolicyOutputs],
        *,
        batch_rows: int,
        updates: int,
    ) -> None:
        """Add each completion's loss and the derivative of the total loss (`shares_and_slopes`) to the micro-batches.

        The values hold for the current weights of the policy. Their computation takes one additional forward pass over
        all micro-batches per optimizer step.
        """
        parts, weights = [], []
        for batch in micro_batches:
            rows = batch_of(batch)
            parts.append(self._completions(read(rows).logprob, rows.response, batch, batch_rows, updates))
            weights.append(loss_weights(batch).sum(1))
        gather = self.processes.gather
        shares, slopes = shares_and_slopes(self.algorithm.rule, concatenate(parts, gather), gather(torch.cat(weights)))
        sizes, local = [len(weight) for weight in weights], self.processes.local(len(shares))
        columns = shares[local].split(sizes), slopes[local].split(sizes)
        for batch, share, slope in zip(micro_batches, *columns, strict=True):
            batch |= {"loss_share": share, "loss_slope": slope}

    def loss(
        self,
        logprob: Float[Tensor, "N L"],
        entropy: Float[Tensor, "N L"] | None,
        response: Bool[Tensor, "N L"],
        batch: Batch,
        *,
        batch_rows: int = 0,
        updates: int = 0,
    ) -> PolicyLoss:
        """Compute Σ w (L + β KL) - η Σ w H over the tokens of a micro-batch.

        w are token weights, L policy losses, β and η the coefficients of KL penalty and entropy bonus, H entropies in
        nats. `logprob` and `entropy` have gradients. Rows from number `batch_rows` (the batch size of this process) on
        are replayed completions. `updates` is the number of optimizer steps since the completions were generated.
        """
        algorithm, weights = self.algorithm, loss_weights(batch)
        old = batch.get("old_per_token_logps")
        loss = token_objective(
            algorithm,
            logprob,
            logprob.detach() if old is None else old,
            batch["advantages"],
            batch["weights"],
            response,
            base=batch.get("base"),
            importance=batch.get("importance_sampling_ratio", 1.0),
            is_own=self._is_own(batch, batch_rows or len(response)),
        )
        total = loss.total
        if not isinstance(algorithm.rule, ClipRule | TokenLoss):
            completions = self._completions(logprob, response, batch, batch_rows or len(response), updates)
            total = total + completion_loss(algorithm.rule, completions, weights.sum(1), batch)
        if algorithm.entropy and entropy is not None:
            total = total - algorithm.entropy * (batch["weights"] * entropy).sum()
        return loss._replace(total=total)

    def _completions(
        self, logprob: Tensor, response: Tensor, batch: Batch, batch_rows: int, updates: int
    ) -> CompletionLossInputs:
        """Return the inputs of a loss of whole completions. Group indices are unique over all processes."""
        inputs = batch | {"row": self._rows(batch, batch_rows)}
        return completion_loss_inputs(logprob, response, loss_weights(batch), inputs, self.size, updates)

    def auxiliary_term(
        self, states: Float[Tensor, "N W D"], rows: CompletionBatch, batch: Batch, head: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, ""]:
        """Compute the second term of an `AuxiliaryLoss` for a micro-batch, from the policy's hidden states."""
        assert self.algorithm.auxiliary is not None
        target, weight = (batch[f"auxiliary_{name}"][:, 0] for name in ("target", "weight"))
        return self.algorithm.auxiliary.total(completion_states(states, rows), rows.response, target, weight, head)

    def _is_own(self, batch: Batch, batch_rows: int) -> Bool[Tensor, " B"] | None:
        """Return a mask of the policy's own completions; None if the loss treats those of partner models alike."""
        rule = self.algorithm.rule
        if not isinstance(rule, TokenLoss) or rule.of_partners is None:
            return None
        return self._rows(batch, batch_rows) % self.size < n_own_completions(self.size, rule.agents)

    def _rows(self, batch: Batch, batch_rows: int) -> Int[Tensor, " B"]:
        """Return row numbers that are unique over all processes; `size` consecutive rows form a group."""
        earlier, row = batch["row"] // batch_rows, batch["row"] % batch_rows
        return (earlier * self.processes.number + self.processes.rank) * batch_rows + row


def loss_weights(batch: Batch) -> Float[Tensor, "N L"]:
    """Return the token weights in the loss. They include the importance weights of off-policy samples, if any."""
    return batch["weights"] * batch.get("importance_sampling_ratio", 1.0)
