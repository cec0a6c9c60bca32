from tests.apps.inspector.acts import again
from tests.apps.inspector.trainings import HOSTILE


def test_an_answer_is_shown_with_its_waterfall_and_its_tokens(address, visit):
    page = visit(address, "?tab=training&run=rl&step=2&answer=1", ready="#rollout .text")
    assert HOSTILE in page.locator("#rollout").inner_text()
    page.locator("#waterfall .waterfalllayer .point").first.wait_for()
    assert "gate: style" in page.locator("#waterfall").inner_text()
    assert [token.inner_text().strip() for token in page.locator("#strip .heat i").all()] == ["8", "9"]
    assert page.locator("#rollouts tr.mine").count() == 1 and HOSTILE in page.locator("#rollouts tr.mine").inner_text()
    page.locator("#rl-kl .scatterlayer .trace").first.wait_for()
    assert page.locator("#rl-kl path.js-fill").first.get_attribute("d").count("M") == 2, "two pieces"
    page.get_by_role("link", name="‹ Completion").click()
    page.locator("#rollout-place", has_text="completion 1 of 3").wait_for()
    page.wait_for_url("**step=2**answer=0")
    page.locator("#rollouts tbody tr").nth(2).get_by_role("link").click()
    page.locator("#rollout-place", has_text="completion 3 of 3").wait_for()
    page.get_by_text("A reward of this completion is missing").wait_for()
    page.wait_for_url("**answer=2")
    again(visit, page).locator("#rollout-place", has_text="completion 3 of 3").wait_for()
