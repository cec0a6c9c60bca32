"""What the scripts share: arguments, results, the machine, wall time and runs in a fresh process."""

import json
import os
import platform
import subprocess
import sys
import time
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

VERSIONS = ("torch", "transformers", "peft")


def argument_parser(doc: str | None, hidden: Sequence[str] = ()) -> ArgumentParser:
    """Return a parser described by the first line of a script's docstring, with `--output` and `hidden` arguments."""
    parser = ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="a JSON file")
    for name in hidden:
        parser.add_argument(name, help=SUPPRESS)
    return parser


def write(measurements: Any, output: Path | None, indent: int = 2) -> None:
    """Write measurements as JSON, if there is an output file; a program that is killed here leaves the earlier file."""
    if output is not None:
        unfinished = output.with_name(f"{output.name}.tmp")
        unfinished.write_text(json.dumps(measurements, indent=indent) + "\n", encoding="utf-8")
        unfinished.replace(output)


def in_fresh_process(module: str, *arguments: str) -> str:
    """Return the last line that a script prints in a process where nothing else has been loaded or freed."""
    command, environment = [sys.executable, "-m", module, *arguments], os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return done.stdout.splitlines()[-1]


def machine(device: str, packages: Sequence[str] = VERSIONS) -> dict[str, Any]:
    """Return device, versions of the installed packages, date, commit, threads and load."""
    import torch  # imported late: scripts that need no tensors start without it

    folder = Path(__file__).parent
    git = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "dtype": "bfloat16",
        "versions": {name: version(name) for name in packages if list(distributions(name=name))},
        "commit": git.stdout.strip() or None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def seconds(run: Callable[[], object], device: str = "cpu") -> float:
    """Return the wall seconds of one call, including all work that it started on the device."""
    start = time.perf_counter()
    run()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter() - start
