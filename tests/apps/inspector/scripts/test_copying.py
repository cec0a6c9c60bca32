"""Tables as CSV, commands and figures can be taken away."""

import csv
import io

import pytest

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation

NAME = "=cmd('x'), \"rm\""


@pytest.fixture(scope="module")
def address(tmp_path_factory, served) -> str:
    folder = tmp_path_factory.mktemp("runs")
    write_evaluation(folder / "eval", pairs(4), {NAME: margins([1.0, 1.0, 1.0, -1.0])})
    return served(folder)


def copied(page, button) -> str:
    """What a click on a button puts into the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    return page.wait_for_function("navigator.clipboard.readText().then(text => text || null)").json_value()


def test_a_table_is_copied_as_csv_in_which_nothing_is_a_formula(visit, address):
    page = visit(address, "?tab=benchmarks", ready="#facts table")
    heads, model = csv.reader(io.StringIO(copied(page, page.locator("#facts .csv"))))
    assert heads == ["scorer", "role", "overall, %", "scored", "ties", "abstained"]
    assert model[:2] == [f"'{NAME}", "model"] and model[2].startswith("75.0 [") and model[3:] == ["4", "0", "0"]


def test_a_figure_is_downloaded_as_png(visit, address):
    page = visit(address, "?tab=benchmarks", ready="#calibration .point")
    page.locator("#calibration .js-plotly-plot").hover()
    with page.expect_download() as download:
        page.locator("#calibration [data-title='Download plot as a PNG']").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_runs_has_one_card_with_commands_to_copy_on_every_tab(visit, served, tmp_path):
    page = visit(served(tmp_path), ready="#runs .empty")
    assert copied(page, page.locator("#runs .copy").first) == "rewardlab world --output world"
    for tab, command in (
        ("Judgments", "rewardlab eval"),
        ("Compare", "rewardlab eval"),
        ("Benchmarks", "rewardlab eval"),
        ("RL training", "rewardlab rl"),
        ("Studies", "rewardlab study"),
    ):
        page.get_by_role("tab", name=tab, exact=True).click()
        card = page.locator(".empty:visible", has_text=f"--output {tmp_path}")
        card.locator("code", has_text=command).wait_for()
        assert card.count() == 1
