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
COMMIT = "REWARDLAB_COMMIT"
GPU_FACTS = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit"


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


def in_fresh_process(script: str, *arguments: str) -> str:
    """Return the last line that a script prints in a process where nothing else has been loaded or freed."""
    command = [sys.executable, "-m", str(__package__), script, *arguments]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return done.stdout.splitlines()[-1]


def machine(device: str, packages: Sequence[str] = VERSIONS) -> dict[str, Any]:
    """Return device, versions of the installed packages, date, commit, threads and load."""
    import torch  # imported late: scripts that need no tensors start without it

    return {
        **device_facts(device),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "dtype": "bfloat16",
        "versions": versions(packages),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    return {name: version(name) for name in packages if list(distributions(name=name))}


def device_facts(device: str) -> dict[str, Any]:
    """Return the device's name; of a GPU also driver, clocks and limit of power, where its tool is installed."""
    import torch

    if device != "cuda":
        return {"device": f"{platform.machine()}, {os.cpu_count()} cores"}
    gpu = output_of("nvidia-smi", f"--query-gpu={GPU_FACTS}", "--format=csv,noheader")
    return {"device": torch.cuda.get_device_name(), GPU_FACTS: gpu}


def commit() -> str | None:
    """Return the commit of the checkout, or REWARDLAB_COMMIT where a copy has no repository."""
    return os.environ.get(COMMIT) or output_of("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")


def output_of(*command: str) -> str | None:
    """Return what a program prints; None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def seconds(run: Callable[[], object], device: str = "cpu") -> float:
    """Return the wall seconds of one call, including all work that it started on the device."""
    start = time.perf_counter()
    run()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter() - start
