"""The base installation without extras, as a process that cannot import any package of theirs."""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rewardlab.apps.installation.libraries import EXTRAS, extra_of

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
WITHOUT = """
import json, sys
blocked = set(json.loads(sys.argv[1]))

class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
from rewardlab.apps.cli import main
for words in json.loads(sys.argv[2]):
    code = main(words)
    print(f"exit code {code}", flush=True)
"""


def distributions(requirements, extras=()):
    """Return the names of the installed distributions that requirements bring, with those that they need."""
    found, waiting = set(), [(Requirement(text), extras) for text in requirements]
    while waiting:
        requirement, wanted = waiting.pop()
        environments = [{"extra": extra} for extra in ("", *wanted)]
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        if key in found or (requirement.marker and not any(map(requirement.marker.evaluate, environments))):
            continue
        found.add(key)
        try:
            needed = metadata.requires(requirement.name) or []
        except metadata.PackageNotFoundError:
            continue
        waiting += [(Requirement(text), requirement.extras) for text in needed]
    return {key[0] for key in found}


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]


def modules_of(names):
    return {
        module
        for module, of_module in metadata.packages_distributions().items()
        if names & {canonicalize_name(name) for name in of_module}
    }


def run_base(project, *commands):
    """Run commands in one process that finds no package beyond those of the base."""
    allowed = modules_of(distributions(project["dependencies"])) | {"rewardlab", "_distutils_hack"}
    blocked = sorted({*metadata.packages_distributions()} - allowed)
    assert "gradio" in blocked and "torch" not in blocked
    command = [sys.executable, "-c", WITHOUT, json.dumps(blocked), json.dumps(commands)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_base_alone_lints_trains_scores_and_evaluates(project, tmp_path):
    rows = [
        {"prompt": f"Name a plant, number {index}.", "chosen": f"A fern, {index}.", "rejected": "I do not know."}
        for index in range(12)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data, model = str(tmp_path / "pairs.jsonl"), str(tmp_path / "model")
    small = [
        "--small_hidden",
        "8",
        "--small_layers",
        "1",
        "--small_vocabulary",
        "300",
        "--max_steps",
        "2",
        "--use_cpu",
        "True",
    ]
    done = run_base(
        project,
        ["lint", "--data", data, "--output", str(tmp_path / "lint")],
        ["train", "--data", data, *small, "--output", model],
        ["score", "--model", model, "--data", data, "--output", str(tmp_path / "scores.jsonl")],
        ["eval", "--model", model, "--data", data, "--benchmark", "pairs", "--output", str(tmp_path / "eval")],
    )
    codes = [line for line in done.stdout.splitlines() if line.startswith("exit code")]
    assert codes[1:] == ["exit code 0"] * 3 and codes[0] in ("exit code 0", "exit code 5"), done.stderr
    assert (tmp_path / "eval" / "report.md").exists() and (tmp_path / "scores.jsonl").exists()


def test_a_missing_extra_is_one_sentence(project, tmp_path):
    done = run_base(
        project, ["inspect", str(tmp_path)], ["serve", "--model", str(tmp_path)], ["judge", "--kind", "pairwise"]
    )
    sentences = [line for line in done.stderr.splitlines() if "pip install" in line]
    assert done.stdout.count("exit code 2") == 3, done.stderr
    assert any("rewardlab inspect: " in line and "'rewardlab[inspect]'" in line for line in sentences), done.stderr
    assert any("rewardlab serve: " in line and "'rewardlab[serve]'" in line for line in sentences), done.stderr


def test_every_module_is_of_the_extra_that_brings_it(project):
    optional, by_module = project["optional-dependencies"], metadata.packages_distributions()
    for extra, modules in EXTRAS.items():
        names = {canonicalize_name(Requirement(text).name) for text in optional[extra]}
        for module in modules:
            if module in by_module or extra != "vllm":  # which no test environment of ours has
                assert names & {canonicalize_name(name) for name in by_module[module]}, (extra, module)
    base = modules_of({canonicalize_name(Requirement(text).name) for text in project["dependencies"]})
    assert not base & {module for modules in EXTRAS.values() for module in modules}
    assert extra_of("rewardlab.apps") is None


def test_python_dash_m_and_the_version():
    for words in ([], ["--version"]):
        done = subprocess.run([sys.executable, "-m", "rewardlab", *words], capture_output=True, text=True)
        assert (done.returncode, done.stdout.startswith("usage" if not words else "rewardlab ")) == (
            0 if words else 2,
            True,
        )
