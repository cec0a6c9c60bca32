import os
import subprocess
import sys
from pathlib import Path

import pytest
from rewardlab.research.speed import _scripts

ROOT = Path(__file__).parents[3]
ABSENT = ("beartype", "datasets", "duckdb", "gradio", "liger_kernel", "moocore", "trl")
"""Packages that an image with a GPU need not have."""


@pytest.fixture
def bare_image(tmp_path):
    """The environment of a process without the absent packages, in which the checkout is linked and not installed."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({ABSENT})\n")
    (tmp_path / "rewardlab").symlink_to(ROOT)
    return os.environ | {"PYTHONPATH": str(tmp_path)}


def test_a_machine_without_git_takes_the_commit_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("REWARDLAB_COMMIT", raising=False)
    assert _scripts.machine("cpu")["commit"] is None
    monkeypatch.setenv("REWARDLAB_COMMIT", "a commit")
    assert _scripts.machine("cpu")["commit"] == "a commit"


def test_speed_scripts_are_imported_from_a_link_without_the_libraries_they_compare_with(bare_image):
    names = [f"rewardlab.research.speed.{name}" for name in ("kernels", "decoding", "scoring", "policy")]
    subprocess.run([sys.executable, "-c", f"import {', '.join(names)}"], check=True, env=bare_image)


def test_the_kernels_tests_are_collected_without_beartype(bare_image):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "gpu", "tests/kernels"]
    done = subprocess.run(command, cwd=ROOT, env=bare_image, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "beartype is not installed: shapes and dtypes of arguments are not checked" in done.stdout
