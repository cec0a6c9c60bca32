import json

import gradio as gr
import pytest
from rewardlab.apps.inspector.components import Site, server_functions
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.tabs.judgments.explanation import view as why
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.acts import choose
from tests.apps.inspector.court import RUBRIC, TEXT, write_court
from tests.apps.inspector.gallery import save_base


def test_a_model_explains_the_margin_and_its_explanation_stays_while_its_case_does(address, visit):
    """Another look at the same case took an explanation away.

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
    choose(page, "Explain with", "arm")
    page.get_by_role("button", name="Explain").click()
    page.locator("#why", has_text="These are the scores of 'arm' in the run").wait_for()
    tokens = page.locator("#why .answers .heat i")
    assert tokens.first.inner_text() == "ponds"
    page.locator("#why-section .js-plotly-plot").first.wait_for()
    first = tokens.first.get_attribute("title")
    choose(page, "Objective", "harmless")
    page.wait_for_function("old => document.querySelector('#why .answers .heat i').title != old", arg=first)
    page.locator("h1").click()
    page.keyboard.press("r")
    before = page.evaluate("localStorage['rewardlab-marks']")
    page.keyboard.press("m")
    page.wait_for_function("before => localStorage['rewardlab-marks'] !== before", arg=before)
    assert page.locator("#why .heat").first.is_visible()


def ask(folder, name: str, **more) -> dict:
    """What the script gets from a function for a case."""
    config = InspectConfig(run=str(folder))
    site = Site(gr.Blocks(), open_root(folder), config, Models(config))
    query = {"run": more.pop("run", "judge"), "scorer": RUBRIC}
    functions = {function.__name__: function for function in server_functions(**why.functions(site))}
    return functions[name]({"query": query, "case": "c1", **more})


def test_a_damaged_run_is_a_sentence_and_the_name_of_a_rubric_is_text(tmp_path):
    folder = write_court(tmp_path / "judge")
    parts = ask(tmp_path, "grounds")["parts"]
    assert "Score again" in parts["rubric-part"] and "id = &quot;names&quot;" in parts["rubric-part"]
    assert "--model MODEL" in parts["why-controls"] and "Find similar" in parts["similar-bar"]
    rescored = ask(tmp_path, "rescore", text=TEXT, score="gated")["parts"]["rescored"]
    assert "Best before and now: response 1." in rescored
    assert "unknown score function 'x'" in ask(tmp_path, "rescore", text=TEXT, score="x")["error"]
    assert "no model 'm' was named" in ask(tmp_path, "explain", model="m")["error"]
    hostile = "<img src=x onerror=window.hacked=1> ![x](https://elsewhere.example/x.png)"
    (folder / "config.yaml").write_text(json.dumps({"rubric": hostile}))
    note = ask(tmp_path, "grounds")["parts"]["rubric-part"]
    assert "&lt;img src=x" in note and "lies outside" in note and "<img" not in note
    assert "there is no run '../judge' here" in ask(tmp_path, "grounds", run="../judge")["error"]
    (folder / "judgments.parquet").write_bytes(b"PAR1 half")
    assert "judgments.parquet is damaged" in ask(tmp_path, "grounds")["error"]


def test_similar_cases_are_listed_below_the_case(address, visit):
    """The head of the narrow first column was broken within the word."""
    page = visit(address, "?run=ponds&item=a2", ready="#case .answer")
    page.get_by_role("button", name="Find similar cases").click()
    page.locator("#similar tbody tr").first.wait_for()
    head = page.locator("#similar th").first
    assert head.inner_text() == "Similarity" and head.evaluate("head => getComputedStyle(head).whiteSpace") == "nowrap"
    page.keyboard.press("j")
    page.locator("#similar tbody tr").first.wait_for(state="detached")


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
