from urllib.parse import parse_qs, urlsplit

import pytest
from rewardlab.apps.inspector.tabs.compare import queries as views
from rewardlab.apps.inspector.tabs.compare import view as compare
from rewardlab.rm.errors import DataError

from tests.apps.inspector.acts import again, click_point
from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import NULL

NAMES = ("run", "scorer", "with", "other")
WRONG = ["wrong", "8", "4", "0", "4"]


def query_of(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)


def test_two_runs_are_compared_and_a_cell_a_flip_and_a_point_lead_to_their_cases(address, visit):
    page = visit(address, "?tab=compare&run=before&with=after", ready="#statistics")
    assert page.locator("#agreement tbody tr").nth(1).inner_text().split() == WRONG
    assert page.locator("#flips tbody tr").count() == 16 and "large " in page.locator("#verdict").inner_text()
    page.evaluate("window.unloaded = false")
    click_point(page, page.locator("#margins .scatterlayer .point").first)
    page.wait_for_url("**tab=judgments**")
    opened = query_of(page.url)
    assert (opened["run"], opened["scorer"]) == (["before"], ["small"])
    assert opened["item"][0] in {case.id for case in pairs(32)}
    page.locator("#case .answer").first.wait_for()
    page.go_back()
    page.locator("#statistics").wait_for()
    assert page.evaluate("window.unloaded") is False, "nothing reloads the page"
    page.get_by_text("gained (8)").click()
    page.locator("#flip-place", has_text="1 to 8 of 8").wait_for()
    page.wait_for_url("**flips=gained")
    flip = query_of(page.locator("#flips tbody tr").first.locator("a").first.get_attribute("href"))
    assert (flip["tab"], flip["run"], flip["scorer"]) == (["judgments"], ["before"], ["small"])
    asked = query_of(page.url)
    assert [asked[name] for name in ("scorer", "with", "other")] == [["small"], ["after"], ["large"]]
    cell = page.locator("#agreement tbody tr").nth(1).locator("a").first.get_attribute("href")
    page.locator(f"#agreement a[href='{cell}']").click()
    page.locator("#flip-place", has_text="1 to 8 of 8").wait_for()
    page.wait_for_url("**flips=wrong-right*")
    page = again(visit, page, ready="#statistics")
    assert page.locator("#agreement tbody tr").nth(1).inner_text().split() == WRONG


def test_what_does_not_go_together_is_a_sentence_and_a_hostile_scorer_is_text(site):
    for asked, sentence in (
        (
            ("before", "small", "ponds", "runs/rm"),
            "before is a run of pairs, ponds of ponds; compare runs of one suite",
        ),
        (("before", "small", "aaa", "rm"), "aaa/summary.json is damaged"),
        (("after", "large", "after", "large"), "is on both sides"),
    ):
        parts = compare.view(site, dict(zip(NAMES, asked, strict=True))).parts
        assert sentence in parts["differences"] and parts.keys() == {"compare-controls", "differences"}
    asked = dict(zip(NAMES, ("before", "small", "before", "<nobody>"), strict=True))
    found = compare.view(site, asked)
    assert found.query["other"] == NULL and "<img" not in found.parts["compare-controls"]
    assert "&lt;img src=x onerror" in found.parts["outcomes"] and "<img" not in found.parts["outcomes"]


def test_a_run_is_compared_with_another_that_has_its_cases_and_not_with_itself(site):
    for asked, expected in (
        (("before", None, None, None), ["before", "small", "after", "large"]),
        (("ponds", None, None, None), ["ponds", "runs/rm", "ponds", NULL]),
        (("garden", None, None, None), ["garden", "arm", "garden", "words"]),  # no other run has its cases
        (("after", None, "after", None), ["after", "large", "after", "large"]),
    ):
        query = {name: value for name, value in zip(NAMES, asked, strict=True) if value}
        assert [*compare.complete_query(site, query).values()] == expected


def test_a_damaged_table_is_named_and_the_other_run_is_not(desk):
    """The healthy run was said to be damaged, as it is the first of both."""
    first, second = (write_evaluation(desk / f"named-{k}", pairs(2), {"rm": margins([1.0, 1.0])}) for k in range(2))
    (second / "scores.parquet").write_bytes((second / "scores.parquet").read_bytes()[:-40])
    sides = [views.Side(folder.name, folder, "rm") for folder in (first, second)]
    with pytest.raises(DataError, match=r"named-1: scores.parquet is damaged") as raised:
        views.agreement(*sides)
    assert "named-0" not in str(raised.value)
