"""Clocks that are set while a program runs: by a day forward, by a year back."""

import json
import os
import time

from tests.faults.checkpoints import EQUAL
from tests.faults.injection import Seen, add_table, seen
from tests.faults.programs import Hook
from tests.faults.world import SAVED, World, same_weights

DAY = 86_400.0


def _set(by: float) -> Hook:
    """`time.time` and the files' times jump when the first checkpoint has been written; `time.monotonic` does not."""

    def hook() -> None:
        from rewardlab.rm.training.checkpointing import MarkComplete

        clock, mark = time.time, MarkComplete.on_save

        def on_save(self, args, state, control, **kwargs):
            mark(self, args, state, control, **kwargs)
            if state.global_step == SAVED:
                time.time = lambda: clock() + by
            if state.global_step > SAVED:
                folder = f"{args.output_dir}/checkpoint-{state.global_step}"
                os.utime(folder, (time.time(), time.time()))

        MarkComplete.on_save = on_save

    return hook


def _jumped(world: World, name: str, by: float) -> Seen:
    output = world.new(name)
    ended = world.run(*world.train(output), hook=_set(by))
    if ended.code:
        return seen(ended, (), 0)
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    kept = sorted(int(one.name.rpartition("-")[2]) for one in (output / "checkpoints").glob("checkpoint-*"))
    said = {"duration_is_right": 0 < manifest["seconds"] < 300, "the_newest_checkpoint_is_kept": 3 * SAVED in kept}
    return seen(ended, (), 0, same_weights=same_weights(output, world.model), **said)


add_table("clocks", EQUAL + "; its duration is the real one", _jumped, {
    "clock-forward": ("The clock is set a day forward while `train` runs", DAY),
    "clock-back": ("The clock is set a year back while `train` runs", -365 * DAY),
})  # fmt: skip
