"""Axe finds no serious violation on any tab, light and dark; the focus can be seen; lists close behind it."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from rewardlab.apps.inspector.site import TABS

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import write_run
from tests.apps.inspector.trainings import logged, write_training

BASELINE = {"shortest": margins([-1.0, 1.0, -1.0, 1.0])}
RUNS = {"judgments": "ponds", "benchmarks": "good", "training": "rl"}
READY = {
    "overview": "#leaderboard table",
    "judgments": "#case .answer",
    "compare": "#margins .main-svg",
    "benchmarks": "#lengths .main-svg",
    "training": "#rl-kl .main-svg",
}


@pytest.fixture(scope="module")
def address(served, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("accessible") / "runs"
    write_evaluation(folder / "good", pairs(4), {"rm": margins([1.0] * 4)}, nulls=BASELINE)
    write_evaluation(folder / "weak", pairs(4), {"rm": margins([1.0, -1.0, -1.0, -1.0])}, nulls=BASELINE)
    write_run(folder / "ponds", copies=2)
    write_training(folder / "rl", [logged(step) for step in range(1, 6)])
    study = folder / "study"
    study.mkdir()
    (study / "report.md").write_text("# Study\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    (study / "config.yaml").write_text("{}")
    return served(folder)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_no_serious_violation(visit, address, tab, theme):
    page = visit(
        address,
        f"?tab={tab}&run={RUNS.get(tab, '')}&__theme={theme}",
        ready=READY.get(tab, "#tabs [role=tabpanel]:visible"),
    )
    page.locator(f"#tabs [role=tab][data-tab-id={tab}][aria-selected=true]").first.wait_for()
    page.locator("[aria-label='Empty value']").first.wait_for(state="detached")  # another figure that is still to come
    found = Axe().run(page).response["violations"]
    serious = {
        violation["id"]: [node["html"] for node in violation["nodes"]]
        for violation in found
        if violation["impact"] in ("serious", "critical")
    }
    assert serious == {}


def test_the_focus_can_be_seen_on_all_that_is_reached_by_tab(visit, address):
    page = visit(address, "?tab=judgments&run=ponds", ready="#case .answer")
    page.locator("#tabs [role=tab][aria-selected=true]").first.focus()
    reached, unseen = set(), []
    for _ in range(45):
        page.keyboard.press("Tab")
        seen, name = page.evaluate(
            """() => {
            const element = document.activeElement;
            const looks = [element, element.parentElement, element.closest("label, .wrap, .block")].filter(Boolean);
            const marked = looks.some(one => {
                const {outlineStyle, outlineWidth, boxShadow} = getComputedStyle(one);
                return (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || boxShadow !== "none";
            });
            return [marked, element.id || element.getAttribute("aria-label") || element.outerHTML.slice(0, 120)];
        }"""
        )
        reached.add(name)
        if not seen and not name.startswith("<body"):
            unseen.append(name)
    assert {"annotation-reader", "annotation-note", "cases", "case-link"} <= reached
    assert unseen == []


def test_a_list_closes_when_the_focus_moves_on(visit, address):
    """Defect 8: every list stayed open behind the focus."""
    page = visit(address, "?tab=judgments&run=ponds", ready="#case .answer")
    page.locator("#tabs [role=tab][aria-selected=true]").first.focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        page.wait_for_function("document.querySelectorAll('ul[role=listbox]').length <= 1")
    page.locator("#annotation-note").focus()
    page.wait_for_function("document.querySelectorAll('ul[role=listbox]').length === 0")
    assert page.evaluate("document.activeElement.id") == "annotation-note"


def test_a_list_has_all_runs(visit, served, tmp_path):
    """Defect 11: a list ended after 100 runs."""
    for number in range(120):
        folder = tmp_path / f"study-{number:03d}"
        folder.mkdir()
        (folder / "report.md").write_text("# Study\n")
        (folder / "config.yaml").write_text("{}")
    page = visit(served(tmp_path), "?tab=studies", ready="#study h1")
    page.get_by_label("Study", exact=True).click()
    page.get_by_role("option", name="study-119").wait_for()
    assert page.get_by_role("option").count() == 120
