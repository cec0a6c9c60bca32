"""The tab of judgments in a real browser, over hand-made runs."""

import hashlib
import itertools
import json
import shutil
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import gradio as gr
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.commands.inspect.settings import InspectConfig
from rewardlab.apps.inspector import run_list as runs_of
from rewardlab.apps.inspector.components import Site
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.tabs.judgments import view as judgments
from rewardlab.apps.inspector.tabs.judgments.client import case_server
from rewardlab.apps.inspector.tabs.judgments.client.case_server import server_functions
from rewardlab.apps.inspector.tabs.judgments.explanation import view as why
from rewardlab.apps.inspector.tabs.judgments.filters import Asked
from rewardlab.judges.types import Case
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.types import user_turn

from tests.apps.inspector.acts import again, choose, expect_case, expect_cases, expect_place, mark, outcomes, pick
from tests.apps.inspector.evaluations import write_evaluation
from tests.apps.inspector.garden_models import save_linear
from tests.apps.inspector.ponds import HOSTILE, MODEL, NULL, write_run
from tests.conftest import PATIENCE

WRONG = tuple(f"{name}{copy}" for copy in ("", "-1", "-2", "-3") for name in ("a1", "a2", "a7"))
ITEM = "#case .answer"
NO_RUN = "text=There is no run '../../etc/passwd' here"  # a note that is gone after some seconds


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The seven cases four times: 12 wrong, 8 right, 4 ties, 4 abstained. Then runs that cannot be shown."""
    folder = tmp_path_factory.mktemp("place") / "runs"
    write_run(folder / "eval", copies=4)
    half, old = write_run(folder / "half"), write_run(folder / "old")
    (half / "items.parquet").write_bytes((half / "items.parquet").read_bytes()[:80])
    pq.write_table(pq.read_table(old / "scores.parquet").drop_columns(["margin"]), old / "scores.parquet")
    (write_run(folder / "unsummed") / "summary.json").unlink()
    return folder


@pytest.fixture(scope="module")
def address(runs, served) -> str:
    return served(runs)


def test_filters_narrow_what_is_shown(visit, address):
    page = visit(address, "?tab=judgments", ready=ITEM, height=1200)
    expect_place(page, "1 of 12")
    expect_cases(page, *WRONG)
    assert outcomes(page) == {"wrong"} and page.get_by_text("tie (4)").is_visible()
    pick(page, "abstained (4)")
    expect_cases(page, "a5", "a5-1", "a5-2", "a5-3")
    assert outcomes(page) == {"abstained"}
    page.locator("#case", has_text="abstained: no score").wait_for()
    pick(page, "all (28)")
    expect_place(page, "1 of 28")
    page.get_by_label("Search").fill("name a ")
    expect_place(page, "1 of 16")
    choose(page, "Sort", "smallest |margin| first")
    expect_cases(page, *(f"{name}{copy}" for name in ("a4", "a6", "a2", "a3") for copy in ("", "-1", "-2", "-3")))
    page.get_by_role("button", name="More filters").click()
    margin = page.get_by_label("Largest |margin|")
    margin.fill("<b>low")
    page.locator("#case .note", has_text="empty for any; got '<b>low'").wait_for()
    margin.fill("0.125")
    expect_place(page, "1 of 12")
    page.get_by_label("Response length").fill("5 to 9")
    page.locator("#case .note", has_text="a range of characters such as 100-200").wait_for()
    page.get_by_label("Response length").fill("5-9")  # of heron, in a3, which is not among them by its margin
    page.locator("#case", has_text="No case passes").wait_for()
    page.get_by_label("Response length").fill("")
    page.get_by_label("Length gap").fill("-1")
    expect_cases(page, "a2", "a2-1", "a2-2", "a2-3")
    page.get_by_label("Search").fill("no such text")
    page.locator("#case", has_text="No case passes").wait_for()
    expect_cases(page)
    for label in ("Search", "Largest |margin|", "Length gap"):
        page.get_by_label(label).fill("")
    expect_place(page, "1 of 28")
    choose(page, "Subset", "hard (4)")
    expect_cases(page, "a7", "a7-1", "a7-2", "a7-3")


def test_hostile_names_and_texts_are_text_and_a_row_opens_its_case(visit, address):
    page = visit(address, "?tab=judgments", ready=ITEM)
    page.get_by_role("button", name="Raw").click()
    page.locator("#case-raw[aria-pressed=true]").wait_for()
    page.wait_for_function("text => document.querySelector('#case .prompt .text')?.innerText === text", arg=HOSTILE)
    assert "Good <b>moss</b>" in page.locator(ITEM).first.inner_text()
    page.locator("#cases .row[data-case=a2]").click()
    expect_place(page, "2 of 12")
    page.locator("#case .prompt", has_text="Name a tree").wait_for()
    newt, oak = page.locator(ITEM).all()
    assert "newt" in newt.inner_text() and "right" not in newt.inner_text()
    assert "oak" in oak.inner_text() and "✓ right" in oak.inner_text()
    left, right = newt.bounding_box(), oak.bounding_box()
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    page.get_by_role("button", name="Word diff").click()
    page.locator("#case ins", has_text="oak").wait_for()
    assert page.locator("#case del").inner_text() == "newt"
    choose(page, "Scorer", f"{NULL} (baseline)")
    page.locator("#case", has_text="No case passes").wait_for()
    pick(page, "right (28)")
    expect_place(page, "1 of 28")
    page.locator("#case tr.mine", has_text=NULL).wait_for()
    page.get_by_role("button", name="Report").click()
    page.locator("#report", has_text="Seven cases").wait_for()
    assert page.locator("#report script").count() == 0


def test_keys_and_buttons_walk_and_bookmark(visit, address):
    page = visit(address, "?tab=judgments", ready=ITEM)
    for button, position in [("previous case", 1), ("next case", 2), ("previous case", 1)]:
        page.get_by_role("button", name=button).click()
        expect_place(page, f"{position} of 12")
    for key, position in [("j", 2), ("ArrowRight", 3), ("k", 2), ("ArrowLeft", 1)]:
        page.keyboard.press(key)
        expect_place(page, f"{position} of 12")
    page.get_by_label("Search").press("j")  # a letter of a search, not a step
    page.locator("#case", has_text="No case passes").wait_for()
    page.get_by_label("Search").fill("")
    expect_place(page, "1 of 12")
    page.locator("#cases").press("End")
    expect_place(page, "12 of 12")
    expect_case(page, "a7-3")
    page.locator("#cases").press("Home")
    for name in ("a1", "a2"):
        expect_case(page, name)
        mark(page)
        page.get_by_role("button", name="★ Bookmarked").wait_for()
        page.keyboard.press("j")
        page.get_by_role("button", name="☆ Bookmark").wait_for()
    page.get_by_role("button", name="More filters").click()
    page.get_by_label("★ bookmarked").check()
    expect_cases(page, "a1", "a2")
    page.keyboard.press("?")
    page.locator("#keys-help", has_text="next case").wait_for()


def test_no_key_is_lost_however_fast_they_come(visit, address):
    """Defect 9: keys pressed while a case was under way were lost."""
    page = visit(address, "?tab=judgments&outcome=all", ready=ITEM)
    for _ in range(20):
        page.keyboard.press("j")
    expect_place(page, "21 of 28")
    expect_case(page, "a7-2")


def test_an_address_leads_back_to_what_was_shown(visit, address):
    query = "?tab=judgments&run=eval&outcome=right&subset=chat&search=moss&only=baseline&order=worst&item=a6-2"
    page = visit(address, query, ready=ITEM)
    expect_place(page, "3 of 4")
    page.keyboard.press("j")
    expect_place(page, "4 of 4")
    page.wait_for_url("**item=a6-3*")
    page = again(visit, page, ready=ITEM)
    expect_place(page, "4 of 4")
    expect_cases(page, "a6", "a6-1", "a6-2", "a6-3")
    assert page.get_by_label("Search").input_value() == "moss"
    assert page.get_by_label("a baseline is right too").is_checked()
    page = visit(address, "?run=eval&item=a4-1", ready=ITEM)  # as a flip of two runs links here: of any outcome
    expect_place(page, "11 of 28")
    page = visit(address, "?run=../../etc/passwd&item=<img src=x onerror=window.hacked=1>", ready=NO_RUN)
    expect_place(page, "1 of 28")


def test_back_returns_to_the_case_and_the_tab(visit, address):
    """Defect 10: Back left the page."""
    page = visit(address, "?tab=judgments&run=eval&item=a2", ready=ITEM)
    page.wait_for_url("**scorer=*")
    page.keyboard.press("j")
    page.wait_for_url("**item=a3*")
    page.get_by_role("tab", name="Benchmarks").click()
    page.wait_for_url("**tab=benchmarks*")
    page.go_back()
    page.wait_for_url("**item=a3*")
    page.locator("#case-place").wait_for()
    page.go_back()
    page.wait_for_url("**item=a2*")
    expect_case(page, "a2")
    expect_place(page, "2 of 28")
    page.go_forward()
    expect_case(page, "a3")


def test_readers_annotate_and_take_a_selection_away(visit, address, runs, tmp_path):
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (runs / "eval").iterdir()}
    page = visit(address, "?run=eval&outcome=wrong&item=a2", ready=ITEM)
    page.keyboard.press("y")
    page.locator("#annotation-error", has_text="Fill in your name").wait_for()
    reader, note = page.locator("#annotation-reader"), page.locator("#annotation-note")
    for verdict, who, text in (("Yes", "Bob", "=1+1"), ("No", "Ada <b>", "<script>window.hacked=1</script>")):
        reader.fill(who)
        note.fill(text)
        page.locator("#annotation-choices").get_by_role("button", name=verdict).click()
        expect_case(page, "a7")  # the next one
        page.get_by_role("button", name="previous case").click()
        expect_case(page, "a2")
        page.locator("#annotation-said", has_text=text).wait_for()
    page.locator("#annotation-progress", has_text="2 readers").wait_for()
    assert "alpha" in page.locator("#annotation-progress").inner_text()
    page = again(visit, page, ready=ITEM)
    page.locator("#annotation-said", has_text="Ada <b>").wait_for()
    page.get_by_role("button", name="More filters").click()
    page.get_by_label("annotated", exact=True).check()
    expect_cases(page, "a2")
    page.get_by_role("button", name="Export").click()
    choose(page, "Preferences", "the readers', of annotated cases")
    page.get_by_role("button", name="Write file").click()
    with page.expect_download() as download:
        page.get_by_text("Download 1 rows (.jsonl)").click()
    download.value.save_as(tmp_path / "pairs.jsonl")
    (pair,) = load_pairs(str(tmp_path / "pairs.jsonl"))[0]
    assert (pair.id, pair.chosen, pair.rejected) == ("a2", "newt", "oak")
    choose(page, "Format", "table (.csv)")
    page.get_by_role("button", name="Write file").click()
    with page.expect_download() as download:
        page.get_by_text("Download 1 rows (.csv)").click()
    download.value.save_as(tmp_path / "table.csv")
    assert "<script>window.hacked=1</script>,Ada <b>" in (tmp_path / "table.csv").read_text()
    assert before == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (runs / "eval").iterdir()}
    lines = (runs / "annotations" / "eval.jsonl").read_text().splitlines()
    assert [json.loads(line)["who"] for line in lines] == ["Bob", "Ada <b>"]


def test_a_draft_stays_with_its_case_and_the_name_is_remembered(browser, served, tmp_path):
    """Defects 6 and 17; the note is gone once it is stored."""
    write_run(tmp_path / "eval")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, address = context.new_page(), served(tmp_path)
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(f"{address}?run=eval&item=a1")
    expect_case(page, "a1")
    page.locator("#annotation-reader").fill("Ada")
    note = page.locator("#annotation-note")
    note.fill("about a1")
    page.get_by_role("button", name="next case").click()
    expect_case(page, "a2")
    assert note.input_value() == ""
    page.goto(f"{address}?run=eval&item=a1")
    expect_case(page, "a1")
    assert note.input_value() == "about a1" and page.locator("#annotation-reader").input_value() == "Ada"
    page.locator("h1").click()
    page.keyboard.press("t")
    expect_case(page, "a2")
    page.locator("#annotation-progress", has_text="1 of 7 cases by you").wait_for()
    page.keyboard.press("k")
    page.locator("#annotation-said", has_text="about a1").wait_for()
    page.wait_for_function("localStorage['rewardlab-drafts'] === '{}'")
    page.wait_for_function("document.querySelector('#annotation-note').value === ''")
    context.close()


def test_a_button_that_is_pressed_while_a_case_is_loaded_counts(visit, served, tmp_path, monkeypatch):
    """Defect 9: also for what changes how a case is shown."""
    write_run(tmp_path / "eval")
    page = visit(served(tmp_path), "?run=eval&item=a1", ready=ITEM)
    going, computed, case = Event(), Semaphore(0), case_server._case
    monkeypatch.setattr(case_server, "_case", lambda *asked: (case(*asked), computed.release(), going.wait())[0])
    page.keyboard.press("j")
    computed.acquire()
    page.get_by_role("button", name="Word diff").click()
    going.set()
    page.locator("#case ins", has_text="oak").wait_for()
    assert page.locator("#case-diff").get_attribute("aria-pressed") == "true"


def test_an_explanation_stays_while_its_case_does(visit, served, tmp_path):
    """Another look at the same case took it away; events are handled in turn, so that of `m` is the later."""
    write_run(tmp_path / "runs" / "eval")
    save_linear(tmp_path / "words")
    page = visit(served(tmp_path / "runs", model=[str(tmp_path / "words")]), "?run=eval&item=a1", ready=ITEM)
    page.wait_for_url("**scorer=*")
    page.get_by_role("button", name="Explain").click()
    page.locator("#why .heat").first.wait_for()
    with page.expect_request(lambda request: "queue/join" in request.url):
        page.keyboard.press("r")
    mark(page)
    assert page.locator("#why .heat").first.is_visible()


def test_an_annotation_is_shown_where_its_case_was_asked_for_before_it_was_stored(visit, served, tmp_path, monkeypatch):
    write_run(tmp_path / "eval")
    page = visit(served(tmp_path), "?run=eval&item=a1", ready=ITEM)
    page.locator("#annotation-reader").fill("Ada")
    page.locator("h1").click()
    cases, computed, stored, case, annotate = (
        *(Semaphore(0) for _ in range(3)),
        case_server._case,
        case_server._annotate,
    )

    def late_case(*asked):
        found = case(*asked)
        computed.release()
        cases.acquire()
        return found

    monkeypatch.setattr(case_server, "_case", late_case)
    monkeypatch.setattr(case_server, "_annotate", lambda *asked: (stored.acquire(), annotate(*asked))[1])
    page.keyboard.press("y")  # the next case is asked for, and the verdict on its way
    computed.acquire()
    page.keyboard.press("k")
    cases.release()
    computed.acquire()  # a1 without the verdict
    stored.release()
    page.locator("#annotation-said", has_text="Ada").wait_for()
    for _ in range(3):
        cases.release()
    expect_place(page, "1 of 7")
    page.locator("#case:not(.refreshing)").wait_for()
    page.locator("#annotation-said", has_text="Ada").wait_for()


def test_an_annotation_that_the_server_did_not_get_is_named_until_it_is_stored(browser, served, tmp_path):
    write_run(tmp_path / "eval")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(served(tmp_path) + "?run=eval&item=a1")
    page.locator(ITEM).first.wait_for()
    page.locator("#annotation-reader").fill("Ada")
    page.route("**/component_server/**", lambda route: route.abort())
    page.locator("#annotation-choices").get_by_role("button", name="Yes").click()
    page.locator("#annotation-unstored", has_text="The annotation of a1 is not stored.").wait_for()
    assert not (tmp_path / "annotations").exists()
    page.unroute("**/component_server/**")
    page.locator("#case-row-0").click()
    page.locator("#annotation-choices").get_by_role("button", name="Yes").click()
    page.locator("#annotation-progress", has_text="1 of 7 cases by you").wait_for()
    assert page.locator("#annotation-unstored").inner_text() == ""
    page.close()


def test_a_blind_reader_sees_no_label_and_no_score(visit, served, tmp_path):
    write_run(tmp_path / "eval")
    page = visit(served(tmp_path), "?run=eval&item=a2", ready=ITEM)
    page.locator("#annotation-reader").fill("Ada")
    page.get_by_role("button", name="Blind").click()
    page.locator("#annotation-question", has_text="Which response is better?").wait_for()
    for hidden in ("#case .scores", "#case .pill", "#case .right", "#cases .row-number", "#cases [role=img]"):
        page.locator(hidden).first.wait_for(state="detached")
    oak = [index for index, one in enumerate(page.locator(ITEM).all(), 1) if "oak" in one.inner_text()]
    page.keyboard.press(str(*oak))
    expect_case(page, "a3")
    page.locator("#annotation-progress", has_text="1 of 7 cases by you").wait_for()
    (line,) = (tmp_path / "annotations" / "eval.jsonl").read_text().splitlines()
    assert json.loads(line)["verdict"] == "agree" and json.loads(line)["blind"] is True


@pytest.mark.slow
def test_what_cannot_be_shown_is_told_and_a_run_appears_when_it_is_finished(visit, address, runs):
    growing = write_run(runs / "later.partial")
    (growing / "summary.json").rename(runs / "summary")
    (growing / "manifest.json").unlink()
    page = visit(address, "?run=half", ready="#case .note")
    page.locator("#case .note", has_text="items.parquet is damaged").wait_for()
    for run, sentence in (
        ("old", "scores.parquet has other columns"),
        ("unsummed", "has no summary.json yet"),
        ("later.partial (running or cut off)", "This run is being written"),
    ):
        choose(page, "Run", run, within="#judgments-toolbar")
        page.locator("#case .note", has_text=sentence).wait_for()
    (runs / "summary").rename(growing / "summary.json")
    (growing / "manifest.json").write_text("{}")
    growing.rename(runs / "later")
    expect_place(page, "1 of 3")
    assert page.locator("#judgments-toolbar").get_by_label("Run", exact=True).first.input_value() == "later"


@pytest.mark.slow
def test_keys_count_while_a_run_grows(visit, served, tmp_path):
    """Every few seconds the run is read again, which took the reader back to the case where the last pause was."""
    growing, larger = write_run(tmp_path / "runs" / "eval.partial", 40), write_run(tmp_path / "larger", 41)
    page = visit(served(tmp_path / "runs"), "?tab=judgments", ready=ITEM)
    expect_place(page, "1 of 120")
    for name in ("items.parquet", "scores.parquet"):
        (larger / name).rename(growing / name)
    place, position, total = page.locator("#case-place"), 1, "120"
    turns = itertools.chain([1] * 25, itertools.cycle([-1] * 20 + [1] * 20))  # rows that are there already
    while total == "120":  # ends with the test's own limit
        step = next(turns)
        page.keyboard.press("j" if step > 0 else "k")
        position += step
        shown, _, total = place.inner_text().partition(" of ")
        assert shown == str(position)


def test_a_run_that_is_removed_is_told(visit, served, tmp_path):
    """Defect 16: its cases stayed."""
    write_run(tmp_path / "eval")
    page = visit(served(tmp_path), "?run=eval", ready=ITEM)
    shutil.rmtree(tmp_path / "eval")
    page.keyboard.press("j")
    page.locator("#case .note", has_text="there is no run 'eval' here").wait_for()
    assert page.locator(ITEM).count() == 0


def test_a_long_text_is_folded_and_a_long_word_costs_nothing(visit, served, tmp_path):
    """Defect 15: a word of 50,000 characters held the page for 13 seconds. Defect 7: U+202E reversed the prompt."""
    answers = ["\n".join(f"line {k}" for k in range(99)), "w" * 50_000]
    case = Case("long", user_turn("a \u202egnp.exe"), tuple(answers), (0,))
    write_evaluation(tmp_path / "eval", [case], {"rm": {"long": (1.0, 0.0)}})
    page = visit(served(tmp_path), "?run=eval&item=long", ready=ITEM)
    page.locator("#cases .row", has_text="U+202E").wait_for()
    assert "U+202E" in page.locator("#case .prompt").inner_text()
    first = page.locator(ITEM).first
    height = first.bounding_box()["height"]
    page.get_by_role("button", name="Show all (99 lines").click()
    assert first.bounding_box()["height"] > height + 500
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_ties_are_called_ties(visit, address):
    """Defect 20: both responses had the highest score."""
    page = visit(address, "?run=eval&item=a4", ready=ITEM)
    assert page.locator("#case .pill", has_text="tied for highest score").count() == 2


def asked(run: str) -> list[Any]:
    """The controls' values of a run whose wrong cases are shown: a1, a2, a7."""
    return [run, MODEL, "wrong", "", "", "", "", "", [], "items"]


