"""Controls of equal work: replays that lack the rule which is studied, and the count of what a replay selects."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ....policy.replays.pipo import attribution, progress
from ....policy.types import Past, Replay, State

Answer = tuple[State, Float[Tensor, "M L"] | None]


def pipo_with_random_gains(*, window: int = 8, damping: float = 0.1, bound: float = 5.0, seed: int = 0) -> Replay:
    """PIPO whose gain is drawn from the gains of all cycles so far: as many replays, of the same scale.

    The state is PIPO's and "gains", those so far.
    """

    def replay(state: State, total: Float[Tensor, " N"], past: Past) -> Answer:
        after, gain = progress(state, total.nanmean().item(), window=window, damping=damping, bound=bound)
        gains = [*state.get("gains", ()), *([gain] if gain else [])]
        after["gains"] = gains
        if not gains:
            return after, None
        drawn = gains[int(np.random.default_rng([seed, len(gains)]).integers(len(gains)))]
        return after, drawn * attribution(past.advantage, past.rollout.response, past.rollout.group)

    return replay


class ShuffledAdvantages:
    """The selection of another replay; the selected completions have each other's advantages, in random order."""

    def __init__(self, replay: Replay, seed: int):
        self.replay, self.seed, self.calls = replay, seed, 0
        self.remembers = int(getattr(replay, "remembers", 1))

    def __call__(self, state: State, total: Float[Tensor, " N"], past: Past) -> Answer:
        """Return the replay's state and the exchanged advantages, each of which is constant over a completion."""
        after, again = self.replay(state, total, past)
        self.calls += 1
        if again is None:
            return after, None
        rows = (~again[:, 0].isnan()).nonzero().squeeze(1)
        order = np.random.default_rng([self.seed, self.calls]).permutation(len(rows))
        shuffled = again.clone()
        shuffled[rows] = again[rows[torch.from_numpy(order)], :1].expand(-1, again.shape[1])
        return after, shuffled


class CountedReplay:
    """Another replay, and the number of completions that it selected in every cycle."""

    def __init__(self, replay: Replay):
        self.replay, self.selected = replay, list[int]()
        self.remembers = int(getattr(replay, "remembers", 1))
        self.reads = tuple(getattr(replay, "reads", ()))

    def __call__(self, state: State, total: Float[Tensor, " N"], past: Past) -> Answer:
        """Return the replay's answer."""
        after, again = self.replay(state, total, past)
        self.selected.append(0 if again is None else int((~again[:, 0].isnan()).sum()))
        return after, again
