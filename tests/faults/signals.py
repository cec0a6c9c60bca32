"""SIGTERM, as a scheduler or a container sends it, and a second writer of one folder."""

import signal
import time
from pathlib import Path

from rewardlab.apps.runs.run_folder import partial_folder

from tests.faults.checkpoints import EQUAL, steps_once
from tests.faults.injection import Seen, injection, seen
from tests.faults.programs import Hook, Program
from tests.faults.world import SAVED, World, files, same_weights, slow_after


def _after(program: Program, there) -> None:
    assert program.until(there), program.log.read_text()[-3000:]


@injection(EQUAL + "; a checkpoint of the step it came in")
def sigterm_to_train(world: World) -> Seen:
    """SIGTERM to `train` between two checkpoints, then --resume."""
    output = world.new("sigterm")
    checkpoints = partial_folder(output) / "checkpoints"
    program = world.start(*world.train(output), hook=_slow_steps(0.15))
    _after(program, (checkpoints / f"checkpoint-{SAVED}" / "complete.json").exists)
    program.send(signal.SIGTERM)
    ended = program.end()
    kept = sorted(int(one.name.rpartition("-")[2]) for one in checkpoints.glob("checkpoint-*"))
    between = SAVED < kept[-1] < 2 * SAVED
    again = world.run(*world.train(output), "--resume")
    same = again.code == 0 and same_weights(output, world.model)
    return seen(ended, ("ended by SIGTERM",), 143, a_checkpoint_between=between, resumed_with_same_weights=same)


def _slow_steps(seconds: float) -> Hook:
    def hook() -> None:
        from rewardlab.rm.training.fault_tolerance import FaultTolerantTrainer

        step = FaultTolerantTrainer.training_step

        def slowly(self, model, inputs, num_items_in_batch=None):
            time.sleep(seconds)
            return step(self, model, inputs, num_items_in_batch)

        FaultTolerantTrainer.training_step = slowly

    return hook


@injection(EQUAL + "; every step is told once")
def sigterm_to_rl(world: World) -> Seen:
    """SIGTERM to `rl` after its second step, then --resume."""
    output = world.new("sigterm-policy")
    program = world.start(*world.rl(output), hook=_slow_steps(0.3))
    _after(program, (partial_folder(output) / "checkpoints" / "checkpoint-2" / "complete.json").exists)
    program.send(signal.SIGTERM)
    ended = program.end()
    again = world.run(*world.rl(output), "--resume")
    same = again.code == 0 and same_weights(output / "policy", world.whole_policy / "policy")
    once = again.code == 0 and steps_once(output)
    return seen(ended, ("ended by SIGTERM",), 143, resumed_with_same_weights=same, steps_once=once)


@injection("the second ends it at once; " + EQUAL)
def sigterm_twice(world: World) -> Seen:
    """Two SIGTERM to `train` within a long step, then --resume."""
    output = world.new("sigterm-twice")
    checkpoints = partial_folder(output) / "checkpoints"
    program = world.start(*world.train(output), hook=slow_after(SAVED))
    _after(program, (checkpoints / f"checkpoint-{SAVED}" / "complete.json").exists)
    program.send(signal.SIGTERM)
    time.sleep(0.3)
    running, began = program.poll() is None, time.monotonic()
    program.send(signal.SIGTERM)
    ended = program.end()
    quick = time.monotonic() - began < 5
    again = world.run(*world.train(output), "--resume")
    same = again.code == 0 and same_weights(output, world.model)
    return seen(
        again, ("resuming from",), 0, first_waits=running, second_at_once=quick and ended.code == 143, same=same
    )


def _slow_rating(seconds: float) -> Hook:
    def hook() -> None:
        from rewardlab.rm.kinds.scalar.model import ScalarRewardModel

        rate = ScalarRewardModel.rate

        def slowly(self, examples, **options):
            found = rate(self, examples, **options)
            print("rated", flush=True)
            time.sleep(seconds if len(examples) > 10 else 0)
            return found

        ScalarRewardModel.rate = slowly

    return hook


def _rated(program: Program):
    return lambda: program.log.read_text().count("rated") > 1


@injection("the scores that stood there stay; nothing half-written beside them")
def sigterm_to_score(world: World) -> Seen:
    """SIGTERM to `score` before it writes."""
    scores = world.new("sigterm.jsonl")
    world.done(*world.score(scores))
    before = scores.read_bytes()
    program = world.start(*world.score(scores), "--overwrite", hook=_slow_rating(30))
    _after(program, _rated(program))
    program.send(signal.SIGTERM)
    ended = program.end()
    alone = [one.name for one in scores.parent.glob("*sigterm.jsonl*")] == [scores.name]
    return seen(ended, ("ended by SIGTERM",), 143, untouched=scores.read_bytes() == before, nothing_beside=alone)


def evaluation(world: World, output: Path) -> list:
    """The words of an evaluation on the toy world's pairs."""
    return ["eval", "--benchmark", "pairs", "--model", world.model, "--data", world.pairs, "--output", output]


@injection("no run folder and nothing half-written is left")
def sigterm_to_eval(world: World) -> Seen:
    """SIGTERM to `eval` while it scores."""
    output = world.new("sigterm-eval")
    program = world.start(*evaluation(world, output), hook=_slow_rating(30))
    _after(program, _rated(program))
    program.send(signal.SIGTERM)
    ended = program.end()
    left = [one.name for one in output.parent.glob("*sigterm-eval*")]
    return seen(ended, ("ended by SIGTERM",), 143, nothing_left=left == [])


# ---- two writers ----


@injection("the second learns who the first is; " + EQUAL)
def second_writer(world: World) -> Seen:
    """A second `train` of the same folder while the first is at work."""
    output = world.new("two-writers")
    checkpoints = partial_folder(output) / "checkpoints"
    first = world.start(*world.train(output), hook=_slow_steps(0.3))
    _after(first, (checkpoints / f"checkpoint-{SAVED}" / "complete.json").exists)
    second = world.run(*world.train(output), "--overwrite")
    done = first.end()
    named = f"process {first.pid} on" in second.said
    same = done.code == 0 and same_weights(output, world.model)
    return seen(second, ("is being written by",), 2, names_the_first=named, first_has_same_weights=same)


@injection("a dead writer locks nobody out")
def lock_of_a_dead_writer(world: World) -> Seen:
    """Kill -9 of `train`, whose lock file stays, then another `train --overwrite`."""
    output, _ = world.stopped("dead-writer")
    stays = (output.parent / f".{output.name}.lock").exists()
    ended = world.run(*world.train(output), "--overwrite")
    gone = not (output.parent / f".{output.name}.lock").exists()
    same = ended.code == 0 and same_weights(output, world.model)
    return seen(ended, (), 0, lock_file_stayed=stays, then_removed=gone, same_weights=same)


@injection("the second is refused, the first's tables are as alone")
def second_evaluation(world: World) -> Seen:
    """Two `eval` of one folder at the same time."""
    output, alone = world.new("two-evals"), world.new("one-eval")
    world.done(*evaluation(world, alone))
    first = world.start(*evaluation(world, output), hook=_slow_rating(4))
    _after(first, _rated(first))
    second = world.run(*evaluation(world, output), "--overwrite")
    done = first.end()
    same = done.code == 0 and files(output)["report.md"] == files(alone)["report.md"]
    return seen(second, ("is being written by",), 2, same_report=same)
