"""One writer for a run folder, whatever becomes of the first."""

import os
import signal
import subprocess

import pytest
from rewardlab.apps.runs.run_folder import lock_file, only_writer, run_folder
from rewardlab.rm.errors import UsageError

HOLDS = """
import sys, time
from pathlib import Path
from rewardlab.apps.runs.run_folder import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(script, tmp_path):
    process = subprocess.Popen(script(HOLDS, tmp_path / "run"), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_writer_is_told_who_the_first_is_where_the_lock_says_it_and_touches_nothing(holder, tmp_path):
    work = tmp_path / "run.partial"
    work.mkdir()
    (work / "half").write_text("of the first")
    sentence = rf"run is being written by process {holder.pid} on \S+ since 20\d\d-\S+Z; wait"
    with pytest.raises(UsageError, match=sentence), run_folder(str(tmp_path / "run"), {}, overwrite=True):
        pytest.fail("two writers")
    assert (work / "half").read_text() == "of the first"
    lock_file(tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="is being written by another process"), only_writer(tmp_path / "run"):
        pytest.fail("two writers")


def test_a_killed_writer_leaves_the_folder_free(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock_file(tmp_path / "run").exists()
    with only_writer(tmp_path / "run"):
        assert f'"pid": {os.getpid()}' in lock_file(tmp_path / "run").read_text()
    assert not lock_file(tmp_path / "run").exists()


def test_a_holder_is_known_whatever_the_clock_says(monkeypatch, tmp_path):
    """The lock is the kernel's; what is in the file is for people."""
    monkeypatch.setattr("time.gmtime", lambda: (1970, 1, 1, 0, 0, 0, 3, 1, 0))
    with only_writer(tmp_path / "other"), only_writer(tmp_path / "run"):
        assert "1970-01-01T00:00:00Z" in lock_file(tmp_path / "run").read_text()
        with pytest.raises(UsageError, match="since 1970-01-01T00:00:00Z"), only_writer(tmp_path / "run"):
            pytest.fail("two writers")
