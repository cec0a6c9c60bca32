"""The inspector in a real browser, over a hand-made run; and what it refuses to listen on."""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from rewardlab.apps.config import InspectConfig
from rewardlab.apps.inspector import build, launch, serve
from rewardlab.rm.errors import DataError, UsageError

ROOT = Path(__file__).resolve().parents[2]
VIEWS = runpy.run_path(str(Path(__file__).with_name("test_inspector_views.py")))
FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    """The seven cases four times: 12 wrong, 8 right, 4 ties, 4 abstained."""
    return str(VIEWS["write_run"](tmp_path_factory.mktemp("runs") / "eval", copies=4))


@pytest.fixture(scope="module")
def address(run):
    page = build(run)
    yield launch(page)
    page.close(verbose=False)


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS.split(), "--no-first-run"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, address):
    """A fresh visit, which ends without an error, a dialog, a script of the data, or a request to elsewhere."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(15_000)
    strange = []
    page.on("console", lambda message: strange.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: strange.append(str(error)))
    page.on("dialog", lambda dialog: (strange.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: None if request.url.startswith((address, "data:")) else strange.append(request))
    page.goto(address)
    page.wait_for_selector("#item .answer")
    yield page
    assert page.evaluate("window.hacked") is None
    assert strange == []
    page.close()


def expect_cases(page, *cases: str) -> None:
    """The first column of the table becomes these cases."""
    page.wait_for_function(
        "cases => [...document.querySelectorAll('#items [data-col=\"0\"]')].map(e => e.innerText).join() == cases",
        arg=",".join(cases),
    )


def expect_place(page, text: str) -> None:
    page.locator("#place", has_text=text).wait_for()


def choose(page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option).click()


def pick(page, label: str) -> None:
    """Choose an outcome; its row is drawn anew with every answer, and a click that falls into that moment is lost."""
    from playwright.sync_api import TimeoutError

    radio = page.get_by_label(label)
    for _ in range(5):
        radio.click()
        try:
            radio.and_(page.locator(":checked")).wait_for(timeout=3_000)
            return
        except TimeoutError:
            continue
    raise AssertionError(f"'{label}' cannot be chosen")


def outcomes(page) -> set[str]:
    return set(page.locator('#items [data-col="2"]').all_inner_texts())


# ---- in the browser ----


def test_the_page_opens_on_what_the_first_scorer_got_wrong(page):
    assert page.locator("h1").inner_text() == "ponds judged by runs/rm"
    expect_place(page, "item 1 of 12")
    expect_cases(page, "a1", "a2", "a7", "a1-1", "a2-1", "a7-1", "a1-2", "a2-2", "a7-2", "a1-3")
    assert outcomes(page) == {"wrong"}
    assert page.get_by_text("tie (4)").is_visible()


def test_an_outcome_shows_its_cases_only(page):
    pick(page, "tie (4)")
    expect_cases(page, "a4", "a4-1", "a4-2", "a4-3")
    assert outcomes(page) == {"tie"}
    pick(page, "abstained (4)")
    expect_cases(page, "a5", "a5-1", "a5-2", "a5-3")
    assert "abstained: no score" in page.locator("#item").inner_text()


def test_a_low_margin_narrows_it_and_a_wrong_one_is_told(page):
    margin = page.get_by_label("Largest |margin|")
    margin.fill("0.125")
    expect_cases(page, "a2", "a2-1", "a2-2", "a2-3")
    margin.fill("<b>low")
    page.get_by_text("empty for any; got '<b>low'").first.wait_for()
    margin.fill("")
    expect_place(page, "item 1 of 12")


def test_a_subset_narrows_it(page):
    choose(page, "Subset", "hard (4)")
    expect_cases(page, "a7", "a7-1", "a7-2", "a7-3")
    choose(page, "Subset", "all (28)")
    expect_place(page, "item 1 of 12")


def test_search_and_order(page):
    pick(page, "all (28)")
    page.get_by_label("Search").fill("name a ")
    expect_place(page, "item 1 of 16")
    choose(page, "Order", "smallest |margin| first")
    expect_cases(page, "a4", "a4-1", "a4-2", "a4-3", "a6", "a6-1", "a6-2", "a6-3", "a2", "a2-1")
    page.get_by_label("Search").fill("no such text")
    page.get_by_text("No case passes").wait_for()
    expect_cases(page, "")


def test_a_hostile_scorer_name_is_text_and_another_scorer_has_other_outcomes(page):
    choose(page, "Scorer", f"{VIEWS['NULL']} (null)")
    page.get_by_text("No case passes").wait_for()
    pick(page, "right (28)")
    expect_place(page, "item 1 of 28")
    assert VIEWS["NULL"] in page.locator("#item tr.mine").inner_text()


def test_a_click_on_a_row_shows_its_answers_side_by_side(page):
    page.locator('#items [data-row="1"][data-col="6"]').click()
    expect_place(page, "item 2 of 12")
    newt, oak = page.locator("#item .answer").all()
    assert "newt" in newt.inner_text() and "right" not in newt.inner_text()
    assert "oak" in oak.inner_text() and "✓ right" in oak.inner_text()
    left, right = newt.bounding_box(), oak.bounding_box()
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    assert "Name a tree" in page.locator("#item .prompt").inner_text()


def test_a_hostile_prompt_is_shown_as_it_was_written(page):
    page.locator('#items [data-row="0"][data-col="0"]').click()
    assert page.locator("#item .prompt .text").inner_text() == VIEWS["HOSTILE"]
    assert "Good <b>moss</b>" in page.locator("#item .answer").first.inner_text()


def test_buttons_walk_over_items_and_pages_and_stop_at_the_ends(page):
    for button, place in [
        ("previous item", 1),
        ("next item", 2),
        ("next page", 11),
        ("next item", 12),
        ("next item", 12),
        ("previous page", 1),
    ]:
        page.get_by_role("button", name=button).click()
        expect_place(page, f"item {place} of 12")
    expect_cases(page, "a1", "a2", "a7", "a1-1", "a2-1", "a7-1", "a1-2", "a2-2", "a7-2", "a1-3")
    page.get_by_role("button", name="next page").click()
    expect_cases(page, "a2-3", "a7-3")


def test_the_report_stands_beside_it_without_its_scripts(page):
    page.get_by_role("tab", name="Report").click()
    page.locator("#report", has_text="Seven cases").wait_for()
    assert page.locator("#report script").count() == 0


# ---- listening ----


def read(url: str) -> bytes:
    """Straight from this machine, whatever proxy the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20).read()