@pytest.fixture
def site(tmp_path) -> Site:
    config = InspectConfig(run=str(tmp_path))
    with gr.Blocks() as page:
        return Site(page, open_root(tmp_path), config, Models(config))


def test_the_case_stays_while_its_run_is_written_and_when_it_gets_its_name(site, tmp_path):
    growing = write_run(tmp_path / "later.partial")
    look = judgments._grown(site)
    run, _, scorer, *_, outcome, cases, timer = look(*asked("later.partial"), "a7", {})
    assert cases["position"] == 2 and timer.active
    assert run == gr.skip()  # and of the lists only the choices: the reader may have chosen others
    assert all([*control.constructor_args] == ["choices"] for control in (scorer, outcome))
    growing.rename(tmp_path / "later")
    run, read, scorer, *_, cases, timer = look(*asked("later.partial"), "a7", {})
    assert run.value == read == "later" and scorer.value == MODEL and cases["position"] == 2 and not timer.active


def test_a_run_that_is_finished_while_it_is_read_again_is_followed(site, tmp_path, monkeypatch):
    growing, opened = write_run(tmp_path / "later.partial"), judgments._open

    def finish(*asked):
        if growing.exists():
            growing.rename(tmp_path / "later")
        return opened(*asked)

    monkeypatch.setattr(judgments, "_open", finish)
    with pytest.warns(UserWarning, match="There is no run"):
        run, *_, cases, _ = judgments._grown(site)(*asked("later.partial"), "a7", {})
    assert run.value == "later" and cases["position"] == 2


