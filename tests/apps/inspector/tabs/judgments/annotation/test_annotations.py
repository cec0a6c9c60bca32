import hashlib
import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rewardlab.apps.inspector.tabs.judgments.annotation.annotation_html import annotations_html, progress
from rewardlab.apps.inspector.tabs.judgments.annotation.annotations import (
    add,
    annotate,
    case_annotations,
    current_annotations,
    file_of,
    read,
)
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.filters import START, filter_of
from rewardlab.apps.inspector.tabs.judgments.queries import open_run
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.ponds import MODEL, write_run


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def run(tmp_path) -> Path:
    return write_run(tmp_path / "runs" / "eval")


def shown(run: Path, case: str = "a2"):
    return item(open_run(run), MODEL, case)


def test_a_verdict_is_a_line_beside_the_run_and_the_run_stays_as_it_is(run):
    before = hashes(run)
    add(run, annotate(shown(run), "disagree", " Ada ", "an oak\nis <b>no</b> newt"))
    (line,) = (run.parent / "annotations" / "eval.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert told["case"] == "a2" and told["verdict"] == "disagree" and told["who"] == "Ada"
    assert told["note"] == "an oak\nis <b>no</b> newt" and told["outcome"] == "wrong" and told["scorer"] == MODEL
    assert len(told["when"]) == 20 and told["when"].endswith("Z")
    assert hashes(run) == before


def test_the_newest_stands_first_notes_are_escaped_and_verdicts_on_other_texts_are_counted(run):
    for who, case in (("Ada", "a2"), ("Bob", "a2"), ("Cy", "a3")):
        add(run, annotate(shown(run, case), "agree", who))
    assert [one.who for one in case_annotations(shown(run), read(run))] == ["Bob", "Ada"]
    html = annotations_html(shown(run), read(run))
    assert html.index("Bob") < html.index("Ada") and "Cy" not in html
    add(run, annotate(shown(run, "a4"), "tie", "<img src=x onerror=alert(1)>", "<script>alert(1)</script>"))
    html = annotations_html(shown(run, "a4"), read(run))
    assert "<script" not in html and "<img" not in html and "&lt;script&gt;" in html
    add(run, replace(annotate(shown(run, "a4"), "agree", "Ada"), texts="0" * 16))
    assert [one.verdict for one in case_annotations(shown(run, "a4"), read(run))] == ["tie"]
    assert "annotations of a run with other texts (1)" in annotations_html(shown(run, "a4"), read(run))


def test_annotations_of_other_texts_and_of_cases_that_are_gone_are_not_counted(run):
    opened = open_run(run)
    for case, who in (("a1", "Ada"), ("a1", "Bob"), ("a2", "Ada")):
        add(run, annotate(shown(run, case), "agree", who))
    add(run, replace(annotate(shown(run, "a3"), "tie", "Ada"), texts="0" * 16))
    add(run, replace(annotate(shown(run, "a2"), "tie", "Bob"), texts="0" * 16))
    add(run, replace(annotate(shown(run, "a4"), "tie", "Ada"), case="gone"))
    counted = current_annotations(opened, read(run))
    assert [(one.case, one.who) for one in counted] == [("a1", "Ada"), ("a1", "Bob"), ("a2", "Ada")]
    assert progress(counted, "Ada", 7).startswith(
        "2 of 7 cases by you; 2 by 2 readers; 1 cases by two or more readers: 100 %"
    )
    names = ("annotated", "unannotated")
    annotated, rest = (filter_of(opened, START._replace(scorer=MODEL, only=name), []) for name in names)
    assert (annotated.among, rest.without) == (["a1", "a2"], ["a1", "a2"])


def test_what_cannot_be_kept_is_refused(run):
    for verdict, who, note, sentence in (
        ("maybe", "Ada", "", "unknown verdict 'maybe'; choose one of agree, disagree, tie"),
        ("agree", "  ", "", "Fill in a name"),
        ("agree", "A" * 101, "", "the who is 101 characters long; shorten it to 100"),
        ("agree", "Ada", "n" * 10_001, "the note is 10,001 characters long; shorten it to 10,000"),
    ):
        with pytest.raises(UsageError, match=sentence):
            annotate(shown(run), verdict, who, note)


def test_a_line_that_was_cut_off_costs_only_itself(run):
    add(run, annotate(shown(run), "agree", "Ada"))
    path = file_of(run)
    path.write_bytes(path.read_bytes() + b'{"case": "a2", "verd')
    add(run, annotate(shown(run), "tie", "Bob"))
    assert [one.who for one in read(run)] == ["Ada", "Bob"]
    assert len(path.read_bytes().splitlines()) == 3


def _annotate_many(run: Path, who: str, annotation, start) -> None:
    start.wait()
    for number in range(25):
        add(run, replace(annotation, who=who, note=f"{number} " + who * 2000))


def test_two_visitors_at_once_lose_nothing(run):
    context = multiprocessing.get_context("fork")
    start, annotation = context.Event(), annotate(shown(run), "agree", "Ada")
    visitors = [context.Process(target=_annotate_many, args=(run, who, annotation, start)) for who in ("x", "y", "z")]
    for visitor in visitors:
        visitor.start()
    start.set()
    for visitor in visitors:
        visitor.join(60)
    said = read(run)
    assert len(said) == 75 and len(file_of(run).read_bytes().splitlines()) == 75
    for who in "xyz":
        assert [one.note.split()[0] for one in said if one.who == who] == [str(number) for number in range(25)]


def test_the_file_stands_beside_the_outermost_run(tmp_path):
    study = tmp_path / "studies" / "big"
    inner = write_run(study / "evals" / "rm")
    assert file_of(inner) == study / "evals" / "annotations" / "rm.jsonl"
    (study / "report.md").write_text("# big")
    (study / "config.yaml").write_text("name: big")
    assert file_of(inner) == tmp_path / "studies" / "annotations" / "big" / "evals" / "rm.jsonl"


def test_links_and_files_in_the_folder_s_place_are_not_written_through(run, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    file_of(run).parent.mkdir()
    os.symlink(victim, file_of(run))
    with pytest.raises(UsageError, match="eval.jsonl is a link"):
        add(run, annotate(shown(run), "agree", "Ada"))
    assert victim.read_text() == "mine"
    file_of(run).unlink()
    file_of(run).parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", file_of(run).parent)
    with pytest.raises(UsageError, match="annotations is a link"):
        add(run, annotate(shown(run), "agree", "Ada"))
    file_of(run).parent.unlink()
    file_of(run).parent.write_text("a file")
    with pytest.raises(DataError, match="eval.jsonl cannot be written"):
        add(run, annotate(shown(run), "agree", "Ada"))


def test_what_is_said_of_a_run_stays_when_it_or_its_study_is_finished(tmp_path):
    assert file_of(tmp_path / "eval.partial") == file_of(tmp_path / "eval")
    study = tmp_path / "study.partial"
    run = write_run(study / "one")
    (study / "report.md").write_text("# study")
    (study / "config.yaml").write_text("{}")
    add(run, annotate(item(open_run(run), MODEL, "a1"), "tie", "Ada"))
    study = study.rename(tmp_path / "study")
    assert [one.who for one in read(study / "one")] == ["Ada"]
