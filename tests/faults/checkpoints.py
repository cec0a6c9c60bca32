"""Trainings that are killed, and what they left spoilt on the disk."""

from collections.abc import Callable
from pathlib import Path

from rewardlab.apps.runs.run_folder import partial_folder
from rewardlab.rm.training.checkpointing import COMPLETE

from tests.faults.injection import Seen, add_table, injection, seen
from tests.faults.programs import Hook
from tests.faults.world import SAVED, World, cut, files, flip, lines, same_weights

EQUAL = "the resumed run ends with the uninterrupted run's weights, to the last bit"


def _resumed(world: World, output: Path, words: tuple[str, ...], **held: bool) -> Seen:
    ended = world.run(*world.train(output), "--resume")
    return seen(ended, words, 0, same_weights=same_weights(output, world.model), **held)


@injection(EQUAL)
def killed_after_a_checkpoint(world: World) -> Seen:
    """Kill -9 of `train` just after a checkpoint, then --resume."""
    output, _ = world.stopped("killed-after")
    return _resumed(world, output, ("resuming from",), no_folder_before=not output.exists())


@injection(EQUAL)
def killed_within_a_checkpoint(world: World) -> Seen:
    """Kill -9 of `train` while a checkpoint is half-written, then --resume."""
    output = world.new("killed-within")
    half = partial_folder(output) / "checkpoints" / f"checkpoint-{2 * SAVED}"
    program = world.start(*world.train(output), hook=_slow_writing(2 * SAVED))
    came = program.until((half / "optimizer.pt").exists)
    program.kill()
    torn = came and not (half / COMPLETE).exists()
    return _resumed(world, output, ("was cut off",), was_half_written=torn)


def _slow_writing(step: int) -> Hook:
    def hook() -> None:
        import time

        from rewardlab.rm.training.trainer import RewardTrainer

        write = RewardTrainer._save_optimizer_and_scheduler

        def slowly(self, output_dir):
            write(self, output_dir)
            time.sleep(30 if self.state.global_step == step else 0)

        RewardTrainer._save_optimizer_and_scheduler = slowly

    return hook


def _spoilt(world: World, name: str, file: str, spoil: Callable[[Path], object], word: str) -> Seen:
    output, where = world.stopped(name)
    spoil(where / f"checkpoint-{2 * SAVED}" / file)
    found = _resumed(world, output, (f"{file} {word}",))
    aside = (output / "checkpoints" / f"corrupt-checkpoint-{2 * SAVED}").is_dir()
    return found._replace(held=found.held | {"set aside, not deleted": aside})


add_table("checkpoints", EQUAL, _spoilt, {
    "checkpoint-cut-off": (
        "The newest checkpoint's optimizer.pt loses its second half, then --resume", "optimizer.pt", cut, "has"),
    "checkpoint-bit-flipped": (
        "One bit of the newest checkpoint's weights turns over, then --resume",
        "model.safetensors", flip, "has changed"),
    "checkpoint-random-state-flipped": (
        "One bit of the newest checkpoint's random state turns over, then --resume",
        "rng_state.pth", flip, "has changed"),
    "checkpoint-sums-torn": (
        "The newest checkpoint's own sums are cut off, then --resume", COMPLETE, cut, "cannot be read"),
})  # fmt: skip


@injection("nothing starts anew behind the user's back, nothing is removed")
def no_checkpoint_left(world: World) -> Seen:
    """Every checkpoint is spoilt, then --resume."""
    output, where = world.stopped("none-left")
    for one in where.glob("checkpoint-*"):
        flip(one / "model.safetensors")
    before = files(where)
    ended = world.run(*world.train(output), "--resume")
    return seen(ended, ("no complete checkpoint",), 3, untouched=files(where) == before, no_result=not output.exists())


@injection(EQUAL + "; every step once")
def policy_checkpoint_flipped(world: World) -> Seen:
    """Kill -9 of `rl` and one bit of its newest checkpoint turns over, then --resume."""
    output, where = world.stopped("flipped-policy", rl=True)
    flip(where / "checkpoint-4" / "beside.pt")
    ended = world.run(*world.rl(output), "--resume")
    same = same_weights(output / "policy", world.whole_policy / "policy")
    return seen(ended, ("beside.pt has changed",), 0, same_weights=same, steps_once=steps_once(output))


@injection(EQUAL + "; every step is told once")
def policy_killed(world: World) -> Seen:
    """Kill -9 of `rl` just after a checkpoint, then --resume."""
    output, _ = world.stopped("killed-policy", rl=True)
    ended = world.run(*world.rl(output), "--resume")
    same = same_weights(output / "policy", world.whole_policy / "policy")
    return seen(ended, ("resuming from",), 0, same_weights=same, steps_once=steps_once(output))


def steps_once(output: Path) -> bool:
    """Whether a policy's run tells its six steps once each."""
    return [row["step"] for row in lines(output / "steps.jsonl") if "reward" in row] == [1, 2, 3, 4, 5, 6]


@injection("no score from changed weights is written")
def model_weights_flipped(world: World) -> Seen:
    """One bit of a finished model's weights turns over, then `score`."""
    folder = world.copy_of(world.model, "flipped-model")
    flip(folder / "model.safetensors")
    scores = world.new("flipped.parquet")
    ended = world.run(*world.score(scores, folder))
    return seen(ended, ("model.safetensors has changed",), 5, nothing_written=not scores.exists())


@injection("the file is named")
def verified_weights_flipped(world: World) -> Seen:
    """One bit of a finished model's weights turns over, then `verify`."""
    folder = world.copy_of(world.model, "flipped-verified")
    flip(folder / "model.safetensors")
    ended = world.run("verify", folder)
    return seen(
        ended, ("model.safetensors has changed",), 5, good_one_passes=world.run("verify", world.model).code == 0
    )