def test_the_script_gets_rows_cases_and_sentences(site, tmp_path):
    write_run(tmp_path / "eval")
    rows, case, annotate = server_functions(site)
    request = {"query": dict(zip(Asked._fields, asked("eval"), strict=True)), "marked": ["a1"], "reader": "Ada"}
    found = rows(request | {"start": 1, "size": 5})
    assert (found["cases"], found["total"], len(found["rows"])) == (["a2", "a7"], 3, 2)
    assert case(request | {"position": 2})["case"] == "a7" and case(request | {"case": "a2"})["position"] == 1
    assert case(request | {"position": 3})["case"] is None
    marked = {**request, "query": {**request["query"], "only": ["marked"]}}
    assert rows(marked | {"start": 0, "size": 5})["cases"] == ["a1"]
    assert annotate(request | {"case": "a1", "verdict": "tie"})["progress"] == "1 of 7 cases by you; 1 by 1 reader"
    todo = {**request, "query": {**request["query"], "only": ["unannotated"]}}
    assert rows(todo | {"start": 0, "size": 5})["cases"] == ["a2", "a7"]
    gone = {**request, "query": {**request["query"], "run": "../eval"}}
    for wrong, sentence in (
        (gone | {"position": 0}, "there is no run '../eval' here"),
        (request | {"position": "x"}, "malformed"),
        ({"query": []}, "malformed"),
        (request | {"query": {"run": ["eval"]}, "position": 0}, "the values of a filter are texts"),
    ):
        assert sentence in case(wrong)["error"]


