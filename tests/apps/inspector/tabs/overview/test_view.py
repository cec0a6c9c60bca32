"""The overview in a browser: the first tab, sorted, filtered, and leading to a comparison."""

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation


def models(board) -> list[str]:
    return board.locator("tbody tr:visible th.name").all_inner_texts()


def test_the_best_model_stands_first_heads_sort_the_field_filters_and_two_models_are_compared(visit, address):
    page = visit(address, ready="#leaderboard table")
    board = page.locator("#leaderboard .board", has_text="16 cases")
    assert models(board) == ["good", "fair", "weak"]
    assert board.locator(".range").count() == 3 == board.locator(".tick").count()
    page.locator("#runs", has_text="is damaged").wait_for()
    page.locator("#runs", has_text="256 judgments").wait_for()
    assert page.locator("#runs progress").get_attribute("value") == "12"
    for head, order in (
        ("model", ["fair", "good", "weak"]),
        ("model", ["weak", "good", "fair"]),
        ("overall, %", ["good", "fair", "weak"]),
        ("overall, %", ["weak", "fair", "good"]),
        ("run", ["fair", "good", "weak"]),
    ):
        board.locator("thead").get_by_role("button", name=head, exact=True).click()
        assert models(board) == order
    page.locator("#board-filter").fill("NEW")
    assert models(page.locator("#leaderboard")) == ["good"]
    page.locator("#board-filter").fill("")
    compare = page.locator("#board-compare")
    for name in ("good", "weak", "fair"):  # the last two of three
        page.get_by_role("checkbox", name=f"compare {name} of").check()
    assert compare.get_attribute("href") == "?tab=compare&run=old&scorer=weak&with=mid&other=fair"
    page.get_by_role("checkbox", name="compare weak of").uncheck()
    assert compare.get_attribute("aria-disabled") == "true" and compare.get_attribute("href") is None


def test_a_reader_lands_on_a_run_that_can_be_read_and_a_running_one_is_no_study(visit, address):
    """Defect 12: the first run of the list was opened, also where it is damaged. Defect 14: a job was a study."""
    page = visit(address, "?tab=benchmarks", ready="#facts table")
    for tab, ready in (("Judgments", "#case .answer"), ("Compare", "#agreement")):
        page.get_by_role("tab", name=tab, exact=True).click()
        page.locator(ready).first.wait_for()
        page.wait_for_url("**run=after*")
        assert "is damaged" not in page.locator("#tabs [role=tabpanel]:visible").first.inner_text()
    page.get_by_role("tab", name="Judgments").click()
    page.locator("#judgments-toolbar").get_by_label("Run", exact=True).first.click()
    page.get_by_role("option", name="running.partial (running or cut off)").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Studies").click()
    page.locator("#study h1", has_text="Study").wait_for()
    page.get_by_label("Study", exact=True).click()
    assert [text.split()[-1] for text in page.get_by_role("option").all_inner_texts()] == ["study"]


def test_what_a_reader_chose_stays_when_a_run_is_added(visit, desk_address, desk):
    write_evaluation(desk / "chosen-one", pairs(7), {"first": margins([1.0] * 7)})
    page = visit(desk_address, ready="#leaderboard .board:has-text('7 cases')")
    board = page.locator("#leaderboard .board", has_text="7 cases")
    page.get_by_role("checkbox", name="compare first of").check()
    board.locator("thead").get_by_role("button", name="model", exact=True).click()
    write_evaluation(desk / "chosen-two", pairs(7), {"a second": margins([-1.0] * 7)})
    board.locator("th.name", has_text="a second").wait_for()
    page.wait_for_function(
        "document.querySelector('#leaderboard input[type=checkbox]:checked')?.value.includes('first')"
    )
    assert models(board) == ["a second", "first"]
