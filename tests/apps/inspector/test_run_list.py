import json
import os
from pathlib import Path

import pytest
from rewardlab.apps.inspector.run_list import ANSWERS, JUDGED, STUDY, TRAINED, is_whole, open_root, stamp
from rewardlab.rm.errors import UsageError

from tests.apps.inspector.ponds import write_run


@pytest.fixture
def root(tmp_path) -> Path:
    """An evaluation, one that is being written, an RL run, a study with an evaluation, answers, and other things."""
    runs = tmp_path / "runs"
    write_run(runs / "eval")
    write_run(runs / "deep" / "er" / "eval")
    (runs / "later.partial").mkdir()
    (runs / "later.partial" / "items.parquet").write_bytes(b"PAR1")
    (runs / "rl").mkdir()
    (runs / "rl" / "steps.jsonl").write_text("{}\n")
    (runs / "study").mkdir()
    (runs / "study" / "report.md").write_text("# study")
    (runs / "study" / "manifest.json").write_text("{}")
    write_run(runs / "study" / "evaluations" / "one")
    (runs / "study" / "evaluations" / "one" / "manifest.json").unlink()  # the study has one for all that it holds
    (runs / "answers.jsonl").write_text(json.dumps({"completion": "x", "tokens": [], "base": []}) + "\n")
    (runs / "other.jsonl").write_text('{"prompt": "x"}\n')
    (runs / ".hidden").mkdir()
    write_run(runs / ".hidden" / "eval")
    return runs


def test_every_kind_is_found_under_its_path(root):
    found = {entry.id: (entry.kind, entry.growing) for entry in open_root(root).entries()}
    judged = {"deep/er/eval", "eval", "study/evaluations/one"}
    others = {"answers.jsonl": (ANSWERS, False), "rl": (TRAINED, True), "study": (STUDY, False)}
    assert found == dict.fromkeys(judged, (JUDGED, False)) | others | {"later.partial": (JUDGED, True)}
    (alone,) = open_root(root / "eval").entries(JUDGED)
    assert (alone.id, alone.label) == (".", "eval"), "a run that is opened itself was called by a dot"


def test_an_evaluation_is_finished_when_its_study_is(root):
    (root / "study" / "manifest.json").rename(root / "manifest")
    (root / "study" / "config.yaml").write_text("{}")
    assert open_root(root).entry("study/evaluations/one").growing
    (root / "manifest").rename(root / "study" / "manifest.json")
    assert not open_root(root).growing("study/evaluations/one")
    (root / "study").rename(root / "study.partial")
    assert open_root(root).growing("study.partial/evaluations/one")


def test_a_run_appears_as_it_is_written_and_is_followed_to_its_name_when_it_is_finished(root):
    opened = open_root(root)
    assert opened.followed("later.partial", JUDGED) == "later.partial" and opened.growing("later.partial")
    (root / "later.partial").rename(root / "later")
    assert opened.followed("later.partial", JUDGED) == "later"
    assert opened.followed("study.partial/evaluations/one", JUDGED) == "study/evaluations/one"
    assert opened.followed("gone.partial", JUDGED) == "gone.partial" and opened.followed(None, JUDGED) is None
    assert "new" not in [entry.id for entry in opened.entries(JUDGED)]
    write_run(root / "new")
    assert opened.find("new", JUDGED) == root / "new"


def test_only_listed_names_open_anything(root, tmp_path):
    opened, missing = open_root(root), "there is no run .* here; choose a run in the list"
    ids = ("..", "../runs/eval", "eval/..", "eval/../eval", "./eval", "eval/", "/etc/passwd", "", None, "eval\0")
    for id in (*ids, ".hidden/eval", str(root / "eval")):
        with pytest.raises(UsageError, match=missing):
            opened.find(id)
    with pytest.raises(UsageError, match=missing):
        opened.find("eval", TRAINED)
    with pytest.raises(UsageError, match="no run folder .*nowhere"):
        open_root(tmp_path / "nowhere")


def test_a_linked_run_is_not_there(root, tmp_path):
    outside = write_run(tmp_path / "outside" / "secret")
    os.symlink(outside, root / "linked")
    os.symlink(tmp_path / "outside", root / "parent")
    os.symlink(root / "answers.jsonl", root / "linked.jsonl")
    assert not [entry.id for entry in open_root(root).entries() if "linked" in entry.id or "parent" in entry.id]
    with pytest.raises(UsageError, match="there is no run 'linked'"):
        open_root(root).find("linked")


def test_a_link_in_a_run_closes_it_but_a_root_may_be_reached_through_one(root, tmp_path):
    os.symlink(root, tmp_path / "shortcut")
    assert open_root(tmp_path / "shortcut").find("eval") == root / "eval"
    (tmp_path / "secret").write_text("secret")
    for name in ("items.parquet", "report.md", "extra/deep.txt"):
        path = write_run(root / f"holds-{Path(name).stem}") / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.symlink(tmp_path / "secret", path)
        with pytest.raises(UsageError, match="is a link, and links are not followed"):
            open_root(root).find(f"holds-{Path(name).stem}")


def test_a_run_is_whole_with_a_summary_and_both_tables_and_its_stamp_changes_with_a_file(tmp_path):
    assert is_whole(write_run(tmp_path / "whole"))
    for name, cut in (("summary.json", 3), ("items.parquet", 100), ("scores.parquet", 2), ("scores.parquet", None)):
        path = write_run(tmp_path / f"{name}-{cut}") / name
        path.unlink() if cut is None else path.write_bytes(path.read_bytes()[:cut])
        assert not is_whole(path.parent)
    before = stamp(tmp_path, ["a"])
    (tmp_path / "a").write_text("1")
    assert before == ((0, 0),) and stamp(tmp_path, ["a"]) != before
