"""Inputs of the loss that a step's rewards give, and what the step logs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..advantages._rows import last_token
from ..step.algorithm import Scored
from ..step.forward import Batch
from ..step.metrics import learning_signal, step_metrics
from ..types import Rewards, Rollout
from .critic import critic_returns


def writers_of(trainer: Any, inputs: list, batch: Batch) -> list[str]:
    """Return the model whose log-probabilities `Rollout.written` holds, for each of this process's rows."""
    if "sampling_per_token_logps" not in batch:
        return ["policy"] * len(inputs)
    return [row.get("writer", "vllm" if trainer.use_vllm else "rollout function") for row in inputs]


def finished_rows(batch: Batch, response: Tensor, eos_token_ids: Sequence[int]) -> Tensor:
    """Return whether each of this process's completions ended by itself [N]: its last token is an EOS of its own."""
    ends = torch.isin(batch["completion_ids"], torch.tensor(eos_token_ids, device=response.device))
    return (ends & response & last_token(batch["completion_mask"].bool())).any(1)


def rewards_everywhere(trainer: Any, local: Rewards) -> Rewards:
    """Gather the rewards of all processes; a position that another process's completions do not reach is no step."""
    members = all_members(trainer.accelerator, local.members)
    fields = {"values": local.values, "steps": local.steps, "members": members}
    gathered = {
        name: trainer._gather(tensor.to(trainer.accelerator.device), padding=math.nan)
        for name, tensor in fields.items()
        if tensor is not None
    }
    return replace(local, **gathered)


def loss_inputs(trainer: Any, scored: Scored, rollout: Rollout, width: int) -> dict[str, Tensor]:
    """Return this process's loss inputs. The weights sum to `steps_per_batch` in the mean over processes, as in DDP.

    `value_weights`, those of the critic's loss, sum to it over all processes, whose gradients are added up.
    """
    batch = {
        "advantages": scored.advantage.float(),
        "weights": scored.weights.float() * steps_per_batch(trainer) * trainer.accelerator.num_processes,
    }
    if rollout.base is not None:
        batch["base"] = rollout.base
    if rollout.logprobs is not None:  # those of vLLM are corrected by an importance weight instead
        old = rollout.logprobs if trainer.use_vllm or rollout.written is None else rollout.written
        batch["old_per_token_logps"] = old
    if trainer.learner and rollout.values is not None:
        returns = critic_returns(scored, rollout, trainer.algorithm.gamma, trainer.learner.arguments.lam)
        batch |= {"values": rollout.values, "returns": returns}
        batch["value_weights"] = scored.trained * (steps_per_batch(trainer) / scored.trained.sum().clamp_min(1))
    size = len(rollout.finished) // trainer.accelerator.num_processes
    mine = slice(trainer.accelerator.process_index * size, (trainer.accelerator.process_index + 1) * size)
    return {name: tensor[mine, :width].contiguous() for name, tensor in batch.items()}


def steps_per_batch(trainer: Any) -> float:
    """Return the optimizer steps that one pass over a batch of completions makes; 1 in evaluation."""
    args = trainer.args
    return args.steps_per_generation / args.gradient_accumulation_steps if trainer.model.training else 1.0


def all_members(accelerator: Any, members: Tensor | None) -> Tensor | None:
    """Pad an ensemble's scores [N, K, M] with NaN to the M of other processes, which one without rewards lacks."""
    if members is None:
        return None
    return accelerator.pad_across_processes(members.to(accelerator.device), dim=2, pad_index=math.nan)


def log_step(trainer: Any, scored: Scored, rollout: Rollout, faults: int, is_own: Tensor) -> None:
    """Replace TRL's reward statistics by ours; `is_own` marks completions of this policy, not of partners."""
    metrics, rewards = trainer._metrics[trainer._mode], [*scored.rewards.values()][-1]
    for name in ("reward", "reward_std"):
        metrics[name].pop()
    for name in ("frac_reward_zero_std", f"rewards/{later.__name__}/mean", f"rewards/{later.__name__}/std"):
        metrics.pop(name)
    facts = dict(step_metrics(scored, rollout, faults, is_own)) | trainer.sources.facts()
    for name, value in facts.items():
        trainer._note(name, value)
    if trainer.model.training:
        trainer.kl = facts.get("watch/kl", trainer.kl)
        signal = learning_signal(scored, rollout.group)
        if (warning := signal.warning(trainer.signal)) and trainer.accelerator.is_main_process:
            trainer.tell(f"step {trainer.state.global_step + 1}: {warning}")
        trainer.signal += signal
    trainer._logs["rewards"].clear()
    for name in rewards.names:
        trainer._logs["rewards"][name].extend(rewards[name].tolist())
    trainer._logs["advantages"].clear()
    trainer._logs["advantages"].extend((scored.advantage * rollout.response).sum(1).tolist())


def later(**_: Any) -> list[float]:
    """Placeholder for TRL, which requires a reward function; never called, see `PolicyTrainer._calculate_rewards`."""
    raise AssertionError("rewards are given in _generate_and_score_completions")
