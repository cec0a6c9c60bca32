"""One store: the run is the same on every tab, nothing reloads the page, and no failed action is lost."""

import json
import random
import shutil
import socket
import subprocess
from collections.abc import Callable

import pytest
from rewardlab.apps.inspector.tabs.overview import view as overview

from tests.apps.inspector.acts import choose, expect_case, expect_place
from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import write_run

ITEM = "#case .answer"
SERVER = """
import threading
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build
print(launch(build(InspectConfig(run=sys.argv[1])), port=int(sys.argv[2])), flush=True)
threading.Event().wait()
"""


def open_tab(page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def expect_chosen(page, tab: str, run: str) -> None:
    """The run of a tab becomes this one."""
    page.wait_for_function(
        "([tab, run]) => document.querySelector(`#${tab} [name=run]`)?.value === run", arg=[tab, run]
    )


def test_a_run_is_the_same_on_every_tab_and_nothing_reloads_the_page(visit, address):
    page = visit(address, ready="#leaderboard table")
    page.evaluate("window.kept = true")
    page.get_by_role("link", name="weak", exact=True).click()
    page.locator("#facts table").wait_for()
    expect_chosen(page, "benchmarks", "old")
    assert "run=old&scorer=weak" in page.url
    open_tab(page, "Judgments")
    page.wait_for_url("**tab=judgments&run=old&scorer=weak**")
    page.locator(ITEM).first.wait_for()
    choose(page, "Run", "ponds", within="#judgments-toolbar")
    expect_case(page, "a1")
    for tab in ("Compare", "Benchmarks"):
        open_tab(page, tab)
        expect_chosen(page, tab.lower(), "ponds")
    page.go_back()
    page.wait_for_url("**tab=compare&run=ponds**")
    open_tab(page, "Training")
    page.locator("#progress", has_text="step 9").wait_for()
    open_tab(page, "Judgments")
    page.wait_for_url("**run=ponds**item=a1**")
    assert page.evaluate("window.kept"), "nothing reloaded the page"


def test_a_finished_run_is_found_by_its_name_while_it_ran(visit, desk, desk_address):
    """An address of the unfinished run opened another one."""
    write_run(desk / "aaaa")
    write_run(desk / "went.partial").rename(desk / "went")
    page = visit(desk_address, "?tab=judgments&run=went.partial&outcome=all&item=a3", ready=ITEM)
    page.wait_for_url("**run=went&**item=a3**")
    expect_case(page, "a3")
    assert page.locator("#judgments-note").inner_text() == ""


def hold(page, function: str) -> Callable[[], None]:
    """Keep the page's requests of one function of the server until the function that is returned is called."""
    held, name, released = [], f'"fn_name":"{function}"', []

    def keep(route) -> None:
        own = name in (route.request.post_data or "")
        held.append(route) if own and not released else route.continue_()

    def release() -> None:
        released.append(True)
        for route in held:
            route.continue_()

    page.route("**/component_server**", keep)
    return release


def test_a_case_of_the_run_before_is_not_annotated_or_addressed_in_the_next_run(visit, desk, desk_address):
    """The case stays on the page until the next run's first case arrives, and both runs have a case `a3`."""
    for name in ("before", "next"):
        write_run(desk / name)
    page, sent = visit(desk_address, "?tab=judgments&run=before&outcome=all&item=a3", ready=ITEM), []
    page.locator("#annotation-reader").fill("Ada")
    page.locator("h1").click()
    page.on("request", lambda request: sent.append(request.post_data or ""))
    release = hold(page, "case")
    with page.expect_request(lambda request: '"fn_name":"case"' in (request.post_data or "")):
        choose(page, "Run", "next", within="#judgments-toolbar")
    open_tab(page, "Compare")
    open_tab(page, "Judgments")
    page.locator("h1").click()
    page.keyboard.press("1")
    page.evaluate("new Promise(done => setTimeout(done, 300))")  # the address follows the case after 250 ms
    assert "run=next" in page.url and "item=a3" not in page.url
    release()
    expect_case(page, "a1")
    page.wait_for_url("**run=next**item=a1**")
    assert not any('"fn_name":"annotate"' in data for data in sent)


def test_a_link_to_a_distant_case_counts_while_another_case_is_on_its_way(visit, desk, desk_address):
    write_run(desk / "long", copies=10)
    page = visit(desk_address, "?tab=judgments&run=long&outcome=all", ready=ITEM)
    page.wait_for_url("**item=a1")
    release = hold(page, "case")
    page.locator("h1").click()
    with page.expect_request(lambda request: '"fn_name":"case"' in (request.post_data or "")):
        page.keyboard.press("j")
    page.evaluate("rewardlab.set({item: 'a7-9'})")
    release()
    expect_case(page, "a7-9")
    expect_place(page, "70 of 70")


def test_a_failed_answer_is_told_where_the_reader_acts_and_the_action_is_repeated(browser, desk, desk_address):
    write_evaluation(desk / "failing", pairs(4), {"rm": margins([1.0, 1.0, -1.0, 1.0])})
    page = browser.new_page()
    page.set_default_timeout(600_000)
    page.goto(f"{desk_address}?tab=benchmarks&run=failing")
    page.locator("#facts table").wait_for()
    page.route("**/component_server/**", lambda route: route.abort())
    open_tab(page, "Compare")
    page.locator("#compare .failed", has_text="The inspector does not answer").wait_for()
    page.unroute("**/component_server/**")
    page.locator("#compare .failed").get_by_role("button", name="Try again").click()
    page.locator("#compare-controls select").first.wait_for()
    assert page.locator("#compare .failed").count() == 0
    page.close()


def test_a_poll_does_not_drop_an_answer_that_is_on_its_way(browser, address):
    """The overview asks for changes every five seconds; the intervals of its leaderboard may take longer."""
    page = browser.new_page()
    page.set_default_timeout(600_000)
    page.clock.install()
    release, views = hold(page, "later"), []
    page.on("request", lambda request: views.append(1) if '"fn_name":"view"' in (request.post_data or "") else None)
    with page.expect_request(lambda request: '"fn_name":"later"' in (request.post_data or "")):
        page.goto(address)
    before = page.locator("#leaderboard").inner_html()
    page.clock.run_for(20_000)
    assert len(views) == 1, "nothing is asked while an answer is on its way"
    release()
    page.wait_for_function("before => document.getElementById('leaderboard').innerHTML !== before", arg=before)
    with page.expect_request(lambda request: '"fn_name":"view"' in (request.post_data or "")):
        page.clock.run_for(10_000)
    page.close()


@pytest.mark.slow
def test_no_annotation_is_lost_when_the_server_is_gone_at_random_moments(browser, desk, desk_address):
    """At each of 20 verdicts the request is lost, the answer is lost, or neither; each loss is told."""
    run, source = write_run(desk / "lost", copies=3), random.Random(5)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(600_000)
    page.goto(f"{desk_address}?tab=judgments&run=lost&outcome=all")
    expect_case(page, "a1")
    page.locator("#annotation-reader").fill("Ada")
    page.locator("h1").click()
    fates, lost = [source.choice(["request", "answer", "neither"]) for _ in range(20)], 0

    def fate(route) -> None:
        annotates = route.request.post_data and '"annotate"' in route.request.post_data
        if annotates and fates:
            now = fates.pop(0)
            if now == "answer":
                route.fetch()
            if now != "neither":
                return route.abort()
        route.continue_()

    page.route("**/component_server**", fate)
    for number in range(20):
        expect_place(page, f"{number + 1} of 21")
        page.locator("#case:not(.refreshing)").wait_for()
        page.keyboard.press("y")
        page.wait_for_function("() => !JSON.parse(localStorage['rewardlab-outbox']).some(one => !one.error)")
        waiting, told = page.evaluate(  # in one call: the page may store a waiting annotation at any time
            "[JSON.parse(localStorage['rewardlab-outbox']).map(one => one.case),"
            " document.getElementById('annotation-unstored').textContent]"
        )
        assert all(f"The annotation of {case} is not stored." in told for case in waiting)
        lost += bool(waiting)
        if page.locator("#case-place").inner_text() != f"{number + 2} of 21":
            page.keyboard.press("j")  # the page has gone back to the case that was not stored
    assert lost > 3
    page.unroute("**/component_server**")
    page.reload()
    page.wait_for_function("() => localStorage['rewardlab-outbox'] === '[]'")
    lines = [json.loads(line) for line in (desk / "annotations" / "lost.jsonl").read_text().splitlines()]
    cases = [line["case"] for line in lines]
    assert len(cases) == len({*cases}) == 20, "each once, those whose answer was lost too"
    context.close()
    shutil.rmtree(run)


@pytest.fixture
def server(script, tmp_path):
    """Start a server of its own over `runs` at the same port each time, after the one before was killed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = []

    def start() -> str:
        for process in processes[-1:]:
            process.kill()
            process.wait()
        process = subprocess.Popen(script(SERVER, tmp_path / "runs", port), stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process.stdout.readline().strip()

    yield start, processes
    processes[-1].kill()


@pytest.mark.slow
def test_no_annotation_is_lost_when_the_server_is_killed_at_random_moments(browser, server, tmp_path):
    """Killed 0 to 0.3 s after each of 20 verdicts; each that is not stored is told, and sent to the next server."""
    write_run(tmp_path / "runs" / "killed", copies=3)
    (start, processes), source, told = server, random.Random(5), 0
    address = start()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(600_000)
    for number in range(20):
        page.goto(
            f"{address}?tab=judgments&run=killed&outcome=all&item=a{number % 7 + 1}{['', '-1', '-2'][number // 7]}"
        )
        page.locator("#case:not(.refreshing) .answer").first.wait_for()
        page.locator("#annotation-reader").fill("Ada")
        page.locator("h1").click()
        page.keyboard.press("y")
        page.wait_for_timeout(source.uniform(0, 300))
        processes[-1].kill()
        page.wait_for_function("() => !JSON.parse(localStorage['rewardlab-outbox']).some(one => !one.error)")
        waiting = page.evaluate("JSON.parse(localStorage['rewardlab-outbox']).map(one => one.case)")
        text = page.locator("#annotation-unstored").inner_text()
        assert all(f"The annotation of {case} is not stored." in text for case in waiting)
        told += bool(waiting)
        start()
        page.wait_for_function("() => localStorage['rewardlab-outbox'] === '[]'")
    lines = (tmp_path / "runs" / "annotations" / "killed.jsonl").read_text().splitlines()
    cases = [json.loads(line)["case"] for line in lines]
    assert len(cases) == len({*cases}) == 20 and told > 0
    page.close()


def test_definitions_are_shown_to_the_keyboard_and_by_a_click(visit, address):
    page = visit(address, "?tab=benchmarks&run=alone", ready="#facts table")
    metric = page.locator("#facts .metric", has_text="abstained")
    metric.focus()
    page.locator("#definition", has_text="cases for which the scorer gave no score").wait_for()
    assert metric.get_attribute("aria-describedby") == "definition"
    page.keyboard.press("Escape")
    page.locator("#definition").wait_for(state="detached")
    page.locator("#facts .metric", has_text="ties").click()
    page.locator("#definition", has_text="A tie is not right").wait_for()
    keys = [letter.get_attribute("data-letter") for letter in page.locator("#areas tr.overall .tick").all()]
    assert keys == ["A"] and "A: shortest" in page.locator("#areas .key").inner_text()
    assert "gap to the best baseline" in page.locator("#gaps").inner_text()


def test_two_windows_keep_each_others_bookmarks(browser, desk, desk_address):
    write_run(desk / "twice")
    context = browser.new_context()
    for case in ("a1", "a2"):
        page = context.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"{desk_address}?tab=judgments&run=twice&outcome=all&item={case}")
        expect_case(page, case)
    for page in context.pages:
        page.locator("#case-mark").click()
        page.get_by_role("button", name="★ Bookmarked").wait_for()
    assert json.loads(page.evaluate("localStorage['rewardlab-marks']"))["twice"] == ["a1", "a2"]
    context.close()


def test_boards_are_of_one_data_set_and_references_come_after_models(tmp_path, site):
    folder = tmp_path / "runs"
    for name, data in (("one", "a.jsonl"), ("two", "b.jsonl"), ("three", "a.jsonl")):
        run = write_evaluation(folder / name, pairs(4), {name: margins([1.0] * 4)})
        (run / "manifest.json").write_text(json.dumps({"started": "2026-01-01", "data": {f"/x/{data}": data}}))
    summary = json.loads((folder / "three" / "summary.json").read_text())
    summary["rows"][0]["role"] = "reference"
    (folder / "three" / "summary.json").write_text(json.dumps(summary))
    root = site.root.__class__(folder)
    boards = overview.overview(root).boards
    assert [(board.data, [one.scorer for one in board.standings]) for board in boards] == [
        ("a.jsonl", ["one", "three"]),
        ("b.jsonl", ["two"]),
    ]
    html = overview.later(site._replace(root=root), {})["leaderboard"]
    assert "4 cases of a.jsonl" in html and html.count('<td data-value="1">1</td>') == 1, "a reference has no rank"
