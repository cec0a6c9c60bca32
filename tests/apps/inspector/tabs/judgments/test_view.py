import getpass
import hashlib
import json
import shutil
from threading import Event, Semaphore

import pytest
from rewardlab.apps.inspector.tabs.judgments.client import case_server
from rewardlab.rm.data.pairs import load_pairs

from tests.apps.inspector.acts import again, choose, expect_case, expect_cases, expect_place, mark, outcomes, pick
from tests.apps.inspector.ponds import HOSTILE, NULL, write_run

COPIES = ("", "-1", "-2", "-3")
ITEM = "#case .answer"
PONDS = "?tab=judgments&run=ponds"
"""The seven cases four times: 12 wrong, 8 right, 4 ties, 4 abstained."""
NO_RUN = "#judgments-note:has-text(\"There is no run '../../etc/passwd' here\")"


def test_filters_in_quick_succession_narrow_what_is_shown(visit, address):
    page = visit(address, PONDS, ready=ITEM, height=1200)
    expect_cases(page, *(f"{name}{copy}" for copy in COPIES for name in ("a1", "a2", "a7")))
    assert outcomes(page) == {"wrong"}
    pick(page, "abstained (4)")
    expect_cases(page, "a5", "a5-1", "a5-2", "a5-3")
    page.locator("#case", has_text="abstained: no score").wait_for()
    pick(page, "all (28)")
    page.get_by_label("Search").fill("name a ")
    choose(page, "Sort", "smallest |margin| first")
    expect_cases(page, *(f"{name}{copy}" for name in ("a4", "a6", "a2", "a3") for copy in COPIES))
    page.get_by_role("button", name="More filters").click()
    margin, length = page.get_by_label("Largest |margin|"), page.get_by_label("Response length")
    margin.fill("<b>low")
    page.locator("#case .note", has_text="empty for any; got '<b>low'").wait_for()
    margin.fill("0.125")
    expect_place(page, "1 of 12")
    length.fill("5 to 9")
    page.locator("#case .note", has_text="a range of characters such as 100-200").wait_for()
    length.fill("5-9")  # of heron, in a3, which is not among them by its margin
    page.locator("#case", has_text="No case passes").wait_for()
    length.fill("")
    page.get_by_label("Length gap").fill("-1")
    expect_cases(page, "a2", "a2-1", "a2-2", "a2-3")
    for label in ("Search", "Largest |margin|", "Length gap"):
        page.get_by_label(label).fill("")
    expect_place(page, "1 of 28")
    choose(page, "Subset", "hard (4)")
    expect_cases(page, "a7", "a7-1", "a7-2", "a7-3")


def test_the_answer_to_a_filter_is_taken_for_no_other(visit, address, monkeypatch):
    """The first answer comes late; the reader has chosen twice by then, and of these two only the last is asked for."""
    asked, going, rows = [], Event(), case_server._rows
    page = visit(address, PONDS, ready=ITEM)

    def late(view, start, size):
        asked.append((view.filter_values.outcome, view.filter_values.search))
        going.wait()
        return rows(view, start, size)

    monkeypatch.setattr(case_server, "_rows", late)
    pick(page, "right (8)")
    pick(page, "tie (4)")
    page.get_by_label("Search").fill("fish")
    page.wait_for_function("document.querySelector('#outcome input[value=tie]').checked")
    going.set()
    expect_cases(page, "a4", "a4-1", "a4-2", "a4-3")
    expect_place(page, "1 of 4")
    assert asked[0] == ("right", "") and asked[-1] == ("tie", "fish")


def test_hostile_names_and_texts_are_text_and_a_row_opens_its_case(visit, address):
    page = visit(address, "?run=long&item=long", ready=ITEM)
    page.locator("#cases .row", has_text="U+202E").wait_for()
    assert "U+202E" in page.locator("#case .prompt").inner_text()
    height = page.locator(ITEM).first.bounding_box()["height"]
    page.get_by_role("button", name="Show all (99 lines").click()
    assert page.locator(ITEM).first.bounding_box()["height"] > height + 500
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    choose(page, "Run", "ponds", within="#judgments-toolbar")
    expect_case(page, "a1")
    page.get_by_role("button", name="Raw").click()
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
    page.locator("#case tr.mine", has_text=NULL).wait_for()
    page.locator("#report").locator("..").locator("summary").click()
    page.locator("#report", has_text="Seven cases").wait_for()
    assert page.locator("#report script").count() == 0


