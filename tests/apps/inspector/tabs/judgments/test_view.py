"""The tab of judgments in a real browser, over hand-made runs."""

import hashlib
import json
from pathlib import Path
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
from rewardlab.apps.inspector.tabs.judgments.explanation import view as why
from rewardlab.rm.data.pairs import load_pairs

from tests.apps.inspector.acts import again, choose, expect_cases, expect_place, outcomes, pick
from tests.apps.inspector.ponds import HOSTILE, MODEL, NULL, write_run

WRONG = ("a1", "a2", "a7", "a1-1", "a2-1", "a7-1", "a1-2", "a2-2", "a7-2", "a1-3")
ITEM = "#item .answer"


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
    page = visit(address, ready=ITEM)
    expect_place(page, "item 1 of 12")
    expect_cases(page, *WRONG)
    assert outcomes(page) == {"wrong"} and page.get_by_text("tie (4)").is_visible()
    pick(page, "abstained (4)")
    expect_cases(page, "a5", "a5-1", "a5-2", "a5-3")
    assert outcomes(page) == {"abstained"}
    page.locator("#item", has_text="abstained: no score").wait_for()
    pick(page, "all (28)")
    expect_place(page, "item 1 of 28")
    page.get_by_label("Search").fill("name a ")
    expect_place(page, "item 1 of 16")
    choose(page, "Order", "smallest |margin| first")
    expect_cases(page, "a4", "a4-1", "a4-2", "a4-3", "a6", "a6-1", "a6-2", "a6-3", "a2", "a2-1")
    margin = page.get_by_label("Largest |margin|")
    margin.fill("<b>low")
    page.get_by_text("empty for any; got '<b>low'").first.wait_for()
    margin.fill("0.125")
    expect_place(page, "item 1 of 12")
    page.get_by_label("Length gap").fill("-1")
    expect_cases(page, "a2", "a2-1", "a2-2", "a2-3")
    page.get_by_label("Search").fill("no such text")
    page.get_by_text("No case passes").wait_for()
    expect_cases(page, "")
    for label in ("Search", "Largest |margin|", "Length gap"):
        page.get_by_label(label).fill("")
    expect_place(page, "item 1 of 28")
    choose(page, "Subset", "hard (4)")
    expect_cases(page, "a7", "a7-1", "a7-2", "a7-3")


def test_hostile_names_and_texts_are_text_and_a_row_shows_its_answers(visit, address):
    page = visit(address, ready=ITEM)
    assert page.locator("#item .prompt .text").inner_text() == HOSTILE
    assert "Good <b>moss</b>" in page.locator(ITEM).first.inner_text()
    page.locator('#items [data-row="1"][data-col="0"]').click()
    expect_place(page, "item 2 of 12")
    page.locator("#item .prompt", has_text="Name a tree").wait_for()
    newt, oak = page.locator(ITEM).all()
    assert "newt" in newt.inner_text() and "right" not in newt.inner_text()
    assert "oak" in oak.inner_text() and "✓ right" in oak.inner_text()
    left, right = newt.bounding_box(), oak.bounding_box()
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    page.get_by_label("word diff").check()
    page.locator("#item ins", has_text="oak").wait_for()
    assert page.locator("#item del").inner_text() == "newt"
    choose(page, "Scorer", f"{NULL} (baseline)")
    page.get_by_text("No case passes").wait_for()
    pick(page, "right (28)")
    expect_place(page, "item 1 of 28")
    assert NULL in page.locator("#item tr.mine").inner_text()
    page.get_by_role("button", name="Report").click()
    page.locator("#report", has_text="Seven cases").wait_for()
    assert page.locator("#report script").count() == 0


def test_keys_and_buttons_walk_and_mark(visit, address):
    page = visit(address, ready=ITEM)
    for button, place in [("previous item", 1), ("next page", 11), ("next item", 12), ("next item", 12)]:
        page.get_by_role("button", name=button).click()
        expect_place(page, f"item {place} of 12")
    page.get_by_role("button", name="previous page").click()
    expect_cases(page, *WRONG)
    expect_place(page, "item 1 of 12")
    for key, place in [("j", 2), ("ArrowRight", 3), ("k", 2), ("ArrowLeft", 1)]:
        page.keyboard.press(key)
        expect_place(page, f"item {place} of 12")
    page.get_by_label("Search").press("j")  # a letter of a search, not a step
    page.get_by_text("No case passes").wait_for()
    page.get_by_label("Search").fill("")
    expect_place(page, "item 1 of 12")
    page.locator("h1").click()
    for _ in range(2):
        page.keyboard.press("m")
        page.locator("#item .star").wait_for()
        page.keyboard.press("j")
        page.locator("#item .star").wait_for(state="detached")
    page.get_by_label("★ marked").check()
    expect_cases(page, "a1", "a2")
    page.locator("#item .star").wait_for()
    page.get_by_role("button", name="★ marked").click()
    expect_cases(page, "a2")


@pytest.mark.slow
def test_an_address_leads_back_to_what_was_shown(visit, address):
    query = "?tab=judgments&run=eval&outcome=right&subset=chat&search=moss&only=baseline&order=worst&item=a6-2"
    page = visit(address, query, ready=ITEM)
    expect_place(page, "item 3 of 4")
    page.keyboard.press("j")
    expect_place(page, "item 4 of 4")
    page.wait_for_url("**item=a6-3*")
    page = again(visit, page, ready=ITEM)
    expect_place(page, "item 4 of 4")
    expect_cases(page, "a6", "a6-1", "a6-2", "a6-3")
    assert page.get_by_label("Search").input_value() == "moss"
    assert page.get_by_label("a baseline is right too").is_checked()
    page = visit(address, "?run=eval&item=a4-1", ready=ITEM)  # as a flip of two runs links here: of any outcome
    expect_place(page, "item 11 of 28")
    page = visit(address, "?run=../../etc/passwd&item=<img src=x onerror=window.hacked=1>", ready=ITEM)
    page.get_by_text("There is no run '../../etc/passwd' here").first.wait_for()
    expect_place(page, "item 1 of 28")


