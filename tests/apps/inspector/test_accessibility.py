import pytest
from axe_playwright_python.sync_playwright import Axe
from rewardlab.apps.inspector.site import TABS

RUNS = {"judgments": "ponds", "benchmarks": "alone", "training": "rl", "compare": "before"}
READY = {
    "overview": "#leaderboard table",
    "judgments": "#case .answer",
    "compare": "#margins .main-svg",
    "benchmarks": "#lengths .main-svg",
    "training": "#rl-kl .main-svg",
}
SEEN = """() => {
    const element = document.activeElement;
    const looks = [element, element.parentElement, element.closest("label, .wrap, .block")].filter(Boolean);
    const marked = looks.some(one => {
        const {outlineStyle, outlineWidth, boxShadow} = getComputedStyle(one);
        return (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || boxShadow !== "none";
    });
    return [marked, element.id || element.getAttribute("aria-label") || element.outerHTML.slice(0, 120)];
}"""
"""JavaScript: whether the element with the focus looks so, and its name."""


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_no_serious_violation(visit, address, tab, theme):
    query = f"?tab={tab}&run={RUNS.get(tab, '')}&__theme={theme}"
    page = visit(address, query, ready=READY.get(tab, "#tabs [role=tabpanel]:visible"))
    page.locator(f"#tabs [role=tab][data-tab-id={tab}][aria-selected=true]").first.wait_for()
    page.locator("[aria-label='Empty value']").first.wait_for(state="detached")  # another figure that is still to come
    if tab == "judgments":
        page.locator("#why-section button:enabled", has_text="Explain").wait_for()
    page.wait_for_function("document.getAnimations().every(one => one.playState !== 'running')")
    found = Axe().run(page).response["violations"]
    serious = {
        violation["id"]: [node["html"] for node in violation["nodes"]]
        for violation in found
        if violation["impact"] in ("serious", "critical")
    }
    assert serious == {}


@pytest.mark.slow
def test_no_tab_is_wider_than_a_telephone(visit, address):
    ready = READY | {"judgments": "#cases"}  # the case opens over the list
    for tab in TABS:
        page = visit(address, f"?tab={tab}&run={RUNS.get(tab, '')}", width=390, ready=ready.get(tab, "#tabs"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        assert page.locator(".modebar-btn").count() == 0, "a bar of buttons covered the figures"


def test_the_focus_can_be_seen_and_a_list_closes_when_it_moves_on(visit, address):
    page = visit(address, "?tab=judgments&run=ponds", ready="#case .answer")
    page.locator("#tabs [role=tab][aria-selected=true]").first.focus()
    reached, unseen = set(), []
    for _ in range(45):
        page.keyboard.press("Tab")
        seen, name = page.evaluate(SEEN)
        reached.add(name)
        if not seen and not name.startswith("<body"):
            unseen.append(name)
        page.wait_for_function("document.querySelectorAll('ul[role=listbox]').length <= 1")
    assert {"annotation-reader", "annotation-note", "cases", "case-link"} <= reached
    assert unseen == []
    assert sum('name="outcome"' in name for name in reached) == 1, "a group of five is one stop"
    page.locator("#annotation-note").focus()
    page.wait_for_function("document.querySelectorAll('ul[role=listbox]').length === 0")
    assert page.evaluate("document.activeElement.id") == "annotation-note"