def test_keys_and_buttons_walk_and_bookmark_and_no_key_is_lost(visit, address):
    page = visit(address, f"{PONDS}&outcome=all", ready=ITEM)
    for button, position in [("previous case", 1), ("next case", 2), ("previous case", 1)]:
        page.get_by_role("button", name=button).click()
        expect_place(page, f"{position} of 28")
    for key, position in [("j", 2), ("ArrowRight", 3), ("k", 2), ("ArrowLeft", 1)]:
        page.keyboard.press(key)
        expect_place(page, f"{position} of 28")
    for _ in range(20):
        page.keyboard.press("j")
    expect_place(page, "21 of 28")
    expect_case(page, "a7-2")
    page.get_by_label("Search").press("j")  # a letter of a search, not a step
    page.locator("#case", has_text="No case passes").wait_for()
    page.get_by_label("Search").fill("")
    expect_place(page, "1 of 28")
    page.locator("#cases").press("End")
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


def test_an_address_leads_back_to_what_was_shown_and_back_to_the_case_before(visit, address):
    query = f"{PONDS}&outcome=right&subset=chat&search=moss&only=baseline&order=worst&item=a6-2"
    page = visit(address, query, ready=ITEM)
    expect_place(page, "3 of 4")
    page.keyboard.press("j")
    page.wait_for_url("**item=a6-3*")
    page = again(visit, page, ready=ITEM)
    expect_place(page, "4 of 4")
    expect_cases(page, "a6", "a6-1", "a6-2", "a6-3")
    assert page.get_by_label("Search").input_value() == "moss"
    assert page.get_by_label("a baseline is right too").is_checked()
    page.get_by_role("tab", name="Benchmarks").click()
    page.wait_for_url("**tab=benchmarks*")
    page.go_back()
    page.wait_for_url("**item=a6-3*")
    page.keyboard.press("k")
    page.wait_for_url("**item=a6-2*")
    page.go_back()
    expect_case(page, "a6-3")
    page.go_forward()
    expect_case(page, "a6-2")
    page.goto(f"{address}?run=../../etc/passwd&item=<img src=x onerror=window.hacked=1>")
    page.wait_for_selector(NO_RUN)
    expect_place(page, "1 of 32")


def test_readers_annotate_and_take_a_selection_away(visit, desk, desk_address, tmp_path):
    run = write_run(desk / "annotated")
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in run.iterdir()}
    page = visit(desk_address, "?run=annotated&outcome=wrong&item=a2", ready=ITEM)
    reader, note = page.locator("#annotation-reader"), page.locator("#annotation-note")
    assert reader.input_value() == getpass.getuser(), "only this machine reaches the page"
    reader.fill("")
    page.locator("h1").click()
    page.keyboard.press("y")
    page.locator("#annotation-error", has_text="Fill in your name").wait_for()
    for verdict, who, text in (("Yes", "Bob", "=1+1"), ("No", "Ada <b>", "<script>window.hacked=1</script>")):
        reader.fill(who)
        note.fill(text)
        page.locator("#annotation-choices").get_by_role("button", name=verdict).click()
        expect_case(page, "a7")  # the next one
        page.locator("#annotation-stored", has_text=f"Stored: {verdict} for a2").get_by_role("link").click()
        expect_case(page, "a2")
        page.locator("#annotation-said", has_text=text).wait_for()
    page.locator("#annotation-progress", has_text="2 readers").wait_for()
    assert "alpha" in page.locator("#annotation-progress").inner_text()
    page.locator("#outcome label[data-count='(1)']", has_text="annotated").click()
    expect_cases(page, "a2")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export 2 annotations of annotated").click()
    exported = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [(one["case"], one["who"]) for one in exported] == [("a2", "Bob"), ("a2", "Ada <b>")]
    download.value.save_as(tmp_path / "same.jsonl")
    page.locator("#annotation-file").set_input_files(tmp_path / "same.jsonl")
    page.locator("#annotation-stored", has_text="Stored: 0 new of same.jsonl").wait_for()
    page.locator("#case:not(.refreshing)").wait_for()
    assert page.locator("#annotation-stored").inner_text(), "the case that is loaded again does not remove it"
    page.locator("button.label-wrap", has_text="Export").click()
    choose(page, "Preferences", "the readers', of annotated cases")
    page.get_by_role("button", name="Write file").click()
    with page.expect_download() as download:
        page.get_by_text("Download 1 rows (.jsonl)").click()
    download.value.save_as(tmp_path / "pairs.jsonl")
    (pair,) = load_pairs(str(tmp_path / "pairs.jsonl"))[0]
    assert (pair.id, pair.chosen, pair.rejected) == ("a2", "newt", "oak")
    assert before == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in run.iterdir()}
    lines = (desk / "annotations" / "annotated.jsonl").read_text().splitlines()
    assert [json.loads(line)["who"] for line in lines] == ["Bob", "Ada <b>"]


