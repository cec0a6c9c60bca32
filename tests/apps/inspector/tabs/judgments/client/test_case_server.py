import json
import re
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest
from rewardlab.apps.inspector.components import Site
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.tabs.judgments.annotation.annotations import add, annotate, read
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.client import case_server
from rewardlab.apps.inspector.tabs.judgments.export import export
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, open_run

from tests.apps.inspector.ponds import MODEL, NULL, write_run

QUERY = {"run": "eval", "scorer": MODEL, "outcome": "wrong", "order": "items", "only": ""}
"""Of the wrong cases: a1, a2, a7."""


Functions = dict[str, Callable[[Any], dict[str, Any]]]


def functions(site: Site) -> Functions:
    """The functions that the page's script calls, by name."""
    return {function.__name__: function for function in case_server.functions(site)}


@pytest.fixture
def site(tmp_path) -> Site:
    config = InspectConfig(run=str(tmp_path))
    with gr.Blocks() as page:
        return Site(page, open_root(tmp_path), config, Models(config))


def test_the_script_gets_rows_cases_and_sentences(site, tmp_path):
    write_run(tmp_path / "eval")
    rows, case, store = (functions(site)[name] for name in ("rows", "case", "annotate"))
    request = {"query": QUERY, "marked": ["a1"], "reader": "Ada"}
    found = rows(request | {"start": 1, "size": 5})
    assert (found["cases"], found["start"], found["total"], len(found["rows"])) == (["a2", "a7"], 1, 3, 2)
    assert found["counts"] == {"all": 7, "wrong": 3, "right": 2, "tie": 1, "abstained": 1, "annotated": 0}
    assert case(request | {"position": 2})["case"] == "a7" and case(request | {"case": "a2"})["position"] == 1
    assert case(request | {"position": 3})["case"] is None
    assert rows(request | {"query": QUERY | {"only": "marked"}, "start": 0, "size": 5})["cases"] == ["a1"]
    assert case(request | {"position": 0})["exported"] == 0
    for verdict, label in (("tie", "Export 1 annotation of eval"), ("agree", "Export 2 annotations of eval")):
        stored = store(request | {"case": "a1", "verdict": verdict})
        assert (stored["progress"], stored["label"]) == ("1 of 7 cases by you; 1 by 1 reader", label)
    assert stored["annotated"] == 1 == rows(request | {"start": 0, "size": 5})["counts"]["annotated"]
    exported = functions(site)["give_annotations"](request | {"query": QUERY | {"outcome": "right"}})
    assert exported["name"] == "eval.annotations.jsonl", "all annotations, whatever the filter"
    assert [json.loads(line)["verdict"] for line in exported["text"].splitlines()] == ["tie", "agree"]
    assert rows(request | {"query": QUERY | {"only": "unannotated"}, "start": 0, "size": 5})["cases"] == ["a2", "a7"]
    for wrong, sentence in (
        ({"query": QUERY | {"run": "../eval"}, "position": 0}, "there is no run '../eval' here"),
        (request | {"position": "x"}, "malformed"),
        ({"query": []}, "malformed"),
        (request | {"query": {"run": ["eval"]}, "position": 0}, "filter values must be strings"),
    ):
        assert sentence in case(wrong)["error"]


def test_values_that_no_run_has_are_not_said_to_be_damage(site, tmp_path):
    write_run(tmp_path / "eval")
    rows = functions(site)["rows"]
    start, every = {"start": 0, "size": 3}, QUERY | {"outcome": "all"}
    assert "has an unpaired surrogate" in rows({"query": every | {"search": "\ud800"}, **start})["error"]
    assert rows({"query": every | {"length": f"0-{10**30}"}, **start})["total"] == 7
    assert rows({"query": every, "start": 10**30, "size": 3})["total"] == 7


def test_the_case_stays_while_its_run_is_written_and_when_it_gets_its_name(site, tmp_path):
    growing, open_address = write_run(tmp_path / "later.partial"), functions(site)["open"]
    request = {"query": QUERY | {"run": "later.partial", "item": "a7"}, "size": 5}
    found = open_address(request | {"known": "later.partial"})
    assert found["position"] == 2 and found["growing"] and found["cases"] == ["a1", "a2", "a7"]
    assert "toolbar" not in found, "the reader may be typing there"
    growing.rename(tmp_path / "later")
    found = open_address(request | {"known": "later.partial"})
    assert found["query"]["run"] == "later" and found["position"] == 2 and not found["growing"] and "toolbar" in found
    assert functions(site)["case"](request | {"case": "a7"})["case"] == "a7"


def test_an_address_of_what_is_not_there_is_told_with_what_is_shown_instead(site, tmp_path):
    write_run(tmp_path / "eval")
    open_address = functions(site)["open"]
    found = open_address({"query": {"run": "../gone", "item": "<none>"}, "size": 5})
    assert found["note"].startswith("There is no run '../gone' here") and found["query"]["run"] == "eval"
    assert "The case '<none>' does not pass this filter" in found["note"] and found["total"] == 7
    found = open_address({"query": {"run": "eval", "margin": "<b>"}, "size": 5})
    assert "got &#x27;&lt;b&gt;&#x27;" in found["refused"] and 'value="&lt;b&gt;"' in found["toolbar"]


