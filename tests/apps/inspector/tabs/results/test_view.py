from threading import Event

import pytest
from rewardlab.apps.inspector.tabs.results import view as results

from tests.apps.inspector.acts import choose
from tests.apps.inspector.gallery import write_study
from tests.apps.inspector.tabs.studies.test_queries import PNG


def test_a_run_is_dimmed_while_another_is_loaded_and_its_dots_lie_on_one_axis(address, visit, monkeypatch):
    going, opened = Event(), results.view
    monkeypatch.setattr(results, "view", lambda *asked: (going.wait(), opened(*asked))[1])
    page = visit(address, "?tab=benchmarks&run=sections", ready="#facts .skeleton")
    going.set()
    page.locator("#facts table").wait_for()
    assert page.locator("#facts .skeleton").count() == 0
    marks = {}
    for row in page.locator("#areas tbody tr").all():
        dot, axis = row.locator(".range b").bounding_box(), row.locator(".track").bounding_box()
        marks[row.locator("th").inner_text()] = (dot["x"] + dot["width"] / 2 - axis["x"]) / axis["width"]
        assert dot["width"] == dot["height"] and dot["x"] + dot["width"] <= row.locator("td").last.bounding_box()["x"]
    shares = {"overall": 0.75, "Chat": 1.0, "alpacaeval-easy": 1.0, "Reasoning": 0.5, "hep-go": 0.5, "math-prm": 0.5}
    assert marks == pytest.approx(shares, abs=0.01)
    page.locator("#lengths .point").first.wait_for()
    assert page.locator("#lengths .xtick text").all_text_contents() == ["50", "100", "200", "500"]
    going.clear()
    choose(page, "Run", "alone", within="#benchmarks")
    page.locator("#benchmarks.pending #facts table").wait_for()
    page.wait_for_function("() => getComputedStyle(document.querySelector('#facts')).opacity === '0.5'")
    going.set()
    page.locator("#benchmarks:not(.pending)").wait_for()
    page.get_by_text("over 5 cases").wait_for()
    choose(page, "Scorer", "shortest (baseline)", within="#benchmarks")
    page.get_by_text("over 6 cases").wait_for()
    page.wait_for_url("**run=alone&scorer=shortest**")


@pytest.mark.slow
def test_a_study_has_its_tables_and_figures(desk, desk_address, visit):
    for name, text in (
        ("drawn", "# Drawn\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n![all](a.png)\n"),
        ("told", "# Told\n"),
    ):
        write_study(desk / name, text)
        (desk / name / "a.png").write_bytes(PNG)
    page = visit(desk_address, "?tab=studies&run=drawn", ready="#study img")
    assert page.locator("#study img").count() == 1 and page.locator("#study table").count() > 0
    assert page.locator("#study img").first.evaluate("image => image.complete && image.naturalWidth === 5")
    choose(page, "Study", "told")
    page.locator("#study h2", has_text="Told").wait_for()
    page.wait_for_url("**run=told")
