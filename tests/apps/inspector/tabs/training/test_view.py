import pytest

from tests.apps.inspector.acts import again
from tests.apps.inspector.trainings import HOSTILE


def test_an_answer_is_shown_with_its_waterfall_and_its_tokens(address, visit):
    page = visit(address, "?tab=training&run=rl&step=2&answer=1", ready="#rollout .text")
    assert HOSTILE in page.locator("#rollout").inner_text()
    page.locator("#waterfall .waterfalllayer .point").first.wait_for()
    assert "gate: style" in page.locator("#waterfall").inner_text()
    assert [token.inner_text().strip() for token in page.locator("#strip .heat i").all()] == ["8", "9"]
    widths = [cell.bounding_box()["width"] for cell in page.locator("#rollouts [data-row='2'][data-col]").all()]
    table = page.locator("#rollouts .table-wrap").first.bounding_box()
    assert sum(widths) == pytest.approx(table["width"], abs=20)
    assert min(widths[:2]) > max(widths[2:]), "texts are wider than numbers"
    page.locator("#rl-kl .scatterlayer .trace").first.wait_for()
    assert page.locator("#rl-kl path.js-fill").first.get_attribute("d").count("M") == 2, "two pieces"
    page.get_by_role("button", name="‹ Completion").click()
    page.locator("#rollout-place", has_text="completion 1 of 3").wait_for()
    page.wait_for_url("**step=2**answer=0")
    page.locator('#rollouts [data-row="2"][data-col="1"]').click()
    page.locator("#rollout-place", has_text="completion 3 of 3").wait_for()
    page.get_by_text("A reward of this completion is missing").wait_for()
    page.wait_for_url("**answer=2")
    again(visit, page).locator("#rollout-place", has_text="completion 3 of 3").wait_for()