def test_an_annotation_that_is_sent_again_is_stored_once(site, tmp_path):
    folder = write_run(tmp_path / "eval")
    store = functions(site)["annotate"]
    request = {"query": QUERY, "case": "a1", "verdict": "tie", "reader": "Ada", "when": "2026-01-31T12:00:00Z"}
    for _ in range(2):
        assert "error" not in store(request)
    store(request | {"note": "another"})
    assert [annotation.note for annotation in read(folder)] == ["", "another"]
    assert "must be written as 2026-01-31T12:00:00Z" in store(request | {"when": "now"})["error"]


def test_annotations_are_found_by_verdict_reader_and_note_and_marked_in_the_list(site, tmp_path):
    run = open_run(write_run(tmp_path / "eval"))
    for case, verdict, who, note in (
        ("a1", "disagree", "Ada", "<b>Wrong"),
        ("a2", "agree", "Bob", ""),
        ("a3", "tie", "Ada", ""),
    ):
        add(run.folder, annotate(item(run, MODEL, case), verdict, who, note))
    every, rows = QUERY | {"outcome": "all"}, functions(site)["rows"]

    def found(**values: str) -> list[str]:
        return rows({"query": every | values, "start": 0, "size": 9})["cases"]

    assert found(verdict="disagree") == ["a1"] and found(reader="ada") == ["a1", "a3"] and found(note="WRONG") == ["a1"]
    assert found(reader="ada", verdict="agree") == [] and found(verdict="nonsense") == found()
    listed = rows({"query": every, "start": 0, "size": 9})["rows"]
    assert ">No</span>" in listed[0] and "Ada: &lt;b&gt;Wrong" in listed[0] and "badge" not in listed[3]
    assert "badge" not in rows({"query": every, "start": 0, "size": 9, "blind": True})["rows"][0]
    add(run.folder, annotate(item(run, MODEL, "a4"), "tie", "Ada", 'a "tie"\x1b\u202e ' + "very " * 99))
    (badge,) = re.findall('<span class="badge".*?</span>', rows({"query": every, "start": 3, "size": 1})["rows"][0])
    assert re.fullmatch('<span class="badge" title="Ada: a &quot;tie&quot;U.001BU.202E [very ]*">Tie</span>', badge)


def test_labels_that_every_model_is_against_come_first(site, tmp_path):
    """One model: it is against a1, a2 and a7, and nearest to its margin of 0 in a2; the baseline is no model."""
    write_run(tmp_path / "eval")
    rows, query = functions(site)["rows"], QUERY | {"outcome": "all"}
    found = rows({"query": query | {"order": "doubtful"}, "start": 0, "size": 9})["cases"]
    assert found == ["a2", "a1", "a7", "a4", "a6", "a3", "a5"]
    assert rows({"query": query | {"only": "against"}, "start": 0, "size": 9})["cases"] == ["a1", "a2", "a7"]
    assert rows({"query": query | {"only": "against", "scorer": NULL}, "start": 0, "size": 9})["total"] == 3


def test_the_bar_of_the_most_wrong_case_is_full_and_of_others_shorter(site, tmp_path):
    """Beyond the 95th percentile all bars were alike, and these stood first."""
    write_run(tmp_path / "eval")
    found = functions(site)["rows"]({"query": QUERY | {"order": "worst"}, "start": 0, "size": 9})
    assert found["cases"] == ["a7", "a1", "a2"]
    assert [row.split("width:")[1].split("%")[0] for row in found["rows"]] == ["50.0", "16.7", "2.1"]


def test_annotations_of_a_file_are_added_and_a_damaged_file_is_told(site, tmp_path):
    run, add_file = open_run(write_run(tmp_path / "eval")), functions(site)["add_annotations"]
    said = [annotate(item(run, MODEL, "a1"), "tie", "Ada", "so")]
    export(run, Filter(MODEL), "annotations.jsonl", tmp_path / "a.jsonl", said, "readers")
    request = {"query": QUERY, "name": "a.jsonl", "text": (tmp_path / "a.jsonl").read_text()}
    assert add_file(request) == {"added": 1} and read(run.folder) == said and add_file(request) == {"added": 0}
    wrong = add_file(request | {"text": json.dumps({"case": "a1"}) + "\n", "name": "<b>.jsonl"})
    assert wrong["error"].startswith("<b>.jsonl:1: ") and str(tmp_path) not in wrong["error"]


def test_guidelines_are_shown_as_inert_text(site, tmp_path):
    write_run(tmp_path / "eval")
    case = functions(site)["case"]
    assert case({"query": QUERY, "case": "a1"})["guidelines"] == ""
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "guidelines.md").write_text("**Prefer** <img src=x onerror=window.hacked=1>")
    shown = case({"query": QUERY, "case": "a1"})["guidelines"]
    assert "<strong>Prefer</strong>" in shown and "<img" not in shown