def test_a_run_of_a_list_of_runs_is_looked_up_once(site, tmp_path, monkeypatch):
    looked, entries = [], runs_of._entries
    monkeypatch.setattr(runs_of, "_entries", lambda *some: (looked.append(some[1]), entries(*some))[1])
    write_run(tmp_path / "eval")
    _, cases, _ = judgments._answer(site)({}, *asked("eval"))
    assert cases["total"] == 3 and looked.count("") == 1
    with gr.Blocks():
        assert why.section(site).update("eval", MODEL, "a2")[0] == ("eval", MODEL, "a2")
    assert looked.count("") == 2


def test_a_folder_without_runs_says_how_to_make_one(visit, served, tmp_path):
    page = visit(served(tmp_path), "?tab=judgments", ready="#case .note")
    page.locator("#case .command", has_text=f"--output {tmp_path}/eval").wait_for()
    assert "No run with judgments is here yet" in page.locator("#case").inner_text()


@pytest.mark.slow
def test_on_a_narrow_screen_the_list_opens_the_case_in_its_place(visit, address):
    page = visit(address, "?tab=judgments&run=eval", width=390, ready="#cases .row[data-case]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator(ITEM).first.is_visible()
    page.locator("#cases .row[data-case=a2]").click()
    expect_case(page, "a2")
    assert not page.locator("#cases").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    first, second = (one.bounding_box() for one in page.locator(ITEM).all())
    assert first["y"] < second["y"] and first["x"] == second["x"]
    page.get_by_role("button", name="‹ List").click()
    page.locator("#cases").wait_for()


def test_elsewhere_cannot_be_reached_from_this_browser(browser):
    """The other tests open the page so: it needs no network."""
    from playwright.sync_api import Error

    page = browser.new_page()
    with pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED|ERR_"):
        page.goto("http://example.org/")
    page.close()


@pytest.mark.parametrize(
    ("query", "request_of", "sentence"),
    [
        ({"search": "\ud800"}, {"start": 0, "size": 3}, "holds half a character"),
        ({"length": f"0-{10**30}"}, {"start": 0, "size": 3}, None),
        ({}, {"start": 10**30, "size": 3}, None),
    ],
)
def test_values_that_no_run_has_are_not_said_to_be_damage(query, request_of, sentence, site, tmp_path):
    write_run(tmp_path / "eval")
    rows, *_ = server_functions(site)
    answer = rows({"query": {"run": "eval", "scorer": MODEL, "outcome": "all"} | query, **request_of})
    assert sentence in answer["error"] if sentence else answer["total"] == 7
