"""The run of continuous integration: a failed test runs again once, alone; models are fetched in three attempts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UNSTEADY = """
from pathlib import Path
def test_unsteady():
    tries = Path("tries")
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    assert len(tries.read_text()) > 1
"""
FAILING = "def test_failing():\n    assert False\n"


@pytest.fixture
def run(tmp_path):
    """A function that runs a planted test file as `make test` of a folder."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "Makefile").write_text("test:\n\t.venv/bin/python -m pytest -q $(FILE)\n")

    def run_tests(text: str, file: str = "test_planted.py") -> subprocess.CompletedProcess:
        (tmp_path / "test_planted.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:xdist\n")
        command = [sys.executable, str(ROOT / ".ci" / "run_tests.py"), "test"]
        environment = {**os.environ, "FILE": file}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run_tests


def test_a_test_that_passes_alone_is_listed_and_does_not_fail_the_run(run):
    result = run(UNSTEADY + "def test_steady(): pass\n")
    assert result.returncode == 0
    assert result.stdout.endswith("passed on the second try:\n  test_planted.py::test_unsteady\n")


def test_a_test_that_fails_twice_fails_the_run(run):
    result = run(UNSTEADY + FAILING)
    assert result.returncode == 1
    assert "passed on the second try:\n  test_planted.py::test_unsteady\n" in result.stdout
    assert result.stdout.endswith("failed twice:\n  test_planted.py::test_failing\n")


def test_more_than_five_failures_fail_the_run_without_a_second_try(run, tmp_path):
    result = run(UNSTEADY + "".join(FAILING.replace("failing", f"failing_{i}") for i in range(5)))
    assert result.returncode == 1 and "6 tests failed; at most 5 run again:" in result.stdout
    assert (tmp_path / "tries").read_text() == "x"


def test_a_run_that_breaks_off_without_a_failed_test_fails(run):
    result = run("", file="missing.py")
    assert result.returncode == 1 and "make test failed" in result.stderr


@pytest.mark.parametrize(("successful", "required"), [(3, "data,browser,triton,models"), (4, "data,browser,triton")])
def test_pretrained_models_are_required_unless_three_attempts_to_fetch_them_fail(tmp_path, successful, required):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    make = f'[ "$1" != models ] || {{ echo >> attempts; [ "$(wc -l < attempts)" -ge {successful} ]; }}'
    for name, script in (("make", make), ("python3", 'echo "required: $REWARDLAB_REQUIRE"'), ("chromium", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run([tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == f"required: {required}"
    assert ("their tests are skipped" in result.stdout) == ("models" not in required)
    assert len((tmp_path / "attempts").read_text()) == 3
