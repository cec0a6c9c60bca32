import json

import gradio as gr
import pytest
from rewardlab.apps.inspector.components import Site
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.tabs.judgments.explanation import view as why
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.court import RUBRIC, write_court
from tests.apps.inspector.gallery import save_base


def test_a_model_explains_the_margin_and_its_explanation_stays_while_its_case_does(address, visit):
    """Another look at the same case took an explanation away; events are handled in turn: that of `m` is the later.

    The list of models began with the first one instead of the scorer of the case.
    """
    page = visit(address, "?run=garden&scorer=words&item=g2", ready="#case .answer")
    page.wait_for_url("**scorer=words*")
    page.get_by_role("button", name="Explain").click()
    page.locator("#why", has_text="These are the scores of 'words' in the run").wait_for()
    assert "The causes sum to the margin" in page.locator("#why").inner_text()
    assert " of the margin of " in page.locator("#why .lead").inner_text()
    words = page.locator("#why .answers .heat").first.locator("i").all_inner_texts()
    assert [word.strip(" .") for word in words if word] == ["ponds", "lilies", "frogs", "carp", "reeds"]
    page.get_by_label("Explain with").click()
    page.get_by_role("option", name="arm", exact=True).click()
    page.get_by_role("button", name="Explain").click()
    page.locator("#why", has_text="These are the scores of 'arm' in the run").wait_for()
    tokens = page.locator("#why .answers .heat i")
    assert tokens.first.inner_text() == "ponds"
    page.locator("#why-section .js-plotly-plot").first.wait_for()
    first = tokens.first.get_attribute("title")
    page.get_by_label("Objective").click()
    page.get_by_role("option", name="harmless").click()
    page.wait_for_function("old => document.querySelector('#why .answers .heat i').title != old", arg=first)
    page.locator("h1").click()
    page.keyboard.press("r")
    before = page.evaluate("localStorage['rewardlab-marks']")
    page.keyboard.press("m")
    page.wait_for_function("before => localStorage['rewardlab-marks'] !== before", arg=before)
    assert page.locator("#why .heat").first.is_visible()


def test_a_damaged_run_is_a_sentence_and_the_name_of_a_rubric_is_text(tmp_path):
    folder = write_court(tmp_path / "judge")
    config = InspectConfig(run=str(tmp_path))
    with gr.Blocks() as page:
        update = why.section(Site(page, open_root(tmp_path), config, Models(config))).update
    hostile = "<img src=x onerror=window.hacked=1> ![x](https://elsewhere.example/x.png)"
    (folder / "config.yaml").write_text(json.dumps({"rubric": hostile}))
    note = update("judge", RUBRIC, "c1")[3]
    assert "&lt;img src=x" in note and "lies outside" in note and "<img" not in note
    with pytest.raises(UsageError, match="there is no run '../judge' here"):
        update("../judge", RUBRIC, "c1")
    (folder / "judgments.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(DataError, match="judgments.parquet is damaged"):
        update("judge", RUBRIC, "c1")
    assert update("judge", RUBRIC, None)[:2] == [None, ""]


def test_nothing_is_asked_for_before_a_case_is_chosen(tmp_path):
    """A click between the case's address and the event that tells it to the section was answered by nothing."""
    write_court(tmp_path / "judge")
    config = InspectConfig(run=str(tmp_path))
    with gr.Blocks():
        components, update = why.section(Site(gr.Blocks(), open_root(tmp_path), config, Models(config)))
        buttons = [component for component in components if isinstance(component, gr.Button)]
        assert [(button.value, button.interactive) for button in buttons] == [
            ("Explain", False),
            ("Find similar cases", False),
        ]
        for case, chosen in (("c1", True), (None, False)):
            values = update("judge", RUBRIC, case)
            assert len(values) == len(components) and [value.interactive for value in values[-2:]] == [chosen] * 2


def test_models_are_named_at_the_start_and_nowhere_else(tmp_path):
    (tmp_path / "empty").mkdir()
    models = Models(InspectConfig(run=".", model=["one=runs/a", str(tmp_path / "empty")]))
    assert models.names == ["one", "empty"] and not models.decodes
    with pytest.raises(UsageError, match="no model '/etc/x' was named at the start"), models.reward_model("/etc/x"):
        pass
    for _ in range(2):  # the lock is free again
        with pytest.raises(DataError, match=r"neither scoring.json nor config.json"), models.reward_model("empty"):
            pass
    with pytest.raises(UsageError, match="no guide was named"), models.decoder():
        pass
    with pytest.raises(UsageError, match="two models are called 'a'"):
        Models(InspectConfig(run=".", model=["runs/a", "others/a"]))


def test_a_model_is_opened_once_and_of_any_kind(tmp_path):
    base, policy = save_base(tmp_path / "base"), save_base(tmp_path / "policy", seed=4)
    models = Models(InspectConfig(run=".", model=[f"dpo=implicit(source={policy}, reference={base}, beta=0.5)"]))
    with models.reward_model("dpo") as first:
        assert first.contract.kind == "implicit" and first.contract.beta == 0.5
    with models.reward_model("dpo") as again:
        assert again is first
