"""Uniform replay: completions of the last batches, drawn at random, are trained on again."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Past, Replay, State


def uniform(*, keep: int, batches: int = 1, seed: int = 0) -> Replay:
    """`keep` completions of the last `batches`, drawn uniformly without replacement, with their previous advantages

    P(i is drawn) = min(1, keep / M) for each of the M stored completions that have a reward: the control of equal work
    for rules that select completions. `keep` is at most a batch's completions. Requires `--num_iterations 2` or more.
    The state is {"step": number of draws}.
    """
    if keep < 1 or batches < 1:
        raise ValueError(f"uniform: keep and batches are 1 or more, got {keep} and {batches}")

    def replay(state: State, total: Float[Tensor, " N"], past: Past) -> tuple[State, Float[Tensor, "M L"] | None]:
        if past.rollout.total is None:
            raise ValueError("uniform: the past completions have no rewards")
        step = int(state.get("step", 0))
        rewarded = (~past.rollout.total.isnan()).nonzero().squeeze(1).tolist()
        rows = np.random.default_rng([seed, step]).permutation(rewarded)[:keep].astype(np.int64).tolist()
        again = torch.full_like(past.advantage, torch.nan)
        again[rows] = past.advantage[rows]
        return {"step": step + 1}, again if rows else None

    replay.remembers = batches  # type: ignore[attr-defined]
    return replay
