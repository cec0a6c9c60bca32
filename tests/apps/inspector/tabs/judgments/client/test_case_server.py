import gradio as gr
import pytest
from rewardlab.apps.inspector.components import Site
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.tabs.judgments import view as judgments
from rewardlab.apps.inspector.tabs.judgments.client.case_server import server_functions
from rewardlab.apps.inspector.tabs.judgments.filters import FilterValues

from tests.apps.inspector.ponds import MODEL, write_run

QUERY = {"run": "eval", "scorer": MODEL, "outcome": "wrong", "order": "items", "only": []}
"""Of the wrong cases: a1, a2, a7."""


def values(run: str) -> list:
    """The controls' values that ask for them."""
    return [*FilterValues(run, MODEL, "wrong", "", "", "", "", "", [], "items")]


@pytest.fixture
def site(tmp_path) -> Site:
    config = InspectConfig(run=str(tmp_path))
    with gr.Blocks() as page:
        return Site(page, open_root(tmp_path), config, Models(config))


def test_the_script_gets_rows_cases_and_sentences(site, tmp_path):
    write_run(tmp_path / "eval")
    rows, case, annotate = server_functions(site)
    request = {"query": QUERY, "marked": ["a1"], "reader": "Ada"}
    found = rows(request | {"start": 1, "size": 5})
    assert (found["cases"], found["start"], found["total"], len(found["rows"])) == (["a2", "a7"], 1, 3, 2)
    assert found["counts"] == {"all": 7, "wrong": 3, "right": 2, "tie": 1, "abstained": 1}
    assert case(request | {"position": 2})["case"] == "a7" and case(request | {"case": "a2"})["position"] == 1
    assert case(request | {"position": 3})["case"] is None
    assert rows(request | {"query": QUERY | {"only": ["marked"]}, "start": 0, "size": 5})["cases"] == ["a1"]
    assert annotate(request | {"case": "a1", "verdict": "tie"})["progress"] == "1 of 7 cases by you; 1 by 1 reader"
    assert rows(request | {"query": QUERY | {"only": ["unannotated"]}, "start": 0, "size": 5})["cases"] == ["a2", "a7"]
    for wrong, sentence in (
        ({"query": QUERY | {"run": "../eval"}, "position": 0}, "there is no run '../eval' here"),
        (request | {"position": "x"}, "malformed"),
        ({"query": []}, "malformed"),
        (request | {"query": {"run": ["eval"]}, "position": 0}, "filter values must be strings"),
    ):
        assert sentence in case(wrong)["error"]


def test_values_that_no_run_has_are_not_said_to_be_damage(site, tmp_path):
    write_run(tmp_path / "eval")
    rows, *_ = server_functions(site)
    start, every = {"start": 0, "size": 3}, QUERY | {"outcome": "all"}
    assert "has an unpaired surrogate" in rows({"query": every | {"search": "\ud800"}, **start})["error"]
    assert rows({"query": every | {"length": f"0-{10**30}"}, **start})["total"] == 7
    assert rows({"query": every, "start": 10**30, "size": 3})["total"] == 7


def test_the_case_stays_while_its_run_is_written_and_when_it_gets_its_name(site, tmp_path):
    growing = write_run(tmp_path / "later.partial")
    look = judgments._reload_run(site)
    run, _, scorer, outcome, *_, cases, timer = look(*values("later.partial"), "a7", {})
    assert cases["position"] == 2 and cases["again"] and timer.active
    assert run == gr.skip() == outcome  # and of the lists only the choices: the reader may have chosen others
    assert [*scorer.constructor_args] == ["choices"]
    growing.rename(tmp_path / "later")
    run, read, scorer, *_, cases, timer = look(*values("later.partial"), "a7", {})
    assert run.value == read == "later" and scorer.value == MODEL and cases["position"] == 2 and not timer.active


def test_a_run_that_is_finished_while_it_is_read_again_is_followed(site, tmp_path, monkeypatch):
    growing, opened = write_run(tmp_path / "later.partial"), judgments._open

    def finish(*asked):
        if growing.exists():
            growing.rename(tmp_path / "later")
        return opened(*asked)

    monkeypatch.setattr(judgments, "_open", finish)
    with pytest.warns(UserWarning, match="There is no run"):
        run, *_, cases, _ = judgments._reload_run(site)(*values("later.partial"), "a7", {})
    assert run.value == "later" and cases["position"] == 2
