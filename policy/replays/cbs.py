"""CBS replay: a contextual bandit selects completions of the last batches for additional training."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..schedulers._bandit import History, bandit, contexts, mean_entropy
from ..types import Past, Replay, State


def cbs(
    *,
    model: str,
    keep: int,
    batches: int,
    longest: int,
    penalty: float,
    ceiling: float,
    rate: float = 1.0,
    warm_up: int = 64,
    seed: int = 0,
    **of_model: Any,
) -> Replay:
    """Replay the `keep` completions of the last `batches` batches with the highest predicted gain

    CBS 2026, arXiv:2602.08499, with a replay buffer. Replayed completions keep their advantages. Gain, models and
    settings are those of `schedulers.cbs`, with the entropy H of the current batch. There is no importance weight other
    than the ratio in the clip rule; age, uses and clipped share are features of the bandit instead. `keep` is at most
    the number of completions of a batch. Requires `--num_iterations 2` or more. The key "uses" of the state has the
    number of times that each stored completion was selected.
    """
    if keep < 1 or longest < 1 or batches < 1:
        raise ValueError(f"cbs: `keep`, `batches`, `longest` must be at least 1, got {keep}, {batches} and {longest}")
    selector = bandit(model, of_model, penalty=penalty, ceiling=ceiling, rate=rate, warm_up=warm_up, seed=seed)

    def replay(state: State, total: Float[Tensor, " N"], past: Past) -> tuple[State, Float[Tensor, "M L"] | None]:
        rollout, (rewards,) = past.rollout, past.rollout.require("cbs", "total")
        assert past.now is not None and past.age is not None and past.clipped is not None  # the buffer sets them
        uses = _uses(state.get("uses", []), past.age)
        tokens = rollout.response.sum(1).clamp_min(1)
        advantage = torch.where(rollout.response, past.advantage, 0).sum(1) / tokens
        history = History(past.age.double(), uses.to(past.age.device), past.clipped)
        x = contexts(rewards, advantage, rollout, longest=longest, history=history)
        next_state = selector.observe(state, total.nanmean().item(), mean_entropy(past.now))
        next_state, (rows,) = selector.choose(next_state, x, [(~rewards.isnan()).nonzero().squeeze(1)], keep)
        uses[rows] += 1
        again = torch.full_like(past.advantage, torch.nan)
        again[rows] = past.advantage[rows]
        return next_state | {"uses": uses.tolist()}, again if rows else None

    replay.remembers = batches  # type: ignore[attr-defined]
    replay.reads = ("entropy",)  # type: ignore[attr-defined]
    return replay


def _uses(before: list[float], age: Tensor) -> Float[Tensor, " M"]:
    """Return the number of uses of the stored completions, aligned with the buffer after a new batch was added.

    New completions have 0 uses; the oldest completions may have been dropped.
    """
    new = int((age == age.min()).sum())
    old = before[len(before) - (len(age) - new) :]
    return torch.tensor([*old, *[0.0] * new], dtype=torch.float64)
