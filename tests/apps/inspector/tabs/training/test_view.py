"""A policy's training in a browser: figures, a growing run, answers and their advantages."""

import json

import pytest

from tests.apps.inspector.acts import again
from tests.apps.inspector.trainings import HOSTILE, keep_answers, write_training


def brief(step: int) -> dict[str, float]:
    """A line with two figures: a page of many takes seconds to draw."""
    return {"step": step, "reward": step / 10, "rm/omega": 1 - step / 10}


def test_an_answer_is_shown_with_its_waterfall_and_its_tokens(address, visit):
    """Defect 19: a third of the table was blank. Defect 1: errors of two distant steps were joined to a wedge."""
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


@pytest.mark.slow
def test_a_growing_run_is_followed_until_it_is_finished(tmp_path, served, visit):
    """The reader's answer stays where it is."""
    growing = write_training(tmp_path / "rl.partial", [brief(1), brief(2)], kept=(0, 2), finished=False)
    page = visit(served(tmp_path), "?tab=training&run=rl.partial&step=2&answer=1", ready="#rollout .text")
    page.locator("#laststep", has_text="step 2").wait_for()
    page.locator("#rl-reward-0 .scatterlayer .trace").wait_for()
    keep_answers(growing, 4)
    with (growing / "steps.jsonl").open("a") as lines:
        lines.write(json.dumps(brief(3)) + "\n")
    page.locator("#laststep", has_text="step 3").wait_for()
    assert "completion 2 of 3" in page.locator("#rollout-place").inner_text()
    page.locator("input[type=range][max='4']").wait_for(state="attached")
    (growing / "manifest.json").write_text("{}")
    growing.rename(growing.with_name("rl"))
    page.locator("#progress", has_text="finished").wait_for()
