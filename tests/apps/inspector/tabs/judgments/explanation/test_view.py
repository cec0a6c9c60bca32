"""Why an item has its score, in a browser: the section by itself, over a judge's run and an eval run."""

import json
from contextlib import suppress
from pathlib import Path

import gradio as gr
import pytest
from rewardlab.apps.commands.inspect.settings import InspectConfig
from rewardlab.apps.inspector.components import QUIET, Site, sentences
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.tabs.judgments.explanation import view as why

from tests.apps.inspector.court import RUBRIC, TEXT, write_court
from tests.apps.inspector.garden_models import save_arm, save_base, save_linear, write_eval
from tests.conftest import PATIENCE


def alone(folder: Path, **options) -> gr.Blocks:
    """The section with a field for each thing that the item's tab tells it."""
    config = InspectConfig(run=str(folder), **options)
    with gr.Blocks(analytics_enabled=False) as page:
        site = Site(page, open_root(folder), config, Models(config))
        given = [gr.Textbox(label=name) for name in ("run", "scorer", "case")]
        show = gr.Button("show")
        below = why.section(site)
        shown = gr.HTML(elem_id="shown")
        told = show.click(sentences(below.update), given, below.components, **QUIET)
        told.then(lambda *names: " ".join(names), given, shown, **QUIET)
    return page


@pytest.fixture(scope="module")
def pages():
    """The address of a page over a folder."""
    opened = []

    def start(folder: Path, **options) -> str:
        opened.append(alone(folder, **options))
        return launch(opened[-1])

    yield start
    for page in opened:
        page.close(verbose=False)


def show(page, run: str, scorer: str, case: str) -> None:
    for label, value in (("run", run), ("scorer", scorer), ("case", case)):
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="show").click()
    page.locator("#shown", has_text=f"{run} {scorer} {case}").wait_for()


def test_a_judges_grounds_are_shown_and_its_rubric_scores_the_item_again(pages, visit, tmp_path):
    from playwright.sync_api import TimeoutError

    write_court(tmp_path / "judge")
    page = visit(pages(tmp_path), ready="#component-0, button")
    show(page, "judge", RUBRIC, "c1")
    page.locator("#grounds mark", has_text="An oak").first.wait_for()
    assert page.locator("#grounds .reply").count() == 2
    page.get_by_text("score the stored verdicts again").click()
    editor = page.locator("#rubric textarea")
    assert "Names a tree." in editor.input_value()
    added = '\n[[principles]]\nid = "kind"\ndescription = "Is kind."\n'
    for _ in range(10):  # the rubric of the item may come once more while the page settles
        editor.fill(TEXT.replace("weight = 1.0", "weight = 3.0") + added)
        page.get_by_role("button", name="Score again").click()
        with suppress(TimeoutError):
            page.locator("#rescored", has_text="'kind' has no verdict here").wait_for(timeout=12_000)
            break
    cells = page.locator("#rescored tbody :is(th, td)").all_inner_texts()
    assert cells == ["Response\xa01", "1", "1", "1", "Response\xa02", "0.125", "0.125", "0.25"]
    editor.fill("[[rules]]\nid = 1")
    page.get_by_role("button", name="Score again").click()
    page.get_by_text("'id' is a str, got 1").first.wait_for()
    assert page.get_by_text("--model MODEL").is_visible()


def test_a_model_explains_itself_token_by_token_or_by_its_sentences(pages, visit, tmp_path):
    base = save_base(tmp_path / "base")
    arm, words = save_arm(base, tmp_path / "arm"), save_linear(tmp_path / "words")
    write_eval(tmp_path / "runs" / "eval", arm, words)
    page = visit(pages(tmp_path / "runs", model=[arm, words]), ready="button")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("no item is chosen").first.wait_for()
    show(page, "eval", "arm", "g2")
    page.get_by_role("button", name="Explain").click()
    page.locator("#why", has_text="These are the scores of 'arm' in the run").wait_for()
    assert "add up to its reward" in page.locator("#why").inner_text()
    tokens = page.locator("#why .heat i")
    assert tokens.first.inner_text() == "ponds" and "sum -" in (tokens.last.get_attribute("title") or "")
    page.locator(".js-plotly-plot").first.wait_for(timeout=PATIENCE * 1000)
    first = tokens.first.get_attribute("title")
    page.get_by_label("Objective").click()
    page.get_by_role("option", name="harmless").click()
    page.wait_for_function("old => document.querySelector('#why .heat i').title != old", arg=first)
    page.get_by_label("the mean token").click()
    page.locator("#why .legend", has_text="no colour at -").wait_for()
    page.get_by_label("Explain with").click()
    page.get_by_role("option", name="words").click()
    page.get_by_role("button", name="Explain").click()
    page.locator("#why", has_text="These are the scores of 'words' in the run").wait_for()
    assert page.locator("#why .heat").first.locator("i").all_inner_texts() == [
        "ponds lilies. ",
        "frogs carp. ",
        "reeds",
    ]


def test_a_damaged_run_is_a_sentence(pages, visit, tmp_path):
    folder = write_court(tmp_path / "judge")
    (folder / "judgments.parquet").write_bytes(b"PAR1 half")
    page = visit(pages(tmp_path), ready="button")
    show(page, "judge", RUBRIC, "c1")
    page.get_by_text("judgments.parquet is damaged").first.wait_for()
    assert page.locator("#grounds .rl, #rubric, #rescored .rl").count() == 0
    show(page, "../judge", RUBRIC, "c1")
    page.get_by_text("there is no run '../judge' here").first.wait_for()
    assert page.locator("#grounds .rl, #rubric, #rescored .rl").count() == 0


def test_the_name_of_a_rubric_is_text(tmp_path):
    folder = write_court(tmp_path / "judge")
    hostile = "<img src=x onerror=window.hacked=1> ![x](https://elsewhere.example/x.png)"
    (folder / "config.yaml").write_text(json.dumps({"rubric": hostile}))
    told = why._judged(folder, tmp_path, RUBRIC, "c1")[2]
    assert "&lt;img src=x" in told and "lies outside" in told and "<img" not in told


def test_models_are_named_at_the_start_and_nowhere_else(tmp_path):
    from rewardlab.rm.errors import DataError, UsageError

    (tmp_path / "empty").mkdir()
    models = Models(InspectConfig(run=".", model=["one=runs/a", str(tmp_path / "empty")]))
    assert models.names == ["one", "empty"] and not models.decodes
    with (
        pytest.raises(UsageError, match="no model '/etc/passwd' was named at the start"),
        models.reward_model("/etc/passwd"),
    ):
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
