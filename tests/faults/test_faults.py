"""The fault table's own machinery, and its quick injections as they run in `make faults`."""

import errno
import json
import os
import signal
import subprocess
import time

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.runs.run_folder import replace_file, run_folder, seconds_since
from rewardlab.apps.runs.signals import Terminated, ended_by_signal
from rewardlab.rm.errors import DataError

from tests.conftest import PATIENCE
from tests.faults import __main__ as table_of_faults
from tests.faults.injection import INJECTIONS, QUIET, Injection, Seen, seen
from tests.faults.programs import Ended
from tests.faults.table import markdown, row

QUICK = ("checkpoint-bit-flipped", "model-weights-flipped", "loss-is-nan", "full-at-jsonl", "last-line-torn",
         "killed-within-a-checkpoint", "evaluation-killed", "judge-killed")  # fmt: skip
GOES_ON = """
from tests.faults.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


# ---- the table ----


def test_a_promise_that_does_not_hold_is_shown_and_ends_with_5(monkeypatch, tmp_path):
    def lost(world) -> Seen:
        return Seen(f"{world.folder}/run is gone | sorry", 1, {"exit code 3": False, "no traceback": True})

    def broken(world) -> Seen:
        raise FileNotFoundError("no such toy")

    toys = {"lost": lost, "broken": broken}
    made = {name: Injection(name, "toys", "a toy falls", "it is whole", one) for name, one in toys.items()}
    monkeypatch.setattr(table_of_faults, "INJECTIONS", made)
    monkeypatch.setattr(table_of_faults, "ready", lambda: None)
    assert table_of_faults.main(["--output", str(tmp_path / "out")]) == 5
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| lost | a toy falls | W/run is gone \\| sorry | 1 | it is whole | **NO**: not exit code 3 |" in page
    assert "no such toy | -1 | it is whole | **NO**: not could be tried (FileNotFoundError) |" in page
    assert page.startswith("# Faults\n\n2 faults were injected into running programs; in 0 nothing was lost")
    rows = json.loads((tmp_path / "out" / "faults.json").read_text())["faults"]
    assert [one["held"] for one in rows] == [False, False]


def test_what_the_user_saw_is_the_line_that_tells_and_a_traceback_is_a_failure():
    ended = Ended(3, "loading\nrewardlab train: /x: no room\nbye\n", "")
    found = seen(ended, ("no room",), 3, kept=True)
    assert found.sentence == "rewardlab train: /x: no room" and all(found.held.values())
    assert not all(seen(ended, ("no room",), 2).held.values())
    assert seen(ended._replace(said="Traceback (most recent call last):\n"), ("no",), 3).held["no traceback"] is False
    assert seen(ended._replace(code=0), (), 0).sentence == QUIET
    assert seen(ended, (), 0).held["exit code 0"] is False


def test_rows_have_no_paths_of_this_machine():
    one = Injection("a", "toys", "b", "c", lambda world: Seen("", 0, {}))
    made = row(one, Seen("/tmp/w7/run: process 12 on box", 2, {"d": True}), 1.26, {"/tmp/w7": "W", "box": "HOST"})
    assert (made["saw"], made["seconds"], made["held"]) == ("W/run: process PID on HOST", 1.3, True)
    assert "| a | b | W/run: process PID on HOST | 2 | c | yes |" in markdown([made], {"cores": 2}, "make faults")


def test_an_unknown_fault_is_told_with_what_is_close(monkeypatch):
    monkeypatch.setattr(table_of_faults, "INJECTIONS", {"loss-is-nan": None})
    with pytest.raises(SystemExit, match="no fault 'loss-is-nam'; did you mean 'loss-is-nan'"):
        table_of_faults.chosen(["loss-is-nam"])


def test_there_are_at_least_twenty_five_and_every_family_has_some():
    table_of_faults.ready()
    assert len(INJECTIONS) >= 25
    assert {one.family for one in INJECTIONS.values()} == {*table_of_faults.FAMILIES}


@pytest.mark.slow
def test_the_quick_injections_lose_nothing(script, tmp_path):
    """In a process of its own, as each is forked from one that has done nothing with torch."""
    words = script(GOES_ON, "--folder", tmp_path / "world", "--output", tmp_path / "out", "--only", *QUICK)
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    rows = json.loads((tmp_path / "out" / "faults.json").read_text())["faults"]
    assert {one["name"]: one["held"] for one in rows} == dict.fromkeys(QUICK, True), done.stderr
    assert done.returncode == 0


# ---- SIGTERM and full disks, where no training is ----


def _stopped_in(folder) -> None:
    with ended_by_signal(), folder as work:
        (work / "part").write_text("half the work")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)


def test_a_sigterm_closes_what_is_open_and_the_handler_of_before_comes_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated, match="nothing half-written was left"):
        _stopped_in(run_folder(str(tmp_path / "run"), {}, overwrite=False))
    assert signal.getsignal(signal.SIGTERM) is before and list(tmp_path.iterdir()) == []


def test_a_sigterm_says_resume_where_something_is_kept(tmp_path):
    with pytest.raises(Terminated, match="go on with the same command and --resume"):
        _stopped_in(run_folder(str(tmp_path / "run"), {}, overwrite=False, resume=False, keep="part"))
    assert [one.name for one in tmp_path.iterdir()] == ["run.partial"]


def test_the_command_line_ends_with_143(monkeypatch, capsys):
    monkeypatch.setattr(
        "rewardlab.apps.cli._run", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(PATIENCE)
    )
    assert main(["doctor"]) == 143
    assert capsys.readouterr().err.startswith("rewardlab doctor: ended by SIGTERM")


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    def full(path) -> None:
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    (tmp_path / "a").write_text("whole")
    with pytest.raises(DataError, match=r"no space left on device; its disk has \S+ \SB free"):
        replace_file(tmp_path / "a", full)
    assert (tmp_path / "a").read_text() == "whole" and [one.name for one in tmp_path.iterdir()] == ["a"]


def test_seconds_that_have_passed_do_not_follow_the_clock(monkeypatch):
    started, real = time.time(), time.time
    monkeypatch.setattr("time.time", lambda: real() - 86_400)
    assert 0 <= seconds_since(started) < PATIENCE