def test_readers_annotate_and_take_a_selection_away(visit, address, runs, tmp_path):
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (runs / "eval").iterdir()}
    page = visit(address, "?run=eval&outcome=wrong&item=a2", ready=ITEM)
    page.get_by_role("button", name="annotate").click()
    page.get_by_text("no verdict is chosen").first.wait_for()
    for verdict, who, note in (("agree", "Bob", "=1+1"), ("disagree", "Ada <b>", "<script>window.hacked=1</script>")):
        page.locator("#annotate").get_by_label(verdict, exact=True).check()
        page.locator("#who textarea, #who input").fill(who)
        page.locator("#note textarea, #note input").fill(note)
        page.get_by_role("button", name="annotate").click()
        page.locator("#said", has_text=note).wait_for()
    page = again(visit, page, ready=ITEM)
    page.locator("#said", has_text="Ada <b>").wait_for()
    page.get_by_label("annotated").check()
    expect_cases(page, "a2")
    page.get_by_role("button", name="Export").click()
    choose(page, "Preferences", "the readers', of annotated cases")
    page.get_by_role("button", name="write the file").click()
    with page.expect_download() as download:
        page.get_by_text("download 1 rows (.jsonl)").click()
    download.value.save_as(tmp_path / "pairs.jsonl")
    (pair,) = load_pairs(str(tmp_path / "pairs.jsonl"))[0]
    assert (pair.id, pair.chosen, pair.rejected) == ("a2", "newt", "oak")
    choose(page, "Format", "table (.csv)")
    page.get_by_role("button", name="write the file").click()
    with page.expect_download() as download:
        page.get_by_text("download 1 rows (.csv)").click()
    download.value.save_as(tmp_path / "table.csv")
    assert "<script>window.hacked=1</script>,Ada <b>" in (tmp_path / "table.csv").read_text()
    assert before == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (runs / "eval").iterdir()}
    lines = (runs / "annotations" / "eval.jsonl").read_text().splitlines()
    assert [json.loads(line)["who"] for line in lines] == ["Bob", "Ada <b>"]


@pytest.mark.slow
def test_what_cannot_be_shown_is_told_and_a_run_appears_when_it_is_finished(visit, address, runs):
    growing = write_run(runs / "later.partial")
    (growing / "summary.json").rename(runs / "summary")
    (growing / "manifest.json").unlink()
    page = visit(address, "?run=half", ready="#item .note")
    assert "items.parquet is damaged" in page.locator("#item").inner_text()
    for run, sentence in (
        ("old", "scores.parquet is damaged"),
        ("unsummed", "has no summary.json yet"),
        ("later.partial (running or cut off)", "This run is being written"),
    ):
        choose(page, "Run", run, within="[role=tabpanel]")
        page.locator("#item .note", has_text=sentence).wait_for()
    (runs / "summary").rename(growing / "summary.json")
    (growing / "manifest.json").write_text("{}")
    growing.rename(runs / "later")
    expect_place(page, "item 1 of 3")
    assert page.get_by_label("Run", exact=True).first.input_value() == "later"


def asked(run: str) -> list[Any]:
    """The controls' values of a run whose wrong cases are shown: a1, a2, a7."""
    return [run, MODEL, "wrong", "", "", "", "", [], "items"]


@pytest.fixture
def place(tmp_path) -> Site:
    config = InspectConfig(run=str(tmp_path))
    with gr.Blocks() as page:
        return Site(page, open_root(tmp_path), config, Models(config))


def test_the_item_stays_while_its_run_is_written_and_when_it_gets_its_name(place, tmp_path):
    growing = write_run(tmp_path / "later.partial")
    for folder, run in ((growing, "later.partial"), (tmp_path / "later", "later")):
        growing = growing.rename(folder)
        chosen, *shown = judgments._grown(place)(*asked("later.partial"), "a7", {}, False)
        assert chosen.value == run and shown[-9:-7] == [2, "a7"] and shown[-1].active == (run == "later.partial")


def test_a_step_looks_through_the_folders_once(place, tmp_path, monkeypatch):
    looked, entries = [], runs_of._entries
    monkeypatch.setattr(runs_of, "_entries", lambda *some: (looked.append(some[1]), entries(*some))[1])
    write_run(tmp_path / "eval")
    shown = judgments._answer(place, lambda position, _: position + 1)(None, 0, {}, False, *asked("eval"))
    assert shown[:2] == [1, "a2"] and looked.count("") == 1
    with gr.Blocks():
        assert why.section(place).update("eval", MODEL, "a2")[0] == ("eval", MODEL, "a2")
    assert looked.count("") == 2


def test_a_folder_without_runs_says_how_to_make_one(visit, served, tmp_path):
    page = visit(served(tmp_path), ready="#item .note")
    assert "`rewardlab eval` and `rewardlab judge` write one" in page.locator("#item").inner_text()


@pytest.mark.slow
def test_a_narrow_screen_scrolls_no_further_than_its_width(visit, address):
    page = visit(address, "?run=eval", width=390, ready=ITEM)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    first, second = (one.bounding_box() for one in page.locator(ITEM).all())
    assert first["y"] < second["y"] and first["x"] == second["x"]


def test_elsewhere_cannot_be_reached_from_this_browser(browser):
    """The other tests open the page so: it needs no network."""
    from playwright.sync_api import Error

    page = browser.new_page()
    with pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED|ERR_"):
        page.goto("http://example.org/")
    page.close()
