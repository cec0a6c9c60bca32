"""The steps of a run at a GPU: each a process with a limit of time, whose rows and output stay when it is stopped."""

import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import zipfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from .. import speed
from ..speed._scripts import commit, versions, write

ROOT = Path(__file__).resolve().parents[2]
SPEED = speed.__name__
START = 12
"""Seconds of a step that are not its script's budget: imports, and the rates of a bare copy and product."""
OUTCOME = re.compile(r"^\[gw\d+\] \[ *\d+%\] (PASSED|FAILED|ERROR|SKIPPED|XFAIL) (\S+::.*)$", re.MULTILINE)
"""A line of `pytest -v -n`, written when the test ends; the summary below names failed tests again."""
MANIFEST = "wheels.json"
PACKAGES = ("torch", "triton", "transformers", "accelerate", "peft", "numpy", "pytest")


class Step(NamedTuple):
    """A script of `research.speed`, or the kernels' tests, and how long it may take."""

    name: str
    script: str
    """TESTS, or the name of the script; one that does not exist is a step that is not run."""
    seconds: int
    """After which it is stopped, its start included."""
    arguments: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()
    """Further arguments of a rehearsal, which override the others."""


class Run(NamedTuple):
    """Steps in the order of their value, and the seconds of all of them."""

    name: str
    seconds: int
    steps: tuple[Step, ...]


TESTS = "tests"


def parser(run: Run) -> ArgumentParser:
    """Return the arguments of a run."""
    options = ArgumentParser(prog=f"{__package__}.{run.name}", description=f"At most {run.seconds} seconds of work.")
    options.add_argument("--output", type=Path, required=True, help="folder for results and log")
    options.add_argument("--wheels", type=Path, help="folder that `prepare` wrote: libraries to compare with")
    options.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cpu: a rehearsal with tiny sizes")
    options.add_argument("--seconds", type=float, default=run.seconds, help="of all steps")
    options.add_argument("--workers", type=int, default=8, help="processes of the tests")
    options.add_argument("--steps", default="", help="regular expression: the steps whose name it finds")
    return options


def execute(run: Run, options: Namespace, failures: Sequence[str] | None = None) -> int:
    """Run the steps and write their facts after each; exit code 5 if one failed.

    `failures` are the tests to run again, in place of all.
    """
    begin = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {
        **{"run": run.name, "device": options.device, "commit": commit()},
        "versions": {"python": platform.python_version()} | versions(PACKAGES),
        **{"wheels": manifest(options.wheels), "steps": []},
    }
    with TemporaryDirectory() as site:
        paths = [*unpack(options.wheels, Path(site)), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        for step in (step for step in run.steps if re.search(options.steps, step.name)):
            left = begin + options.seconds - time.monotonic()
            row = outcome(step, options, left, environment, failures)
            print(json.dumps(row), flush=True)
            facts["steps"].append(row)
            facts["seconds"] = round(time.monotonic() - begin, 1)
            write(facts, options.output / f"{run.name}.json")
    return 5 if any(row.get("exit code") for row in facts["steps"]) else 0


def manifest(wheels: Path | None) -> dict[str, dict[str, Any]]:
    """Return the bytes and hashes that `prepare` recorded of the wheels in a folder."""
    return json.loads((wheels / MANIFEST).read_text()) if wheels else {}


def unpack(wheels: Path | None, site: Path) -> list[str]:
    """Unpack the wheels, whose hashes must be those recorded; return the folder, if there are any, for PYTHONPATH."""
    if wheels is None:
        return []
    for name, recorded in manifest(wheels).items():
        if hashlib.sha256((wheels / name).read_bytes()).hexdigest() != recorded["sha256"]:
            raise SystemExit(f"{wheels / name} is not the file that {MANIFEST} records; run `prepare` again")
        zipfile.ZipFile(wheels / name).extractall(site)
    return [str(site)]


def outcome(
    step: Step, options: Namespace, left: float, environment: Mapping[str, str], failures: Sequence[str] | None
) -> dict[str, Any]:
    """Run a step, at most for the `left` seconds of the run, and return its facts; its output goes to the run's log."""
    row: dict[str, Any] = {"step": step.name, "limit": step.seconds}
    if reason := why_not(step, left, failures):
        return row | {"not run": reason}
    begin, log, seconds = time.monotonic(), options.output / "log.txt", min(step.seconds, left)
    first = log.stat().st_size if log.exists() else 0
    end = (
        seconds if options.device == "cuda" else left
    )  # a busy CPU takes longer to start a script than a GPU's machine
    with log.open("ab") as file:
        row |= finish(command(step, options, seconds, failures), file, end, environment)
    row["seconds"] = round(time.monotonic() - begin, 1)
    return row | (outcomes_of_tests(log.read_bytes()[first:].decode(errors="replace")) if step.script == TESTS else {})


def why_not(step: Step, seconds: float, failures: Sequence[str] | None) -> str | None:
    """Return why a step is not run, if it is not."""
    if seconds <= START:
        return "budget"
    if step.script == TESTS:
        return "no failed test is named" if failures is not None and not failures else None
    known = any((ROOT / "research/speed" / name).exists() for name in (f"{step.script}.py", step.script))
    return None if known else f"there is no script {step.script}"


def command(step: Step, options: Namespace, seconds: float, failures: Sequence[str] | None) -> list[str]:
    """Return the command of a step."""
    if step.script == TESTS:
        tests = ["tests/kernels", "tests/policy/decoding/test_guided.py"] if failures is None else failures
        return [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-n", str(options.workers), *tests]
    words = [*step.arguments, *(step.on_cpu if options.device == "cpu" else ())]
    words += ["--device", options.device, "--budget", f"{seconds - START:.0f}"]
    return [sys.executable, "-m", SPEED, step.script, *words, "--output", str(options.output / f"{step.name}.json")]


def finish(words: Sequence[str], log: Any, seconds: float, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a command in the checkout and return its exit code; end it with all its processes after `seconds`."""
    log.write(f"\n$ {' '.join(words)}\n".encode())
    log.flush()
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        return {"exit code": process.wait(seconds)}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return {"stopped": f"after {seconds:.0f} s"}


def outcomes_of_tests(log: str) -> dict[str, Any]:
    """Count the outcomes in pytest's output, and name the tests that failed."""
    ends = OUTCOME.findall(log)
    counts = {kind.lower(): sum(end == kind for end, _ in ends) for kind in dict.fromkeys(end for end, _ in ends)}
    failed = [name.strip() for end, name in ends if end in ("FAILED", "ERROR")]
    return {"tests": counts, "failed": list(dict.fromkeys(failed))}
