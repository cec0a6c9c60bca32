"""Inject every fault, check that nothing is lost, and write the table: `make faults`.

The exit code is 5 where a promise did not hold. `--only NAME` injects one fault, or all of a family.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from rewardlab.apps.runs.run_folder import log, versions
from rewardlab.rm.errors import did_you_mean

from tests.faults.injection import INJECTIONS, Injection, Seen
from tests.faults.table import row, write
from tests.faults.world import World

FAMILIES = ("checkpoints", "signals", "numbers", "disks", "inputs", "clocks", "workers")


def ready() -> None:
    """Import what programs need, once; and every family, whose injections add themselves."""
    verbs = [f"commands.{verb}.run" for verb in ("train", "eval", "judge", "compare")]
    for name in ("cli", "assembly.policy_training.run", *verbs):
        import_module(f"rewardlab.apps.{name}")
    for name in FAMILIES:
        import_module(f".{name}", __package__)


def chosen(only: Sequence[str]) -> list[Injection]:
    """Those that are named, by their names or their families; all if none is."""
    known = {*INJECTIONS, *FAMILIES}
    for name in only:
        if name not in known:
            raise SystemExit(f"no fault '{name}'; {did_you_mean(name, sorted(known))}")
    return [one for one in INJECTIONS.values() if not only or one.name in only or one.family in only]


def injected(one: Injection, world: World) -> Seen:
    """What came of it; an injection that breaks is a promise that did not hold."""
    try:
        return one.run(world)
    except Exception as error:  # whatever it is, the other faults are still to be tried
        return Seen(" ".join(str(error).split())[-300:], -1, {f"could be tried ({type(error).__name__})": False})


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each fault, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--folder", type=Path, help="where the world stands; by default a temporary folder")
    asked = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ready()
    rows = []
    with TemporaryDirectory() as aside:
        world = World(asked.folder or Path(aside))
        short = {str(world.folder): "W", platform.node(): "HOST"}
        for one in chosen(asked.only):
            began = time.monotonic()
            found = injected(one, world)
            rows.append(row(one, found, time.monotonic() - began, short))
            log(f"{'held' if rows[-1]['held'] else 'LOST'}  {one.name} ({rows[-1]['seconds']} s): {rows[-1]['saw']}")
            if not rows[-1]["held"]:
                log(f"      {[name for name, ok in found.held.items() if not ok]}")
    if asked.output:
        installed = versions()
        machine = {"machine": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count() or 1}
        machine |= {name: installed[name] for name in ("torch", "transformers", "trl")}
        command = f"python -m {__package__} --only {' '.join(asked.only)}" if asked.only else "make faults"
        write(asked.output, rows, machine, command)
    return 0 if all(one["held"] for one in rows) else 5


if __name__ == "__main__":
    sys.exit(main())
