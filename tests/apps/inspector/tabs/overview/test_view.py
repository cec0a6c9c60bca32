"""The overview in a browser: the first tab, sorted, filtered, and leading to a comparison."""

from pathlib import Path

import pytest
from rewardlab.apps.runs.evaluation_resume import write_plan

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.trainings import logged, write_training

BASELINE = {"shortest": margins([-1.0, 1.0, -1.0, 1.0])}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("overview") / "runs"
    write_evaluation(folder / "zeta", pairs(4), {"good": margins([1.0] * 4)}, nulls=BASELINE)
    write_evaluation(folder / "alpha", pairs(4), {"weak": margins([1.0, -1.0, -1.0, -1.0])}, nulls=BASELINE)
    write_evaluation(folder / "mid", pairs(4), {"fair": margins([1.0, 1.0, 1.0, -1.0])}, nulls=BASELINE)
    (write_evaluation(folder / "aaa", pairs(2), {"rm": margins([1.0] * 2)}) / "summary.json").write_text("{")
    running = folder / "running.partial"
    running.mkdir()
    (running / "config.yaml").write_text("benchmark: pairs\n")
    write_plan(running, 1024, 2)
    (running / "progress" / "000").mkdir()
    (running / "progress" / "000" / "000000.jsonl").write_text("[1.0, 0.0]")
    write_training(folder / "rl", [logged(step) for step in (1, 2, 3)])
    return folder


@pytest.fixture(scope="module")
def address(runs, served) -> str:
    return served(runs)


def models(page) -> list[str]:
    return page.locator("#leaderboard tbody tr:visible th.name").all_inner_texts()


def test_the_page_opens_on_the_best_model_and_a_damaged_run_is_told(visit, address):
    page = visit(address, ready="#leaderboard table")
    assert models(page) == ["good", "fair", "weak"]
    assert page.locator("#leaderboard .range").count() == 3 and page.locator("#leaderboard .tick").count() == 3
    page.locator("#runs", has_text="is damaged").wait_for()
    assert page.locator("#runs svg polyline").count() == 3
    assert page.locator("#leaderboard").get_by_role("link", name="fair", exact=True).get_attribute("href") == (
        "?tab=benchmarks&run=mid&scorer=fair"
    )


def test_a_damaged_run_is_not_where_a_reader_lands(visit, address):
    """Defect 12: the first run of the list was opened, also where it is damaged; here `aaa`."""
    page = visit(address, ready="#leaderboard table")
    for tab, ready in (("Judgments", "#case .answer"), ("Benchmarks", "#facts table"), ("Compare", "#agreement")):
        page.get_by_role("tab", name=tab, exact=True).click()
        page.locator(ready).first.wait_for()
        page.wait_for_url("**run=alpha*")
        assert "is damaged" not in page.locator("#tabs [role=tabpanel]:visible").first.inner_text()


def test_a_running_evaluation_is_shown_as_running_and_is_no_study(visit, address):
    """Defect 14: it stood under Studies."""
    page = visit(address, ready="#leaderboard table")
    page.locator("#runs", has_text="256 judgments").wait_for()
    assert page.locator("#runs progress").get_attribute("value") == "12"
    page.get_by_role("tab", name="Studies").click()
    page.locator("#studies-note", has_text="No study is here yet").wait_for()
    page.get_by_role("tab", name="Judgments").click()
    page.locator("#judgments-toolbar").get_by_label("Run", exact=True).first.click()
    page.get_by_role("option", name="running.partial (running or cut off)").wait_for()


def test_heads_sort_the_field_filters_and_two_models_are_compared(visit, address):
    page = visit(address, ready="#leaderboard table")
    for head, order in (
        ("model", ["fair", "good", "weak"]),
        ("model", ["weak", "good", "fair"]),
        ("overall, %", ["good", "fair", "weak"]),
        ("overall, %", ["weak", "fair", "good"]),
        ("run", ["weak", "fair", "good"]),
    ):
        page.locator("#leaderboard thead").get_by_role("button", name=head, exact=True).click()
        assert models(page) == order
    page.locator("#board-filter").fill("ZETA")
    assert models(page) == ["good"]
    page.locator("#board-filter").fill("")
    compare = page.locator("#board-compare")
    for name in ("good", "weak", "fair"):  # the last two of three
        page.get_by_role("checkbox", name=f"compare {name} of").check()
    assert compare.get_attribute("href") == "?tab=compare&run=alpha&scorer=weak&with=mid&other=fair"
    page.get_by_role("checkbox", name="compare weak of").uncheck()
    assert compare.get_attribute("aria-disabled") == "true" and compare.get_attribute("href") is None


def test_what_a_reader_chose_stays_when_a_run_is_added(visit, served, tmp_path):
    write_evaluation(tmp_path / "one", pairs(4), {"first": margins([1.0] * 4)})
    page = visit(served(tmp_path), ready="#leaderboard table")
    page.get_by_role("checkbox", name="compare first of").check()
    page.locator("#leaderboard thead").get_by_role("button", name="model", exact=True).click()
    write_evaluation(tmp_path / "two", pairs(4), {"a second": margins([-1.0] * 4)})
    page.locator("#leaderboard", has_text="a second").wait_for()
    page.wait_for_function(
        "document.querySelector('#leaderboard input[type=checkbox]:checked')?.value.includes('first')"
    )
    assert models(page) == ["a second", "first"]


@pytest.mark.slow
def test_a_narrow_screen_scrolls_no_further_than_its_width_and_an_empty_folder_has_commands(
    visit, address, served, tmp_path
):
    page = visit(address, width=390, ready="#leaderboard table")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page = visit(served(tmp_path), ready="#runs .empty")
    assert "rewardlab eval" in page.locator("#runs .empty").inner_text()
