import csv
import io

from tests.apps.inspector.gallery import FORMULA


def copied(page, button) -> str:
    """What a click on a button puts into the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    return page.wait_for_function("navigator.clipboard.readText().then(text => text || null)").json_value()


def test_a_table_is_copied_as_csv_in_which_nothing_is_a_formula_and_a_figure_as_png(visit, address):
    page = visit(address, "?tab=benchmarks&run=formula", ready="#calibration .point")
    heads, model = csv.reader(io.StringIO(copied(page, page.locator("#facts .csv"))))
    assert heads == ["scorer", "role", "overall, %", "scored", "ties", "abstained"]
    assert model[:2] == [f"'{FORMULA}", "model"] and model[2].startswith("60.0 [") and model[3:] == ["5", "1", "0"]
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
        ("Training", "rewardlab rl"),
        ("Studies", "python -m rewardlab.research.studies guide_recipes"),
    ):
        page.get_by_role("tab", name=tab, exact=True).click()
        card = page.locator(".empty:visible", has_text=f"--output {tmp_path}")
        card.locator("code", has_text=command).wait_for()
        assert card.count() == 1
        dead = page.locator(f"#{tab.lower()} :is(select, input, a.button, button:not(.copy))")
        assert dead.locator("visible=true").count() == 0 or tab == "Judgments", "controls without a run"
    page.get_by_role("tab", name="Playground", exact=True).click()
    page.get_by_text("--arm GUIDE").first.wait_for()
    assert page.locator("#prompt").count() == 0
    page.get_by_role("tab", name="Decoded files").click()
    page.locator("#file-note code", has_text="rewardlab decode --base MODEL --arm GUIDE").wait_for()
    assert page.locator("#file-answers .heat").count() == 0
