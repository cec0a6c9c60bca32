from urllib.parse import parse_qs, urlsplit

from rewardlab.apps.inspector.tabs.compare import view as compare

from tests.apps.inspector.acts import again, clicked_link
from tests.apps.inspector.evaluations import pairs
from tests.apps.inspector.ponds import NULL

WRONG = ["wrong", "8", "4", "0", "4"]


def query_of(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)


def test_two_runs_are_compared_and_a_cell_a_flip_and_a_point_lead_to_their_cases(address, visit):
    page = visit(address, "?tab=compare&run=before&with=after", ready="#statistics")
    assert page.locator("#agreement tbody tr").nth(1).inner_text().split() == WRONG
    assert page.locator("#flips tbody tr").count() == 16 and "large " in page.locator("#verdict").inner_text()
    opened = query_of(clicked_link(page, page.locator("#margins .scatterlayer .point").first))
    assert (opened["tab"], opened["run"], opened["scorer"]) == (["judgments"], ["before"], ["small"])
    assert opened["item"][0] in {case.id for case in pairs(32)}
    page.get_by_text("gained (8)").click()
    page.locator("#flip-place", has_text="1 to 8 of 8").wait_for()
    page.wait_for_url("**flips=gained")
    flip = query_of(page.locator("#flips tbody tr").first.locator("a").first.get_attribute("href"))
    assert (flip["tab"], flip["run"], flip["scorer"]) == (["judgments"], ["before"], ["small"])
    asked = query_of(page.url)
    assert [asked[name] for name in ("scorer", "with", "other")] == [["small"], ["after"], ["large"]]
    cell = page.locator("#agreement tbody tr").nth(1).locator("a").first.get_attribute("href")
    page.goto(address + cell)
    page.locator("#flip-place", has_text="1 to 8 of 8").wait_for()
    page.wait_for_url("**flips=wrong-right*")
    page = again(visit, page, ready="#statistics")
    assert page.locator("#agreement tbody tr").nth(1).inner_text().split() == WRONG


def test_what_does_not_go_together_is_a_sentence_and_a_hostile_scorer_is_text(site):
    for asked, sentence in (
        (("before", "small", "ponds", "runs/rm"), "before is pairs, ponds is ponds; compare like with like"),
        (("before", "small", "aaa", "rm"), "summary.json is damaged"),
        (("after", "large", "after", "large"), "is on both sides"),
    ):
        note, *rest = compare.with_note(compare._present, compare._empty)(site, asked)
        assert sentence in note.value and note.visible and rest[0] == "" and not rest[1].visible
    assert compare._choices(site, ("before", "small", "before", "<nobody>"))[1] == ["before", "small", "before", NULL]
    table = compare._present(site, ("before", "small", "before", NULL))[0]
    assert "&lt;img src=x onerror" in table and "<img" not in table


def test_a_run_is_not_compared_with_itself(site):
    for asked, expected in (
        (("before", None, None, None), ["before", "small", "after", "large"]),
        (("ponds", None, None, None), ["ponds", "runs/rm", "ponds", NULL]),
        (("after", None, "after", None), ["after", "large", "after", "large"]),
    ):
        assert compare._choices(site, asked)[1] == expected
