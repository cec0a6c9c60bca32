"""State that is trained together with the policy (critic, replay buffer, online reward models), and its checkpoints."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from ...rm.errors import DataError
from ..rewards.sources import RewardSources
from ..step.algorithm import Algorithm
from ..step.metrics import LearningSignal
from ..types import Cycle
from .critic import CriticLearner
from .replay_buffer import ReplayBuffer

FORMULAS, TENSORS = "algorithm.json", "beside.pt"


@dataclass
class TrainedState:
    """State trained together with the policy: formulas, critic, replay buffer, online reward models and curriculum.

    Online reward models and curriculum are `learners`: after each cycle (a generation and its optimizer steps) they
    learn from its completions and the policy's hidden states in the last pass over them.
    """

    algorithm: Algorithm
    sources: RewardSources
    learners: Mapping[str, Any]
    critic: CriticLearner | None
    replay: ReplayBuffer | None
    _cycle: Cycle | None = None
    _states: dict[int, Tensor] = field(default_factory=dict)

    def start(self, cycle: Cycle) -> None:
        """Store the completions of a new cycle."""
        self._cycle = cycle

    def record(self, rows: Sequence[int], states: Sequence[Tensor], size: int) -> None:
        """Store the hidden states of completions by row number. Rows from `size` on are replayed completions."""
        self._states |= {row: state for row, state in zip(rows, states, strict=True) if row < size}

    def learn(self) -> Iterator[tuple[str, float]]:
        """Train all `learners` on the stored completions, if any. Yield names and values of their metrics."""
        if self._cycle is None:
            return
        states = gather_object([self._states[row] for row in sorted(self._states)]) if self._states else None
        for name, learner in self.learners.items():
            for fact, value in learner.learn(self._cycle._replace(states=states)).items():
                yield f"{name}/{fact}", value
        self._cycle, self._states = None, {}

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

    def load(self, folder: Path, *, is_main: bool) -> tuple[float, LearningSignal]:
        """Load all states from a checkpoint; return the last KL and the learning signal. `is_main`: rank 0."""
        state, tensors = load_state(folder)
        if is_main:
            self.sources.truncate_record(state["faults"])
        self.algorithm.load(state["algorithm"])
        if self.critic:
            self.critic.load(tensors["learner"])
        for name, learner in self.learners.items():
            learner.load(tensors["sources"][name])
        if self.replay:
            self.replay.load(state["replay"], tensors["past"])
        return state["kl"], LearningSignal(**state.get("signal", {}))


def load_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the states of a checkpoint folder. Raise `DataError` if it is not a checkpoint of policy training."""
    try:
        formulas = json.loads((folder / FORMULAS).read_text(encoding="utf-8"))
        tensors = torch.load(folder / TENSORS, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{folder}: not a checkpoint of policy training ({error.filename} is missing)") from error
    if absent := {"algorithm", "kl", "faults"} - formulas.keys():
        raise DataError(f"{folder / FORMULAS} lacks {', '.join(sorted(absent))}; resume with the version that wrote it")
    return formulas, tensors
