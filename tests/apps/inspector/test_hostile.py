import json
import re
from pathlib import Path

import pytest
from rewardlab.apps.inspector.html import HIDDEN
from rewardlab.apps.inspector.tabs.judgments import queries as judgments
from rewardlab.apps.inspector.tabs.judgments.annotation.annotations import add, annotate
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.queries import open_run
from rewardlab.apps.runs.evaluation_files import write_evaluation
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case
from rewardlab.rm.types import user_turn

from tests.apps.inspector.acts import expect_place
from tests.apps.inspector.payloads import OUT, PAYLOADS
from tests.apps.inspector.test_server import read
from tests.conftest import PATIENCE

TOGETHER = 5
MEGABYTE = "<img src=x onerror=window.hacked=1> " * 28_000
ACTIVE = "script, img, svg, iframe, object, embed, link, meta, base, form, video, audio, style, [href^=java]"


def texts(start: int) -> str:
    """Five payloads, each on its own lines."""
    return "\n".join(PAYLOADS[(start + k) % len(PAYLOADS)] for k in range(TOGETHER))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, served) -> str:
    """The page over eight cases with all payloads in prompts and answers; names, subsets and reasons too."""
    folder = tmp_path_factory.mktemp("place") / "<img src=x onerror=window.hacked=1>" / "<svg onload=window.hacked=1>"
    folder.mkdir(parents=True)
    cases = [
        Case(PAYLOADS[k], user_turn(texts(k)), (texts(k + 17), texts(k + 31)), (0,), PAYLOADS[k + 1])
        for k in range(0, len(PAYLOADS), TOGETHER)
    ]
    cases.append(Case("long", ({"role": "system", "content": PAYLOADS[0]},), (MEGABYTE, "short"), (1,), "long"))
    scores = {case.id: (0.0, 1.0) for case in cases[:-2]} | {cases[-2].id: PAYLOADS[6], "long": (1.0, 0.0)}
    scorers = [StoredScores(PAYLOADS[k], scores) for k in (0, 6, 16)]
    write_evaluation(evaluate(pairs(), cases, scorers, samples=20), folder)
    (folder / "report.md").write_text("# report\n\n" + "\n\n".join(PAYLOADS))
    (folder / "manifest.json").write_text("{}")
    add(folder, annotate(item(open_run(folder), PAYLOADS[0], cases[0].id), "tie", PAYLOADS[1], texts(0)))
    return served(Path(folder.parent))


def test_they_do_nothing_as_markdown_are_read_as_they_were_written_and_make_an_inert_report(visit, hostile):
    page = visit(hostile, "?tab=judgments&outcome=all", ready="#case .rendered")
    for number in range(8):
        expect_place(page, f"{number + 1} of 8")
        page.locator("#case:not(.refreshing) .rendered").first.wait_for()
        assert page.locator(f"#case .rendered :is({ACTIVE}, a, [style], [src])").count() == 0
        page.keyboard.press("j" if number < 7 else "r")
    page.locator("#case .text:not(.rendered)", has_text="more characters").wait_for()
    assert len(page.locator("#case .answer .text").first.inner_text()) < 101_000
    for number in reversed(range(7)):
        page.keyboard.press("k")
        start = number * TOGETHER
        expect_place(page, f"{number + 1} of 8")
        page.locator("#case .prompt .text:not(.rendered)", has_text=visible(PAYLOADS[start])[:40]).wait_for()
        shown = page.locator("#case :is(.prompt, .answer) .text").all_inner_texts()
        assert shown == [visible(texts(start)), visible(texts(start + 17)), visible(texts(start + 31))]
        assert visible(PAYLOADS[start]).split("\n")[0] in page.locator("#case .prompt .head").inner_text()
        assert page.locator(f"#judged .rl :is({ACTIVE})").count() == 0
    assert page.get_by_label("Subset", exact=True).locator("option").count() >= 9
    page.locator("#report").locator("..").locator("summary").click()
    page.locator("#report h2", has_text="report").wait_for()
    assert "<img src=x onerror" in page.locator("#report").inner_text()
    assert page.locator("#report :is(img, image, picture, video, audio, style)").count() == 0
    assert page.locator("#report :is(script, iframe, object, embed, form, base, meta, link)").count() == 0
    assert page.locator("#report a[href^='javascript:' i], #report [onerror], #report [onload]").count() == 0


def test_a_picture_from_elsewhere_is_stopped_before_it_asks(browser, hostile, monkeypatch):
    """Where a picture of a report came to the page as it is, the browser was told to load nothing from elsewhere."""
    monkeypatch.setattr(judgments, "report_html", lambda text: f'<img src="{OUT}.png">')
    monkeypatch.setattr(judgments, "_open", judgments._open.__wrapped__)
    page, asked = browser.new_page(), []
    page.set_default_timeout(PATIENCE * 1000)
    page.on("requestfailed", lambda one: asked.append((one.url, one.failure)))
    page.on("requestfinished", lambda one: None if one.url.startswith(hostile) else asked.append((one.url, "came")))
    page.goto(f"{hostile}?tab=judgments")
    page.locator("#report").locator("..").locator("summary").click()
    page.locator("#report img").first.wait_for(state="attached")
    while f"{OUT}.png" not in {url for url, _ in asked}:  # ends with the test's own limit
        page.wait_for_timeout(50)
    elsewhere = [(url, why) for url, why in asked if not url.startswith((hostile, "data:", "blob:"))]
    assert f"{OUT}.png" in {url for url, _ in elsewhere} and {why for _, why in elsewhere} == {"csp"}
    page.close()


def test_a_page_holds_nothing_of_them(hostile):
    """The list of runs comes with the content of a tab, and the name of the folder as text."""
    text = read(hostile).decode()
    assert "<svg onload" not in text and "<img src=x" not in text
    start = text.index("window.gradio_config = ") + len("window.gradio_config = ")
    config, _ = json.JSONDecoder().raw_decode(text[start:])
    assert "&lt;img src=x onerror" in json.dumps(config) and "<svg onload=window.hacked=1>" not in json.dumps(config)


def visible(text: str) -> str:
    """As `html.shown` has it: control characters by their pictures, direction marks by their numbers."""

    def mark(found: re.Match[str]) -> str:
        code = ord(found[0])
        return chr(0x2400 + code) if code < 32 else f"U+{code:04X}"

    return HIDDEN.sub(mark, text)
