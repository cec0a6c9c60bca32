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
from tests.faults.injection import INJECTIONS, Injection, Seen

QUICK = ("checkpoint-bit-flipped", "model-weights-flipped", "loss-is-nan", "full-at-jsonl", "last-line-torn",
         "killed-within-a-checkpoint", "evaluation-killed", "judge-killed")  # fmt: skip
GOES_ON = """
from tests.faults.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


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


@pytest.mark.slow
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


def _stopped_in(folder) -> None:
    with ended_by_signal(), folder as work:
        (work / "part").write_text("half the work")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)


def test_a_sigterm_closes_what_is_open_and_says_resume_where_something_is_kept(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated, match="no partial output was left"):
        _stopped_in(run_folder(str(tmp_path / "run"), {}, overwrite=False))
    assert signal.getsignal(signal.SIGTERM) is before and list(tmp_path.iterdir()) == []
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
