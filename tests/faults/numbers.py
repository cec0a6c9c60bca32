"""Losses and gradients that are no numbers, and memory that runs out within a step."""

from typing import Any

from rewardlab.apps.runs.run_folder import partial_folder

from tests.faults.injection import Seen, add_table, injection, seen
from tests.faults.programs import Hook
from tests.faults.world import SAVED, World, finite_weights, same_weights

SPOILT_STEP = 6
NEAR = 2e-5
"""Between weights after twelve steps of AdamW whose gradients were added up in another order; a step moves by 1e-3."""
BEFORE = "the last checkpoint has the finite weights of before; no model is written"


def _spoilt_loss(value: float, step: int) -> Hook:
    def hook() -> None:
        from rewardlab.rm.training.trainer import RewardTrainer

        whole = RewardTrainer.compute_loss

        def spoilt(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss: Any = whole(self, model, inputs, return_outputs, num_items_in_batch)
            return loss * value if self.state.global_step + 1 == step and not return_outputs else loss

        RewardTrainer.compute_loss = spoilt

    return hook


def _ended(world: World, name: str, hook: Hook, word: str) -> Seen:
    output = world.new(name)
    checkpoints = partial_folder(output) / "checkpoints"
    ended = world.run(*world.train(output), hook=hook)
    kept = [one.name for one in checkpoints.glob("checkpoint-*")]
    finite = kept == [f"checkpoint-{SAVED}"] and finite_weights(checkpoints / kept[0])
    return seen(ended, (word,), 5, weights_of_before=finite, no_model=not output.exists())


add_table("numbers", BEFORE, _ended, {
    "loss-is-nan": ("The loss of step 6 of `train` is NaN", _spoilt_loss(float("nan"), SPOILT_STEP), "is nan"),
    "loss-is-infinite": (
        "The loss of step 6 of `train` is infinite", _spoilt_loss(float("inf"), SPOILT_STEP), "is inf"),
})  # fmt: skip


@injection(BEFORE)
def gradient_is_infinite(world: World) -> Seen:
    """One gradient of step 6 of `train` is not finite while the loss is finite."""

    def hook() -> None:
        from rewardlab.rm.training.trainer import RewardTrainer

        start = RewardTrainer.create_optimizer

        def watched(self, model=None):
            parameter = next(self.model.parameters())
            parameter.register_hook(lambda one: one / (self.state.global_step + 1 != SPOILT_STEP))
            return start(self, model)

        RewardTrainer.create_optimizer = watched

    return _ended(world, "inf-gradient", hook, "the norm of the gradient")


@injection("the checkpoint of step 2 has finite weights; no policy is written")
def policy_loss_is_nan(world: World) -> Seen:
    """The loss of step 4 of `rl` is NaN."""

    def hook() -> None:
        from rewardlab.policy.training.trainer import PolicyTrainer

        whole = PolicyTrainer._compute_loss

        def spoilt(self, model, inputs):
            return whole(self, model, inputs) * (float("nan") if self.state.global_step == 3 else 1.0)

        PolicyTrainer._compute_loss = spoilt

    output = world.new("nan-policy")
    ended = world.run(*world.rl(output), hook=hook)
    checkpoints = partial_folder(output) / "checkpoints"
    kept = [one.name for one in checkpoints.glob("checkpoint-*")]
    finite = kept == ["checkpoint-2"] and finite_weights(checkpoints / kept[0])
    return seen(ended, ("is nan",), 5, weights_of_before=finite, no_policy=not output.exists())


# ---- memory ----


def _narrow(trainer: str, rows: str, most: int) -> Hook:
    """A machine whose memory holds that many rows of a micro-batch, which is told after the forward pass."""

    def hook() -> None:
        from importlib import import_module

        import torch

        owner = getattr(import_module(f"rewardlab.{trainer.partition(':')[0]}"), trainer.partition(":")[2])
        whole = owner.compute_loss

        def narrow(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss = whole(self, model, inputs, return_outputs, num_items_in_batch)
            if len(inputs[rows]) > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return loss

        owner.compute_loss = narrow

    return hook


@injection(f"weights within {NEAR:g} of the whole batch's")
def memory_for_one_pair(world: World) -> Seen:
    """Memory holds one of the four pairs of a micro-batch of `train`."""
    output = world.new("narrow")
    ended = world.run(*world.train(output), hook=_narrow("rm.training.trainer:RewardTrainer", "wins", 1))
    once = ended.said.count("fit into memory") == 1
    same = ended.code == 0 and same_weights(output, world.model, NEAR)
    return seen(ended, ("fit into memory",), 0, same_weights=same, said_once=once)


@injection(f"weights within {NEAR:g} of the whole's")
def memory_for_three_answers(world: World) -> Seen:
    """Memory holds three of the eight answers of a micro-batch of `rl`."""
    output = world.new("narrow-policy")
    ended = world.run(*world.rl(output), hook=_narrow("policy.training.trainer:PolicyTrainer", "weights", 3))
    once = ended.said.count("fit into memory") == 1
    same = ended.code == 0 and same_weights(output / "policy", world.whole_policy / "policy", NEAR)
    return seen(ended, ("fit into memory",), 0, same_weights=same, said_once=once)


@injection("one sentence with the way out, and nothing is left behind")
def memory_for_nothing(world: World) -> Seen:
    """Memory holds no pair at all in `train`."""
    output = world.new("no-memory")
    ended = world.run(*world.train(output), hook=_narrow("rm.training.trainer:RewardTrainer", "wins", 0))
    left = output.exists() or partial_folder(output).exists()
    return seen(ended, ("fit into memory",), 2, nothing_left=not left)
