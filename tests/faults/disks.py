"""Disks without room: from a moment on no file may have more than so many bytes, as on a volume that is full."""

import os
import resource
from collections.abc import Callable
from typing import Any

from rewardlab.apps.runs.run_folder import partial_folder

from tests.faults.checkpoints import EQUAL
from tests.faults.injection import Seen, add_table, injection, seen
from tests.faults.programs import Hook
from tests.faults.world import SAVED, World, files, same_weights

SAID, LITTLE = 20_000, 1_500
"""Bytes that a program may still write: what it says goes to a file too, which the same limit holds."""


def _full(said: int) -> None:
    """No file of this process may have more bytes than what it has said so far and so much more."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(2).st_size + said, resource.RLIM_INFINITY))


def _before(owner: Callable[[], Any], name: str, when: Callable[..., bool], said: int = SAID) -> Hook:
    """The disk is full when a method is called and `when` says so."""

    def hook() -> None:
        place = owner()
        method = getattr(place, name)

        def called(*arguments: Any, **options: Any) -> Any:
            if when(*arguments):
                _full(said)
            return method(*arguments, **options)

        setattr(place, name, called)

    return hook


def _reward_trainer() -> Any:
    from rewardlab.rm.training.trainer import RewardTrainer

    return RewardTrainer


def _full_checkpoint(world: World, name: str, method: str) -> Seen:
    output = world.new(name)
    checkpoints = partial_folder(output) / "checkpoints"
    at = _before(_reward_trainer, method, lambda trainer, *_: trainer.state.global_step == 2 * SAVED)
    ended = world.run(*world.train(output), hook=at)
    left = [one.name for one in checkpoints.iterdir()]
    again = world.run(*world.train(output), "--resume")
    same = again.code == 0 and same_weights(output, world.model)
    alone = left == [f"checkpoint-{SAVED}"]
    return seen(ended, ("its disk has",), 3, the_one_before_alone=alone, resumed_with_same_weights=same)


add_table("disks", EQUAL, _full_checkpoint, {
    "full-at-a-checkpoints-weights": (
        "The disk is full while `train` writes a checkpoint's weights, then there is room and --resume",
        "_save_checkpoint"),
    "full-at-a-checkpoints-optimizer": (
        "The disk is full while `train` writes a checkpoint's optimizer, then there is room and --resume",
        "_save_optimizer_and_scheduler"),
})  # fmt: skip


@injection(EQUAL)
def full_at_the_finished_model(world: World) -> Seen:
    """The disk is full while `train` writes the finished model, then there is room and --resume."""

    def owner() -> Any:
        from rewardlab.rm.kinds.scalar.model import ScalarRewardModel

        return ScalarRewardModel

    output = world.new("full-model")
    ended = world.run(*world.train(output), hook=_before(owner, "save", lambda *_: True))
    none = not output.exists()
    again = world.run(*world.train(output), "--resume")
    same = again.code == 0 and same_weights(output, world.model)
    return seen(ended, ("its disk has",), 3, no_half_model=none, resumed_with_same_weights=same)


@injection(EQUAL)
def full_at_a_policys_checkpoint(world: World) -> Seen:
    """The disk is full while `rl` writes a checkpoint, then there is room and --resume."""

    def owner() -> Any:
        from rewardlab.policy.training.trainer import PolicyTrainer

        return PolicyTrainer

    output = world.new("full-policy")
    at = _before(owner, "_save_checkpoint", lambda trainer, *_: trainer.state.global_step == 4)
    ended = world.run(*world.rl(output), hook=at)
    left = sorted(one.name for one in (partial_folder(output) / "checkpoints").glob("checkpoint-*"))
    again = world.run(*world.rl(output), "--resume")
    same = again.code == 0 and same_weights(output / "policy", world.whole_policy / "policy")
    alone = left == ["checkpoint-2"]
    return seen(ended, ("its disk has",), 3, the_one_before_alone=alone, resumed_with_same_weights=same)


def _full_scores(world: World, name: str, suffix: str) -> Seen:
    scores = world.new(f"{name}{suffix}")
    world.done(*world.score(scores))
    before = scores.read_bytes()

    def owner() -> Any:
        from rewardlab.apps.commands.score import run as jobs

        return jobs

    at = _before(owner, "_write_columns", lambda *_: True, LITTLE)
    ended = world.run(*world.score(scores), "--overwrite", hook=at)
    alone = [one.name for one in scores.parent.glob(f"*{name}{suffix}*")] == [scores.name]
    return seen(ended, ("its disk has",), 3, untouched=scores.read_bytes() == before, nothing_beside=alone)


add_table("disks", "the scores that stood there stay as they were", _full_scores, {
    "full-at-parquet": ("The disk is full while `score --overwrite` writes Parquet", ".parquet"),
    "full-at-jsonl": ("The disk is full while `score --overwrite` writes JSONL", ".jsonl"),
})  # fmt: skip


@injection("the run that stood there stays as it was")
def full_at_an_evaluation(world: World) -> Seen:
    """The disk is full while `eval --overwrite` writes its tables."""
    from tests.faults.signals import evaluation

    output = world.new("full-eval")
    world.done(*evaluation(world, output))
    before = files(output)

    def owner() -> Any:
        from rewardlab.apps.commands.eval import run as jobs

        return jobs

    at = _before(owner, "write_evaluation", lambda *_: True, LITTLE)
    ended = world.run(*evaluation(world, output), "--overwrite", hook=at)
    untouched = files(output) == before
    again = world.run(*evaluation(world, output), "--overwrite", "--resume")
    same = again.code == 0 and files(output)["report.md"] == before["report.md"]
    return seen(ended, ("its disk has",), 3, untouched=untouched, resumed_with_same_report=same)
