from rewardlab.apps.inspector.run_list import JUDGED, STUDY
from rewardlab.apps.inspector.tabs.compare.view import complete_query
from rewardlab.apps.inspector.tabs.results import view as results


def models(board) -> list[str]:
    return board.locator("tbody tr:visible th.name").all_inner_texts()


def test_the_best_model_stands_first_heads_sort_the_field_filters_and_two_models_are_compared(visit, address):
    page = visit(address, ready="#leaderboard table")
    board = page.locator("#leaderboard .board", has_text="16 cases")
    assert models(board) == ["good", "fair", "weak"]
    assert board.locator(".range").count() == 3 == board.locator(".tick").count()
    good = board.locator("tbody tr").first.inner_text()
    assert "93.8" in good and "+93.8" in good, "how much better it is than the best baseline"
    subsets = board.get_by_role("link", name="weak", exact=True).get_attribute("href")
    assert subsets == "?tab=benchmarks&run=old&scorer=weak"
    names = page.locator("#runs svg[role=img]").evaluate_all("all => all.map(e => e.ariaLabel)")
    assert "reward from 0.1 to 0.9" in names and "gold (watched) from 0.9 to 0.1" in names
    page.locator("#runs", has_text="is damaged").wait_for()
    page.locator("#runs", has_text="256 judgments").wait_for()
    assert page.locator("#runs progress").get_attribute("value") == "12"
    for head, order in (("model", ["fair", "good", "weak"]), ("overall, %", ["good", "fair", "weak"])):
        for expected in (order, order[::-1]):
            board.locator("thead").get_by_role("button", name=head, exact=True).click()
            assert models(board) == expected
    page.locator("#board-filter").fill("NEW")
    assert models(page.locator("#leaderboard")) == ["good"]
    page.locator("#board-filter").fill("")
    compare = page.locator("#board-compare")
    for name in ("weak", "fair"):
        page.get_by_role("checkbox", name=f"compare {name} of").check()
    assert compare.get_attribute("href") == "?tab=compare&run=old&scorer=weak&with=mid&other=fair"
    page.get_by_role("checkbox", name="compare good of").check()
    compare.click()
    page.locator("#all-pairs tbody tr").nth(2).wait_for()
    assert page.locator("#all-pairs td a").count() == 3
    page.go_back()
    page.locator("#leaderboard table").first.wait_for()
    assert page.get_by_role("checkbox", name="compare good of").is_checked(), "what was chosen is still"
    for name in ("weak", "good"):
        page.get_by_role("checkbox", name=f"compare {name} of").uncheck()
    assert compare.get_attribute("aria-disabled") == "true" and compare.get_attribute("href") is None


def test_a_reader_lands_on_a_run_that_can_be_read_and_a_running_one_is_no_study(site):
    entries = site.root.entries(JUDGED)
    assert entries[0].id == "aaa" and site.pick(None, JUDGED) == site.pick("gone", JUDGED) == "after"
    assert "running.partial (running or cut off)" in [entry.label for entry in entries]
    assert [entry.id for entry in site.root.entries(STUDY)] == ["study"]
    assert results.view(site, {}).query["run"] == "after" == complete_query(site, {})["run"]
