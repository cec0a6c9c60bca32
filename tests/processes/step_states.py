"""What a trainer holds before each step, saved by one run and taken over by another: steps compared from one state."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from rewardlab.policy.training.checkpoint import load_state
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.rm.training.fault_tolerance import FaultTolerantTrainer
from torch import Tensor
from transformers import TrainerCallback

DIFFERENCES = "differences.json"


class SaveStates(TrainerCallback):
    """Saves the state before each step, and after the last one."""

    def __init__(self, trainer: Any, folder: Path):
        self.trainer, self.folder = trainer, folder

    def on_step_begin(self, args, state, control, **kwargs):
        save_state(self.trainer, self.folder / str(state.global_step))

    on_train_end = on_step_begin


class TakeStates(TrainerCallback):
    """Compares the state after each step with the saved one, then goes on from the saved one."""

    def __init__(self, trainer: Any, folder: Path, own: Path):
        self.trainer, self.folder = trainer, folder
        self.own = own / f"rank-{PartialState().process_index}"
        self.differences: list[dict[str, float]] = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.compare(state.global_step)
        load_into(self.trainer, self.folder / str(state.global_step))

    def on_train_end(self, args, state, control, **kwargs):
        self.compare(state.global_step)
        (self.own / DIFFERENCES).write_text(json.dumps(self.differences))

    def compare(self, step: int) -> None:
        """Nothing is compared before the first step: a critic is drawn by each run for itself."""
        save_state(self.trainer, self.own / str(step))
        if step > 0:
            self.differences.append(differences(read_state(self.folder / str(step)), read_state(self.own / str(step))))


def save_state(trainer: Any, folder: Path) -> None:
    """Save weights, optimizers, and what a policy's training holds beside them."""
    folder.mkdir(parents=True)
    torch.save(
        {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, folder / "trainer.pt"
    )
    if isinstance(trainer, PolicyTrainer):
        trainer.trained_state.save(folder, trainer.kl, trainer.signal)


def load_into(trainer: Any, folder: Path) -> None:
    """Load what `save_state` wrote."""
    state = torch.load(folder / "trainer.pt", weights_only=True)
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    if isinstance(trainer, PolicyTrainer):
        trainer.kl, trainer.signal = trainer.trained_state.load(folder, is_main=trainer.accelerator.is_main_process)


def read_state(folder: Path) -> dict[str, Tensor]:
    """Return every saved tensor by the path of names that leads to it."""
    beside = load_state(folder)[1] if (folder / "beside.pt").exists() else {}
    return dict(tensors({**torch.load(folder / "trainer.pt", weights_only=True), **beside}))


def tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the floating-point tensors inside dicts and lists."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield name, value.float()
    elif isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors(part, f"{name}/{key}")


def differences(expected: dict[str, Tensor], found: dict[str, Tensor]) -> dict[str, float]:
    """Return the largest absolute difference of weights, and of Adam's first moments in units of the largest one.

    A first moment is a mean of gradients. Weights are told apart from it because Adam divides a gradient by its own
    size: where that is rounding alone, as of a key's bias, the step is as long as any other and its sign is chance.
    """
    assert expected.keys() == found.keys(), {*expected} ^ {*found}
    worst = {"weights": 0.0, "gradients": 0.0}
    means = [name for name in expected if name.endswith("/exp_avg")]
    largest = max(expected[name].abs().max().item() for name in means)
    for name, value in expected.items():
        difference = (value - found[name]).abs().max().item() if value.numel() else 0.0
        if name in means:
            worst["gradients"] = max(worst["gradients"], difference / largest)
        elif not name.endswith("/exp_avg_sq"):
            worst["weights"] = max(worst["weights"], difference)
    return worst


@contextmanager
def with_callback(kind: Any, *arguments: Any) -> Iterator[None]:
    """Give every trainer that starts to train a callback of this kind."""
    train = FaultTolerantTrainer.train

    def watched(self, *args, **kwargs):
        self.add_callback(kind(self, *arguments))
        return train(self, *args, **kwargs)

    FaultTolerantTrainer.train = watched
    try:
        yield
    finally:
        FaultTolerantTrainer.train = train
