"""A run on its benchmark, and studies, in a browser."""

from threading import Event

import pytest
from rewardlab.apps.inspector.tabs.results import view as results
from rewardlab.judges.types import Case
from rewardlab.rm.types import user_turn

from tests.apps.inspector.acts import clicked_link
from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import write_run
from tests.conftest import ROOT

AREAS = ("alpacaeval-easy", "hep-go", "math-prm")  # RewardBench's section Chat, and twice Reasoning
MARGINS = [1.0, 2.0, 0.5, -3.0, None, -1.0]


@pytest.fixture(scope="module")
def address(tmp_path_factory, served) -> str:
    folder = tmp_path_factory.mktemp("runs")
    run = write_evaluation(folder / "eval", pairs(6), {"rm": margins(MARGINS)}, nulls={"shortest": margins([-1.0] * 6)})
    with (run / "report.md").open("a") as report:
        report.write(
            "\n<img src=x onerror=window.hacked=1> [a](javascript:window.hacked=1) ![b](http://elsewhere/b.png)\n"
        )
    write_run(folder / "old")
    sections = [Case(f"c{k}", user_turn(f"q {k}"), ("x" * 700, "y" * 30), (0,), AREAS[k // 2]) for k in range(6)]
    write_evaluation(
        folder / "sections", sections, {"rm": margins([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])}, suite="rewardbench"
    )
    return served(folder)


def test_a_run_and_one_of_its_scorers(address, visit):
    page = visit(address, "?tab=benchmarks&run=eval", ready="#facts table")
    rows = page.locator("#areas tbody tr")
    assert [row.split()[0] for row in rows.all_inner_texts()] == ["overall", "a", "b"]
    dots, track = page.locator("#areas .range b"), page.locator("#areas td .track").first
    for row, share in enumerate((0.6, 1.0, 1 / 3)):
        dot, axis = dots.nth(row).bounding_box(), track.bounding_box()
        assert (dot["x"] + dot["width"] / 2 - axis["x"]) / axis["width"] == pytest.approx(share, abs=0.01)
    page.get_by_text("over 5 cases").wait_for()
    page.get_by_label("Scorer", exact=True).last.click()
    page.get_by_role("option", name="shortest (baseline)").click()
    page.get_by_text("over 6 cases").wait_for()
    page.wait_for_url("**scorer=shortest**")


def test_sections_and_subsets_have_numbers_and_one_axis(address, visit):
    """Defect 4: their scales differed and were cut off at 100. Defect 5: the table had no sections."""
    page = visit(address, "?tab=benchmarks&run=sections", ready="#facts table")
    heads = page.locator("#facts thead th").all_inner_texts()
    cells = page.locator("#facts tbody tr").first.locator("th, td").all_inner_texts()
    shares = {name: cells[heads.index(name)].split("\n")[0] for name in ("Chat", "Reasoning")}
    assert shares == {"Chat": "100.0", "Reasoning": "50.0"}
    marks = {}
    for row in page.locator("#areas tbody tr").all():
        dot, axis = row.locator(".range b").bounding_box(), row.locator(".track").bounding_box()
        marks[row.locator("th").inner_text()] = (dot["x"] + dot["width"] / 2 - axis["x"]) / axis["width"]
        assert dot["width"] == dot["height"] and dot["x"] + dot["width"] <= row.locator("td").last.bounding_box()["x"]
    shares = {"overall": 0.75, "Chat": 1.0, "alpacaeval-easy": 1.0, "Reasoning": 0.5, "hep-go": 0.5, "math-prm": 0.5}
    assert marks == pytest.approx(shares, abs=0.01)


def test_what_is_loaded_has_a_skeleton_and_what_is_replaced_is_dimmed(address, visit, monkeypatch):
    going, opened = Event(), results._open
    monkeypatch.setattr(results, "_open", lambda *asked: (going.wait(), opened(*asked))[1])
    page = visit(address, "?tab=benchmarks&run=eval", ready="#facts .skeleton")
    going.set()
    page.locator("#facts table").wait_for()
    assert page.locator("#facts .skeleton").count() == 0
    going.clear()
    page.get_by_label("Run", exact=True).last.click()
    page.get_by_role("option", name="sections").click()
    page.locator("#facts .pending table").wait_for()
    page.wait_for_function("() => getComputedStyle(document.querySelector('#facts .pending')).opacity === '0.5'")
    going.set()
    page.locator("#facts .pending").wait_for(state="detached")
    page.locator("#facts h2", has_text="rewardbench").wait_for()


def test_the_axis_of_lengths_has_whole_numbers(address, visit):
    """Defect 3: its labels were 2, 5, 100, 2, 5."""
    page = visit(address, "?tab=benchmarks&run=sections", ready="#lengths .point")
    labels = page.locator("#lengths .xtick text").all_text_contents()
    assert labels == ["50", "100", "200", "500"]


CONTRAST = """() => {
    const channels = text => text.match(/[\\d.]+/g).map(Number);
    const luminance = text => channels(text).slice(0, 3).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0);
    const behind = element => {
        const colour = getComputedStyle(element).backgroundColor;
        return (channels(colour)[3] ?? 1) ? colour : behind(element.parentElement);
    };
    return [...document.querySelectorAll("#calibration text, #lengths text")].filter(e => e.textContent).map(text => {
        const style = getComputedStyle(text), shades = [style.fill, behind(text.closest(".js-plotly-plot"))];
        const [low, high] = shades.map(luminance).sort((a, b) => a - b);
        return {text: text.textContent, font: style.fontFamily, contrast: (high + 0.05) / (low + 0.05)};
    });
}"""
"""JavaScript: every text of the figures with its font, and its contrast as WCAG 2.2 defines it."""


def test_texts_of_figures_have_the_page_s_font_and_contrast_and_points_open_their_cases(address, visit):
    for theme in ("light", "dark"):
        page = visit(address, f"?tab=benchmarks&run=eval&__theme={theme}", ready="#calibration .point")
        page.locator("#lengths .point").first.wait_for()
        texts = page.evaluate(CONTRAST)
        assert {"Calibration", "Score against length", "share right"} <= {text["text"] for text in texts}
        assert all("Source Sans Pro" in text["font"] for text in texts)
        assert min(text["contrast"] for text in texts) >= 4.5
    link = clicked_link(page, page.locator("#calibration .point").first)
    assert link.startswith("?tab=judgments&run=eval&scorer=rm&outcome=wrong&order=worst&margin=")


def test_the_report_s_html_stays_inert(address, visit):
    page = visit(address, "?tab=benchmarks&run=eval&scorer=shortest", ready="#facts table")
    page.get_by_text("over 6 cases").wait_for()
    page.get_by_role("button", name="Report").last.click()
    report = page.locator("#run-report")
    report.get_by_text("<img src=x").wait_for()
    assert report.locator("img, script, a[href^=javascript]").count() == 0


@pytest.mark.slow
def test_a_run_of_an_older_version_is_a_sentence_and_the_page_goes_on(address, visit):
    page = visit(address, "?tab=benchmarks&run=old", width=390, ready="#benchmarks-note p")
    assert "of another version" in page.locator("#benchmarks-note").inner_text()
    assert page.locator("#facts table").count() == 0
    page.get_by_label("Run").last.click()
    page.get_by_role("option", name="eval").click()
    page.locator("#facts table").wait_for()
    page.locator("#areas .range").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_a_committed_study_has_its_tables_and_figures(served, visit):
    page = visit(served(ROOT / "benchmarks" / "results"), "?tab=studies&run=overoptimisation", ready="#study img")
    assert page.locator("#study img").count() == 2 and page.locator("#study table").count() > 0
    assert page.locator("#study img").first.evaluate("image => image.complete && image.naturalWidth > 100")
    page.get_by_label("Study").click()
    page.get_by_role("option", name="every_suite").click()
    page.locator("#study h1", has_text="Every suite").wait_for()
    page.wait_for_url("**run=every_suite")


def test_a_folder_without_such_runs_says_what_writes_one(tmp_path, served, visit):
    (tmp_path / "empty").mkdir()
    address = served(tmp_path / "empty")
    for tab, command in (
        ("studies", "rewardlab study"),
        ("training", "rewardlab rl"),
        ("benchmarks", "rewardlab eval"),
        ("compare", "rewardlab eval"),
    ):
        page = visit(address, f"?tab={tab}", ready=f"#{tab}-note p")
        assert command in page.locator(f"#{tab}-note").inner_text()
