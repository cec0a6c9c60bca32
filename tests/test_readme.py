"""The README's commands and its Python run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, script) -> tuple[Path, dict[str, str]]:
    """A folder, and an environment in which `rewardlab` and `python` are this checkout's."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "bin").mkdir()
    program = script("from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))")
    command = folder / "bin" / "rewardlab"
    command.write_text(f"#!{program[0]}\n{program[2]}\n")
    command.chmod(0o755)
    paths = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return folder, os.environ | {"PATH": paths, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_the_jobs_run_as_they_stand_in_the_readme(workplace, script):
    folder, environment = workplace
    (commands,) = blocks("bash")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    report = (folder / "runs" / "eval" / "report.md").read_text()
    assert all(name in report for name in ("| rm |", "| rm-lora |", "| linear |", "| gold |", "prompt-blind tf-idf"))
    (text,) = blocks("python")
    printed = subprocess.run(
        script(text), cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"\[\[-?\d+\.\d+", printed)


def test_every_file_that_the_readme_shows_is_there():
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        if not path.startswith("http"):
            assert (ROOT / path).exists(), path


def test_the_make_targets_that_it_names_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert {"demo", "test", "check"} <= set(targets)
