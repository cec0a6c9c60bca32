"""What run folders are written with."""

import json
import math

import pytest
from rewardlab.apps.runs.run_folder import run_folder, write_manifest, write_rows
from rewardlab.rm.errors import UsageError


def test_rows_are_a_line_each_with_null_for_no_finite_number_and_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, ({"n": n, "text": "é|"} for n in (1.5, math.nan)))
    assert path.read_text(encoding="utf-8") == '{"n": 1.5, "text": "é|"}\n{"n": null, "text": "é|"}\n'
    path = tmp_path / "rows.jsonl"
    write_rows(path, [{"kept": 1}])
    with pytest.raises(TypeError):
        write_rows(path, [{"fine": 1}, {"bad": object()}])
    assert json.loads(path.read_text()) == {"kept": 1} and [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_setting_that_is_not_a_number_is_kept_and_equal_to_itself_in_a_resumed_run(tmp_path):
    settings = {"no_verdict": math.nan, "limits": [math.inf]}
    with pytest.raises(KeyboardInterrupt), run_folder(f"{tmp_path}/a", settings, overwrite=False, keep="*") as work:
        raise KeyboardInterrupt
    with run_folder(f"{tmp_path}/a", settings, overwrite=False, resume=True) as work:
        write_manifest(work, data=[], seed=0, started=0.0, settings=settings, accuracy=math.nan)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["settings"] == {"no_verdict": "nan", "limits": ["inf"]} and manifest["accuracy"] is None


def write_run(output, text: str) -> None:
    with run_folder(str(output), {}, overwrite=True) as work:
        (work / "text").write_text(text)


def test_messages_name_a_folder_as_it_is_seen_from_the_working_directory(tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "a", "text")
    monkeypatch.chdir(tmp_path)
    for output in ("runs/a", tmp_path / "runs" / "a"):
        with pytest.raises(UsageError, match="^runs/a exists already"), run_folder(str(output), {}, overwrite=False):
            pytest.fail("replaced")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="^/.*/runs/a exists"), run_folder("../runs/a", {}, overwrite=False):
        pytest.fail("replaced")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_the_run_is_written_where_it_leads(tmp_path, exists):
    (tmp_path / "disk").mkdir()
    run, link = tmp_path / "disk" / "run", tmp_path / "link"
    if exists:
        write_run(run, "old")
    link.symlink_to(run)
    for text in ("new", "newer"):
        write_run(link, text)
        assert link.readlink() == run and not run.is_symlink() and (run / "text").read_text() == text
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "link"} and [*run.parent.iterdir()] == [run]
