"""The previous batch of answers, which a replay trains on once more."""

from collections.abc import Mapping
from typing import Any

import torch
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from .algorithm import Scored
from .types import Past, Replay, Rollout, State

Batch = dict[str, Any]


class Backlog:
    """What the first pass of every cycle is on: the previous batch where the replay wants it, else nothing."""

    def __init__(self, replay: Replay, parts: int):
        self.replay, self.parts = replay, parts
        self.state: State = {}
        self.micro_batches: list[Batch] = []
        self._past: tuple[Batch, Past] | None = None

    def turn(self, batch: Batch, scored: Scored, rollout: Rollout) -> None:
        """There are new answers: ask the replay about those before, and keep these."""
        again, advantages = batch | {"weights": torch.zeros_like(batch["weights"])}, None
        if self._past is not None:
            before, past = self._past
            self.state, advantages = self.replay(self.state, scored.total, past)
            if advantages is not None:
                shape = before["advantages"].shape
                advantages = advantages[:, None].expand(shape) if advantages.dim() == 1 else advantages
                again = before | {"advantages": advantages.float()}
        self._past = batch, Past(scored.advantage, rollout._replace(states=None))
        self.micro_batches = split_tensor_dict(shuffle_sequence_dict(again), self.parts)

    def kept(self) -> Any:
        """The previous batch, of a checkpoint; `state` is the rest."""
        return None if self._past is None else (self._past[0], self._past[1].advantage, tuple(self._past[1].rollout))

    def load(self, state: Mapping[str, Any], kept: Any) -> None:
        """Go on from a checkpoint."""
        self.state = state
        if kept is not None:
            batch, advantage, rollout = kept
            self._past = batch, Past(advantage, Rollout(*rollout))
