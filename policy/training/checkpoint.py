"""Checkpoints of everything that is trained beside the policy."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...rm.errors import DataError
from ..rewards.sources import RewardSources
from ..step.algorithm import Algorithm
from ..step.metrics import LearningSignal
from .critic import CriticLearner
from .replay_buffer import ReplayBuffer

FORMULAS, TENSORS = "algorithm.json", "beside.pt"


class TrainedBeside(NamedTuple):
    """What is trained beside the policy."""

    algorithm: Algorithm
    sources: RewardSources
    learners: Mapping[str, Any]
    """Online reward models and the curriculum."""
    critic: CriticLearner | None
    replay: ReplayBuffer | None

    def save(self, folder: Path, kl: float, signal: LearningSignal) -> None:
        """Save all states to a checkpoint, with the last KL, the learning signal and the number of faults."""
        tensors = {
            "learner": self.critic.state() if self.critic else None,
            "sources": {name: learner.state() for name, learner in self.learners.items()},
            "past": self.replay.stored_batches() if self.replay else None,
        }
        state = {"algorithm": self.algorithm.state, "replay": self.replay.state if self.replay else {}}
        state |= {"kl": kl, "faults": self.sources.recorded, "signal": asdict(signal)}
        (folder / FORMULAS).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        torch.save(tensors, folder / TENSORS)  # loads without running code

    def load(self, folder: Path, *, leads: bool) -> tuple[float, LearningSignal]:
        """Load all states from a checkpoint; return the last KL and the learning signal. Rank 0 `leads`."""
        state, tensors = load_state(folder)
        if leads:
            self.sources.forget_after(state["faults"])
        self.algorithm.load(state["algorithm"])
        if self.critic:
            self.critic.load(tensors["learner"])
        for name, learner in self.learners.items():
            learner.load(tensors["sources"][name])
        if self.replay:
            self.replay.load(state["replay"], tensors["past"])
        return state["kl"], LearningSignal(**state.get("signal", {}))


def load_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load both states; raise `DataError` for a checkpoint of another kind of training."""
    try:
        formulas = json.loads((folder / FORMULAS).read_text(encoding="utf-8"))
        return formulas, torch.load(folder / TENSORS, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{folder}: no checkpoint of a policy's training ({error.filename} is missing)") from error
