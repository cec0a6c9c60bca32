"""Checkpoints of everything that is trained beside the policy."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...rm.errors import DataError
from ..step.metrics import LearningSignal

if TYPE_CHECKING:
    from .trainer import PolicyTrainer

FORMULAS, TENSORS = "algorithm.json", "beside.pt"


def save_beside(trainer: "PolicyTrainer", folder: Path) -> None:
    """Save the state of formulas, critic, replay, curriculum, online reward models, faults, signal, and the last KL."""
    replay_buffer = trainer.replay_buffer
    tensors = {
        "learner": trainer.learner.state() if trainer.learner else None,
        "sources": {name: learner.state() for name, learner in trainer.learners.items()},
        "past": replay_buffer.stored_batches() if replay_buffer else None,
    }
    replay = replay_buffer.state if replay_buffer else {}
    state = {"algorithm": trainer.algorithm.state, "replay": replay}
    state |= {"kl": trainer.kl, "faults": trainer.sources.recorded, "signal": asdict(trainer.signal)}
    (folder / FORMULAS).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    torch.save(tensors, folder / TENSORS)  # loads without running code


def load_beside(trainer: "PolicyTrainer", folder: Path) -> None:
    """Load the state that `save_beside` saved."""
    formulas, tensors = load_state(folder)
    if trainer.accelerator.is_main_process:
        trainer.sources.forget_after(formulas["faults"])
    trainer.algorithm.load(formulas["algorithm"])
    trainer.kl = formulas["kl"]
    trainer.signal = LearningSignal(**formulas.get("signal", {}))
    if trainer.learner:
        trainer.learner.load(tensors["learner"])
    for name, learner in trainer.learners.items():
        learner.load(tensors["sources"][name])
    if trainer.replay_buffer:
        trainer.replay_buffer.load(formulas["replay"], tensors["past"])


def load_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load both states; raise `DataError` for a checkpoint of another kind of training."""
    try:
        formulas = json.loads((folder / FORMULAS).read_text(encoding="utf-8"))
        return formulas, torch.load(folder / TENSORS, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{folder}: no checkpoint of a policy's training ({error.filename} is missing)") from error
