import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from rewardlab.apps.inspector.site import add_annotations
from rewardlab.apps.inspector.tabs.judgments.annotation.annotations import add, annotate, read
from rewardlab.apps.inspector.tabs.judgments.annotation.exchange import import_annotations
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.export import export
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, open_run
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.ponds import MODEL, write_run

ADA = "2f4a5b6c-0000-4000-8000-000000000001"


@pytest.fixture
def run(tmp_path):
    """A run with annotations by two readers, one of whom changed her mind."""
    opened = open_run(write_run(tmp_path / "runs" / "eval"))
    for case, verdict, who, note in (
        ("a2", "tie", "Ada", ""),
        ("a2", "disagree", "Ada", "no"),
        ("a3", "tie", "Bob", ""),
    ):
        stored = annotate(item(opened, MODEL, case), verdict, who, note, blind=who == "Bob")
        add(opened.folder, replace(stored, when=f"2026-01-0{len(note) + 1}T00:00:00Z"))
    return opened


@pytest.fixture
def other(tmp_path):
    """The same run without annotations."""
    return open_run(write_run(tmp_path / "others" / "eval"))


def exported(run, path: Path, format: str = "argilla.json", labels: str = "data") -> Path:
    export(run, Filter(MODEL), format, path, read(run.folder), labels)
    return path


def records(run, path: Path) -> dict[str, dict]:
    return {record["id"]: record for record in json.loads(exported(run, path).read_text())}


def test_a_record_has_the_texts_the_scorers_verdict_and_the_newest_annotation_of_each_reader(run, tmp_path):
    found = records(run, tmp_path / "r.json")
    assert [*found] == ["a1", "a2", "a3", "a4", "a5", "a6", "a7"]
    fields = {"prompt": "user: Name a tree", "response_1": "newt", "response_2": "oak", "label": "response_2"}
    assert found["a2"]["fields"] == fields and found["a7"]["fields"]["label"] == "response_1, response_3"
    assert found["a2"]["suggestions"] == {"verdict": {"value": "disagree", "score": None, "agent": MODEL}}
    assert found["a5"]["suggestions"] == {} and found["a5"]["metadata"] == {
        "scorer": MODEL,
        "outcome": "abstained",
        "subset": "safety",
    }, "an abstention suggests nothing"
    (verdict,), (note,) = (found["a2"]["responses"][question] for question in ("verdict", "note"))
    assert (verdict["value"], note["value"]) == ("disagree", "no") and verdict["user_id"] == note["user_id"]
    assert str(uuid.UUID(verdict["user_id"])) == verdict["user_id"]
    assert found["a3"]["responses"].keys() == {"verdict"}, "an empty note is no response"
    assert found["a2"]["metadata"]["readers"] == ["Ada"] and found["a3"]["metadata"]["blind"] == ["Bob"]
    assert {*found["a2"]} == {"id", "fields", "metadata", "suggestions", "responses", "vectors"}


def test_records_and_lines_come_back_as_the_annotations_that_they_were(run, other, tmp_path):
    newest = read(run.folder)[1:]
    assert import_annotations(other, str(exported(run, tmp_path / "r.json"))) == 2
    assert read(other.folder) == newest
    lines = exported(run, tmp_path / "a.jsonl", "annotations.jsonl", "readers")
    assert import_annotations(other, str(lines)) == 0, "the one that a record does not have is older"
    for source in (lines, tmp_path / "r.json"):
        assert import_annotations(run, str(source)) == 0, "nothing is added twice"
    third = open_run(write_run(tmp_path / "third" / "eval"))
    assert import_annotations(third, str(lines)) == 3 and read(third.folder) == read(run.folder)


def test_responses_of_a_server_are_annotations_of_its_users(other, run, tmp_path):
    record = records(run, tmp_path / "r.json")["a4"] | {"metadata": {}}
    by_question = {"verdict": [{"value": "agree", "user_id": ADA}], "note": [{"value": "yes", "user_id": ADA}]}
    values = {"verdict": {"value": "agree"}, "note": {"value": "yes"}}
    by_user = [
        {"user_id": ADA, "values": values, "status": "submitted"},
        {"user_id": "b", "values": {"verdict": {"value": "tie"}}, "status": "discarded"},
    ]
    for responses, new in ((by_question, 1), (by_user, 0)):
        (tmp_path / "s.json").write_text(json.dumps([record | {"responses": responses}]))
        assert import_annotations(other, str(tmp_path / "s.json")) == new
    (annotation,) = read(other.folder)
    assert (annotation.case, annotation.verdict, annotation.who, annotation.note) == ("a4", "agree", ADA, "yes")
    assert annotation.outcome == "tie" and annotation.scorer == MODEL and annotation.when.startswith("20")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"id": "gone"}, "'gone' is no case of eval"),
        ({"fields": {"prompt": "another"}}, "the texts of case 'a2' are not those of eval"),
        ({"responses": {"verdict": [{"value": "maybe", "user_id": ADA}]}}, "unknown verdict 'maybe'; choose one of a"),
        ({"responses": {"best": [{"value": "a", "user_id": ADA}]}}, f"user {ADA} has best but no 'verdict'"),
        ({"responses": {"verdict": [{"value": "tie"}]}}, "'user_id' is missing; export the file again"),
        ({"responses": {"verdict": "tie"}}, "correct or remove the row, nothing was imported"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_and_nothing_is_added(other, run, tmp_path, change, sentence):
    rows = [records(run, tmp_path / "r.json")[case] for case in ("a3", "a2")]
    (tmp_path / "s.json").write_text(json.dumps([rows[0], rows[1] | change]))
    with pytest.raises(DataError, match="s.json: row 2: ") as raised:
        import_annotations(other, str(tmp_path / "s.json"))
    assert sentence in str(raised.value) and read(other.folder) == []


def test_a_line_that_is_no_annotation_of_the_run_is_refused(other, run, tmp_path):
    first = json.loads(exported(run, tmp_path / "a.jsonl", "annotations.jsonl", "readers").read_text().splitlines()[0])
    for line, sentence in (
        ({"prompt": "q"}, "neither a record of Argilla (dataset.records.to_json) nor an annotation of the inspector"),
        (first | {"texts": "0" * 16}, "the texts of case 'a2' are not those of eval, but of another run"),
        ({"case": "a2", "verdict": "tie"}, "'note' is missing"),
    ):
        (tmp_path / "b.jsonl").write_text(json.dumps(line) + "\n")
        with pytest.raises(DataError, match="b.jsonl:1: ") as raised:
            import_annotations(other, str(tmp_path / "b.jsonl"))
        assert sentence in str(raised.value)


def test_annotations_are_added_to_one_run_that_is_named(run, other, tmp_path):
    source = str(exported(run, tmp_path / "r.json"))
    assert add_annotations(str(other.folder), source) == 2 and len(read(other.folder)) == 2
    with pytest.raises(UsageError, match="needs one run with judgments, and .* has 2; name one of them"):
        add_annotations(str(tmp_path), source)
