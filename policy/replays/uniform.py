"""Uniform replay: train again on random completions of the last batches."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Past, Replay, State


def uniform(*, keep: int, batches: int = 1, seed: int = 0) -> Replay:
    """Replay `keep` completions of the last `batches` batches, drawn uniformly without replacement

    Each of the M stored completions with a reward is drawn with probability min(1, keep / M). Replayed completions keep
    their advantages. This is the control with the same amount of training for replays that select completions. `keep`
    is at most the number of completions of a batch. Requires `--num_iterations 2` or more. The state is {"step": number
    of draws}.
    """
    if keep < 1 or batches < 1:
        raise ValueError(f"uniform: `keep` and `batches` must be at least 1, got {keep} and {batches}")

    def replay(state: State, total: Float[Tensor, " N"], past: Past) -> tuple[State, Float[Tensor, "M L"] | None]:
        (rewards,), step = past.rollout.require("uniform", "total"), int(state.get("step", 0))
        rewarded = (~rewards.isnan()).nonzero().squeeze(1).tolist()
        rows = np.random.default_rng([seed, step]).permutation(rewarded)[:keep].astype(np.int64).tolist()
        again = torch.full_like(past.advantage, torch.nan)
        again[rows] = past.advantage[rows]
        return {"step": step + 1}, again if rows else None

    replay.remembers = batches  # type: ignore[attr-defined]
    return replay
