"""Loaders under bent files: some of them in every test run, and proof that a broken loader is found."""

import json
import socket
import time
from pathlib import Path

import pytest
from rewardlab.rm.errors import DataError

from tests.conftest import PATIENCE
from tests.fuzzing.__main__ import main
from tests.fuzzing.running import fuzz, targets
from tests.fuzzing.shapes import JSON
from tests.fuzzing.target import MEMORY, Target, attempt, bent_file, prepare


def target(opens, **more) -> Target:
    return Target("made/up", "file.json", (b'{"a": 1}', b'{"a": [2, 3]}'), opens, **more)


def outcome(opens, tmp_path, data=b"{}", deadline=PATIENCE):
    one = target(opens)
    return attempt(one, data, prepare(one, tmp_path / "folder"), deadline=deadline)


def hang(_path):
    time.sleep(PATIENCE)


def connect(_path):
    with socket.socket() as one:
        one.settimeout(0.01)
        one.connect_ex(("127.0.0.1", 9))


def fail(error):
    raise error


LAWBREAKERS = [
    (lambda _path: json.loads("x"), "JSONDecodeError"),
    (lambda _path: fail(BaseException("a panic")), "a panic"),
    (hang, "longer than 0.2 s"),
    (lambda path: path.with_name("other").write_text("x"), "for writing"),
    (lambda path: open(path, "r+").close(), "for writing"),
    (connect, "socket.connect"),
    (lambda _path: fail(DataError("")), "no sentence"),
]


def test_a_sentence_of_ours_is_a_refusal_and_what_breaks_the_law_a_failure(tmp_path):
    assert outcome(lambda _path: fail(DataError("no good")), tmp_path).kind == "refused"
    assert outcome(lambda path: path.read_bytes(), tmp_path).kind == "opened"
    for opens, why in LAWBREAKERS:
        found = outcome(opens, tmp_path, deadline=0.2 if opens is hang else PATIENCE)
        assert found.kind == "failed" and why in found.why


def test_memory_is_measured(tmp_path, monkeypatch):
    sizes = iter([100.0, 100.0 + MEMORY, 100.0, 101.0 + MEMORY])
    monkeypatch.setattr("tests.fuzzing.target._peak", lambda: next(sizes))
    assert outcome(lambda path: path.read_bytes(), tmp_path).kind == "opened"
    found = outcome(lambda path: path.read_bytes(), tmp_path)
    assert found.kind == "failed" and found.why == f"took {MEMORY + 1} MiB of memory"


def planted(path: Path) -> None:
    """A loader that forgets that `a` may be no number."""
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError("no JSON") from error
    if isinstance(values, dict) and "a" in values and isinstance(values["a"], str):
        values["a"] + 1


def test_a_planted_bug_is_found_told_once_and_made_short(tmp_path):
    """Its file comes again from seed and number."""
    one, said = target(planted, shape=JSON), []
    (tally,) = fuzz([one], tmp_path, seed=0, executions=400, log=said.append)
    (failure,) = tally.failures.values()
    assert tally.kinds["failed"] >= 1 and len(said) == 1
    assert "TypeError" in failure.why and len(failure.data) <= 10
    assert f"--seed 0 --start {failure.number} --executions 1" in said[0] and repr(failure.data) in said[0]
    files = [[bent_file(one, seed, number) for number in range(50)] for seed in (7, 7, 8)]
    assert files[0] == files[1] != files[2]


def test_a_program_that_finds_a_failure_ends_with_five(tmp_path, capsys):
    calm, broken = target(lambda path: path.read_bytes()), target(lambda path: json.loads(path.read_bytes()))
    out = tmp_path / "found.json"
    assert main(["--executions", "5", "--output", str(out)], lambda only: [calm]) == 0
    assert json.loads(out.read_text())["targets"]["made/up"]["opened"] == 5
    assert main(["--executions", "30", "--output", str(out)], lambda only: [broken]) == 5
    told = json.loads(out.read_text())
    assert told["failures"][0].startswith("FAILED made/up: JSONDecodeError") and told["executions"] == 30
    assert "30 files, 3 places that failed" in capsys.readouterr().out


@pytest.mark.parametrize("executions", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_no_loader_breaks_the_law(tmp_path, monkeypatch, executions):
    """The same files in every run, and files for every family: what is found here can be looked for."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # names in files are not looked up
    said: list[str] = []
    tallies = fuzz(targets(), tmp_path, seed=0, executions=executions, log=said.append)
    assert not said, "\n".join(said)
    families = {tally.target.name.partition("/")[0] for tally in tallies}
    assert families == {"data", "imported", "models", "replies", "runs", "settings", "suites"}
    assert {tally.as_json()["executions"] for tally in tallies} == {executions}
    assert sum(tally.kinds["refused"] for tally in tallies) > 20 * executions
