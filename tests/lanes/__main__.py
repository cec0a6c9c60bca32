"""`python -m tests.lanes`: install each lane, run its tests, and write a table of versions and outcomes."""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LANES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "lanes.toml").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEADER = ("lane", "what it is", "versions", "tests run", "passed", "skipped", "outcome")


class Outcome(NamedTuple):
    """A row of the table; `note` says why a lane was not run, or what failed."""

    lane: str
    versions: dict[str, str]
    run: int | None = None
    passed: int | None = None
    skipped: int | None = None
    note: str = "not run here"


# ---- versions ----


def floors(requirements: Iterable[str], exempt: Sequence[str] = ()) -> list[str]:
    """Return each requirement at the lowest version of its bound; those without one, and the exempt, as they are.

    >>> floors(["numpy>=1.26", "torch>=2.11,<2.14", "tqdm"], exempt=["torch"])
    ['numpy==1.26', 'torch<2.14,>=2.11', 'tqdm']
    """
    return [_floor(Requirement(text), exempt) for text in requirements]


def _floor(requirement: Requirement, exempt: Sequence[str]) -> str:
    lowest = next((bound.version for bound in requirement.specifier if bound.operator in (">=", "==", "~=")), None)
    if lowest is None or requirement.name in exempt:
        return str(requirement)
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}=={lowest}{marker}"


def packages(lane: dict[str, Any]) -> list[str]:
    """Return what pip installs for a lane."""
    extras = PROJECT["optional-dependencies"]
    (judge,) = floors(extras["judges"])
    of_extras = [text for extra, texts in extras.items() if extra != "vllm" for text in texts]
    optional = [text for text in of_extras if not text.startswith("rewardlab[")]
    everything = floors(dict.fromkeys([*PROJECT["dependencies"], *optional]), lane.get("exempt", ()))
    named = [text.replace("openai==FLOOR", judge) for text in lane["install"]]
    return [package for text in named for package in (everything if text == "minimum" else [text])]


# ---- environments ----


def pip(*words: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run pip and return its output."""
    return subprocess.run([python, "-m", "pip", *words], capture_output=True, text=True, cwd=ROOT)


def overlay(name: str, lane: dict[str, Any], folder: Path) -> Outcome:
    """Install into a folder that comes first on the path, and run the tests with this interpreter."""
    target = folder / name
    installed = pip("install", "--quiet", "--no-deps", "--upgrade", "--target", str(target), *packages(lane))
    if installed.returncode:
        return Outcome(name, {}, note=f"not installed: {_last(installed.stderr)}")
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    return run_tests(name, lane, sys.executable, folder, {"PYTHONPATH": path})


def venv(name: str, lane: dict[str, Any], folder: Path) -> Outcome:
    """Install into an environment of its own, and run the tests with its interpreter."""
    python = folder / name / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
    installed = pip("install", "--quiet", *packages(lane), python=str(python))
    if not installed.returncode:
        installed = pip("install", "--quiet", "--no-deps", "--editable", ".", python=str(python))
    if installed.returncode:
        return Outcome(name, {}, note=f"not installed: {_last(installed.stderr)}")
    return run_tests(name, lane, str(python), folder, {})


def resolve(name: str, lane: dict[str, Any], folder: Path) -> Outcome:
    """Resolve with pip's dry run, and install nothing."""
    report = folder / f"{name}.json"
    words = ("install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report), *packages(lane))
    resolved = pip(*words)
    if resolved.returncode:
        return Outcome(name, {}, note=f"does not resolve: {_last(resolved.stderr)}")
    chosen = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    versions = {entry["name"].lower(): entry["version"] for entry in chosen}
    wanted = {package: versions[package] for package in lane["versions"] if package in versions}
    return Outcome(name, wanted, note=f"not run here: {lane['why_not']}; {len(chosen)} packages resolve")


def run_tests(name: str, lane: dict[str, Any], python: str, folder: Path, environment: dict[str, str]) -> Outcome:
    """Run a lane's tests, and count them from pytest's JUnit file."""
    junit = folder / f"{name}.xml"
    junit.unlink(missing_ok=True)
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", *lane["tests"]],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    versions = installed_versions(python, lane["versions"], environment)
    if not junit.exists():
        return Outcome(name, versions, note=f"no tests ran: {_last(run.stdout + run.stderr)}")
    return counted(name, versions, junit)


def counted(name: str, versions: dict[str, str], junit: Path) -> Outcome:
    """Return the outcome that a JUnit file records; the note names the first failures."""
    cases = ElementTree.parse(junit).getroot().findall(".//testcase")
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    run = len(cases) - len(skipped)
    names = ", ".join(f"{case.get('name')}" for case in failed[:3])
    note = f"{len(failed)} failed: {names}" if failed else "passed" if run else "no tests ran"
    return Outcome(name, versions, run, run - len(failed), len(skipped), note)


def installed_versions(python: str, names: Sequence[str], environment: dict[str, str]) -> dict[str, str]:
    """Return the versions that an interpreter finds."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "have = {n: m.version(n) for n in sys.argv[1:] if list(m.distributions(name=n))}\n"
        "print(json.dumps(have))"
    )
    run = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, env=os.environ | environment)
    return json.loads(run.stdout or "{}")


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if not line.startswith("WARNING")]
    return re.sub(r"https?://\S+", "URL", lines[-1])[:200] if lines else "no message"


# ---- the table ----


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the table as Markdown."""
    rows = [HEADER, tuple("---" for _ in HEADER), *map(_cells, outcomes)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def _cells(outcome: Outcome) -> tuple[str, ...]:
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    counts = ["–" if number is None else str(number) for number in (outcome.run, outcome.passed, outcome.skipped)]
    return outcome.lane, LANES[outcome.lane]["about"], versions or "–", *counts, outcome.note


KINDS = {"overlay": overlay, "venv": venv, "resolve": resolve}


def main(words: Sequence[str] | None = None) -> int:
    """Run the lanes that are named, or all; return 1 if a test failed or a lane could not be installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    parser.add_argument("lanes", nargs="*", metavar="LANE", help=f"{', '.join(LANES)}; all by default")
    parser.add_argument("--heavy", action="store_true", help="also install lanes that take gigabytes")
    parser.add_argument("--folder", type=Path, default=ROOT / ".lanes", help="environments and logs")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "lanes.json")
    given = parser.parse_args(words)
    if unknown := [name for name in given.lanes if name not in LANES]:
        parser.error(f"no lane {unknown[0]}; the lanes are {', '.join(LANES)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / ".gitignore").write_text("*\n")
    kept = read(given.output)
    for name in given.lanes or LANES:
        lane = LANES[name]
        if lane["kind"] == "venv" and not given.heavy:
            kept.setdefault(name, Outcome(name, {}, note="not run here: an environment of gigabytes; use --heavy"))
        else:
            kept[name] = KINDS[lane["kind"]](name, lane, given.folder)
    outcomes = [kept[name] for name in LANES if name in kept]
    given.output.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=2) + "\n")
    given.output.with_suffix(".md").write_text(markdown(outcomes))
    print(markdown(outcomes))
    return int(any(outcome.note != "passed" and not outcome.note.startswith("not run here") for outcome in outcomes))


def read(path: Path) -> dict[str, Outcome]:
    """Return the outcomes of earlier runs, which stay in the table until their lane runs again."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {row["lane"]: Outcome(**row) for row in rows if row["lane"] in LANES}


if __name__ == "__main__":
    sys.exit(main())
