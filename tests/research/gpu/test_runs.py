import hashlib
import json
import sys
import zipfile

import pytest
from rewardlab.research.gpu import prepare, steps
from rewardlab.research.gpu.steps import Run, Step, execute, outcomes_of_tests, parser

QUICK, SLOW = "import sys; print('a row')", "print('first', flush=True); import time; time.sleep(600)"


@pytest.fixture
def facts_of(tmp_path, monkeypatch):
    """Runs steps whose script is Python text, and returns exit code, facts and log."""

    def run(*scripts, arguments=(), seconds=60):
        entries = tuple(Step(f"step{number}", script, 60) for number, script in enumerate(scripts))
        plan = Run("run", seconds, entries)
        code = execute(plan, parser(plan).parse_args(["--output", str(tmp_path / "out"), *arguments]))
        log = (tmp_path / "out/log.txt").read_text() if (tmp_path / "out/log.txt").exists() else ""
        return code, json.loads((tmp_path / "out/run.json").read_text()), log

    monkeypatch.setattr(steps, "command", lambda step, *_: [sys.executable, "-c", step.script])
    monkeypatch.setattr(steps, "why_not", lambda step, seconds, _: "budget" if seconds <= 0 else None)
    return run


def test_every_step_has_its_outcome_and_a_failure_ends_itself_alone(facts_of):
    code, facts, log = facts_of("raise SystemExit(3)", QUICK)
    assert code == 5 and [row["exit code"] for row in facts["steps"]] == [3, 0]
    assert "a row" in log and facts["device"] == "cuda" and {"python", "torch"} <= {*facts["versions"]}


def test_a_step_is_stopped_at_its_limit_and_its_output_stays(facts_of):
    code, facts, log = facts_of(SLOW, QUICK, seconds=2)
    assert code == 0 and facts["steps"][0]["stopped"] == "after 2 s"
    assert facts["steps"][1]["not run"] == "budget" and "\nfirst\n" in log


def test_wheels_are_unpacked_beside_the_package_and_their_hashes_are_checked(facts_of, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carried-1.whl", "w") as wheel:
        wheel.writestr("carried.py", "NAME = 'from a wheel'")
    (wheels / "wheels.json").write_text(json.dumps(prepare.hashes(wheels)))
    recorded = json.loads((wheels / "wheels.json").read_text())["carried-1.whl"]
    assert recorded["sha256"] == hashlib.sha256((wheels / "carried-1.whl").read_bytes()).hexdigest()
    assert "from a wheel" in facts_of("import carried; print(carried.NAME)", arguments=["--wheels", str(wheels)])[2]
    (wheels / "carried-1.whl").write_bytes(b"something else")
    with pytest.raises(SystemExit, match="is not the file that wheels.json records"):
        facts_of(QUICK, arguments=["--wheels", str(wheels)])


def test_failed_tests_are_read_from_the_lines_that_each_test_writes_when_it_ends():
    log = (
        "[gw0] [ 33%] PASSED tests/kernels/test_gpu.py::test_a[name-{'N': 1}] \n"
        "[gw1] [ 66%] FAILED tests/kernels/test_gpu.py::test_b[name-{'N': 3, 'G': 1}] \n"
        "[gw1] [ 66%] ERROR tests/kernels/test_gpu.py::test_b[name-{'N': 3, 'G': 1}] \n"
        "=== short test summary info ===\n"
        "FAILED tests/kernels/test_gpu.py::test_b[name-{'N': 3, 'G': 1}] - RuntimeError: why"
    )
    facts = outcomes_of_tests(log)
    assert facts["failed"] == ["tests/kernels/test_gpu.py::test_b[name-{'N': 3, 'G': 1}]"]
    assert facts["tests"] == {"passed": 1, "failed": 1, "error": 1}