def test_a_draft_stays_with_its_case_and_what_the_server_did_not_get_is_named(browser, desk, desk_address):
    run = write_run(desk / "drafted")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(600_000)
    page.goto(f"{desk_address}?run=drafted&item=a1")
    expect_case(page, "a1")
    page.locator("#annotation-reader").fill("Ada")
    note, choices = page.locator("#annotation-note"), page.locator("#annotation-choices")
    note.fill("about a1")
    page.get_by_role("button", name="next case").click()
    expect_case(page, "a2")
    assert note.input_value() == ""
    page.route("**/component_server/**", lambda route: route.abort())
    choices.get_by_role("button", name="Yes").click()
    page.locator("#annotation-unstored", has_text="The annotation of a2 is not stored.").wait_for()
    assert not (desk / "annotations" / "drafted.jsonl").exists()
    page.unroute("**/component_server/**")
    page.locator("#case-row-1").click()
    choices.get_by_role("button", name="Yes").click()
    page.locator("#annotation-progress", has_text="1 of 7 cases by you").wait_for()
    page.wait_for_function("document.querySelector('#annotation-unstored').innerText === ''")
    page.goto(f"{desk_address}?run=drafted&item=a1")
    expect_case(page, "a1")
    assert note.input_value() == "about a1" and page.locator("#annotation-reader").input_value() == "Ada"
    page.locator("h1").click()
    page.keyboard.press("t")
    page.locator("#annotation-progress", has_text="2 of 7 cases by you").wait_for()
    expect_case(page, "a2")  # the next case comes after the answer is stored, and would undo an earlier key
    page.keyboard.press("k")
    page.locator("#annotation-said", has_text="about a1").wait_for()
    page.wait_for_function("localStorage['rewardlab-drafts'] === '{}'")
    page.wait_for_function("document.querySelector('#annotation-note').value === ''")
    page.get_by_role("button", name="Blind").click()
    page.locator("#annotation-question", has_text="Which response is better?").wait_for()
    for hidden in ("#case .scores", "#case .pill", "#case .right", "#cases .row-number", "#cases [role=img]"):
        page.locator(hidden).first.wait_for(state="detached")
    assert not page.get_by_role("radio").first.is_visible(), "no outcome, and none of its counts"
    good = [index for index, one in enumerate(page.locator(ITEM).all(), 1) if "Good" in one.inner_text()]
    page.keyboard.press(str(*good))
    expect_case(page, "a2")
    page.locator("#annotation-progress", has_text="2 of 7 cases by you").wait_for()
    line = json.loads((desk / "annotations" / "drafted.jsonl").read_text().splitlines()[-1])
    assert (line["case"], line["verdict"], line["blind"]) == ("a1", "agree", True)
    shutil.rmtree(run)
    page.keyboard.press("j")
    page.locator("#case .note", has_text="there is no run 'drafted' here").wait_for()
    assert page.locator(ITEM).count() == 0
    context.close()


def test_an_annotation_is_shown_though_its_case_was_asked_for_before_it(visit, desk, desk_address, monkeypatch):
    write_run(desk / "late")
    page = visit(desk_address, "?run=late&item=a1", ready=ITEM)
    page.locator("#annotation-reader").fill("Ada")
    page.locator("h1").click()
    cases, computed, stored = (Semaphore(0) for _ in range(3))
    case, annotate = case_server._case, case_server._annotate

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


def test_a_step_during_a_look_at_a_growing_run_is_not_undone(visit, desk, desk_address, monkeypatch):
    """The answer to what the page asks every few seconds took the reader back to the case of the question."""
    write_run(desk / "growing.partial")
    page = visit(desk_address, "?run=growing.partial&outcome=all&item=a1", ready=ITEM)
    asked, answered, opened = Semaphore(0), Semaphore(0), case_server._open

    def late(*request):
        answer = opened(*request)
        asked.release()
        answered.acquire()
        return answer

    monkeypatch.setattr(case_server, "_open", late)
    asked.acquire()
    page.keyboard.press("j")
    expect_case(page, "a2")
    answered.release()
    asked.acquire()  # the next look: the answer to the one before is there
    page.keyboard.press("j")
    expect_case(page, "a3")
    answered.release(100)
    expect_place(page, "3 of 7")


@pytest.mark.slow
def test_on_a_narrow_screen_the_list_opens_the_case_in_its_place(visit, address):
    page = visit(address, PONDS, width=390, ready="#cases .row[data-case]")
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