def test_nothing_is_reported_to_others(address):
    assert json.loads(read(f"{address}config"))["analytics_enabled"] is False
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert b"Content-Security-Policy" in read(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "example.org", ""])
def test_another_host_needs_a_token(run, host):
    with pytest.raises(UsageError, match=f"--host {host} .*--token"):
        serve(InspectConfig(run=run, host=host, port=0))


def test_with_a_token_nothing_is_read_without_it(run):
    page = build(run)
    address = launch(page, "0.0.0.0", 0, token="sesame")
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(f"{address}config")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
        with pytest.raises(urllib.error.HTTPError, match="400"):
            opener.open(f"{address}login", b"username=rewardlab&password=wrong")
        opener.open(f"{address}login", b"username=rewardlab&password=sesame")
        assert json.loads(opener.open(f"{address}config").read())["title"] == "rewardlab · ponds"
    finally:
        page.close(verbose=False)


def test_a_busy_port_is_told_with_the_way_out(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port} .*--port 0 for a free one"):
            serve(InspectConfig(run=run, port=port))
    with pytest.raises(UsageError, match="cannot listen on 127.0.0.1:99999 .*--port"):
        serve(InspectConfig(run=run, port=99999))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_in_the_environment_does_not_stand_between(run, host, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org")
    page = build(run)
    assert b"rewardlab" in read(launch(page, host))
    assert os.environ["no_proxy"].startswith("example.org,")
    page.close(verbose=False)


def test_a_run_that_is_not_there_is_told_before_anything_listens(tmp_path):
    with pytest.raises(UsageError, match="no run folder"):
        serve(InspectConfig(run=str(tmp_path / "nowhere"), port=0))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no items.parquet"):
        serve(InspectConfig(run=str(tmp_path / "empty"), port=0))


def test_the_verb_serves_until_it_is_interrupted(run):
    script = (
        f"import signal, sys, types; m = types.ModuleType('rewardlab'); m.__path__ = [{str(ROOT)!r}]; "
        "sys.modules['rewardlab'] = m; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "inspect", run, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if "http://127.0.0.1:" in line)
        url = next(word for word in line.split() if word.startswith("http"))
        assert b"rewardlab" in read(url)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert json.loads(output.splitlines()[-1]) == {"run": run, "url": url}
