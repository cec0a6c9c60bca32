"""CBS scheduler: a contextual bandit selects the completions of each group with the highest predicted gain."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..advantages.dr_grpo import dr_grpo
from ..types import Rollout, Scheduler, State
from ._bandit import bandit, contexts, mean_entropy


def cbs(
    *,
    model: str,
    keep: int,
    longest: int,
    penalty: float,
    ceiling: float,
    rate: float = 1.0,
    warm_up: int = 64,
    seed: int = 0,
    **of_model: Any,
) -> Scheduler:
    """Select the `keep` completions of each group with the highest predicted gain; the others have weight 0

    gain = μ_{t+1} - V_t - c max(0, H_{t+1} - H_max)                                          CBS 2026, arXiv:2602.08499

    All completions selected in batch t share this gain. μ is the mean reward of a batch, V its moving average
    (V += `rate` (μ - V); with rate 1, the previous μ), H the entropy in nats per token, c = `penalty` and H_max =
    `ceiling`. The advantage feature is that of `dr_grpo`. `model` is "ridge" or "mlp" of `_bandit`, with its settings;
    features and models are ours. In the first `warm_up` batches the selection is random. `longest` is the maximum
    completion length in tokens; `keep` is at most the group size. Weights have mean 1 in each group.
    """
    if keep < 1 or longest < 1:
        raise ValueError(f"cbs: `keep` and `longest` must be at least 1, got {keep} and {longest}")
    selector = bandit(model, of_model, penalty=penalty, ceiling=ceiling, rate=rate, warm_up=warm_up, seed=seed)

    def schedule(state: State, scores: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Float[Tensor, " N"]]:
        x = contexts(scores, dr_grpo()(scores, rollout), rollout, longest=longest)
        next_state = selector.observe(state, scores.nanmean().item(), mean_entropy(rollout))
        sets = [((rollout.group == group) & ~scores.isnan()).nonzero().squeeze(1) for group in rollout.group.unique()]
        next_state, selection = selector.choose(next_state, x, sets, keep)
        weights = torch.zeros_like(scores)
        for rows, some in zip(sets, selection, strict=True):
            weights[some] = len(rows) / max(len(some), 1)
        return next_state, weights

    schedule.reads = ("entropy", "logprobs")  # type: ignore[attr-defined]
    return schedule
