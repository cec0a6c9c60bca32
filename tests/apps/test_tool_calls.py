"""A preference file with tools and tool calls, from training to the inspector's page: every verb reads the calls."""

import html
import json

import httpx
import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.inspector.tabs.judgments.case_html import case_html
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.export import export
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, open_run
from rewardlab.apps.runs.tables import read_items
from rewardlab.apps.serving.client import ScoringClient
from rewardlab.apps.serving.settings import ServeConfig
from rewardlab.benchmarks.suites.pairs import as_cases
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds.checklist import conversation_until
from rewardlab.judges.kinds.pairwise import pairwise
from rewardlab.policy.rollouts._partners import with_role, with_thought
from rewardlab.policy.scaffolds._scaffold import Hints, with_hints
from rewardlab.policy.training.prompts import load_prompts
from rewardlab.rm.contract.golden_scores import read_golden
from rewardlab.rm.data.conversation_split import as_prompt
from rewardlab.rm.data.messages_and_tools import with_tools
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.parity.model_server import chat_body
from rewardlab.rm.types import completion_turns, tools_of

from tests.apps.conftest import write
from tests.rm.data.test_messages_and_tools import ANSWER, RESULT, TOOL, calling
from tests.stand_ins.scoring_server import serve_in_thread

CITIES = ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Delhi")
SMALL = ["--small_hidden", "32", "--small_vocabulary", "400", "--max_steps", "4", "--learning_rate", "1e-3"]


def row(place: int) -> dict:
    """Two conversations that differ in the city of one call."""
    city, other = CITIES[place % 6], CITIES[(place + 1 + place // 6) % 6]
    asked = {"system": "Be brief.", "tools": [TOOL], "prompt": f"How warm is it in {city}? Number {place}."}
    answers = {"chosen": [calling(city), RESULT, ANSWER], "rejected": [calling(other), RESULT, ANSWER]}
    return {"id": f"{place}", "source": "made up", **asked, **answers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pairs, a model that was trained on them, its report and its scores of them."""
    folder = tmp_path_factory.mktemp("calls")
    data = write(folder / "pairs.jsonl", [row(place) for place in range(24)])
    model = ["--model", str(folder / "rm"), "--data", data]
    assert main(["train", "--data", data, "--output", str(folder / "rm"), *SMALL, "--disable_tqdm", "True"]) == 0
    assert main(["eval", *model, "--output", str(folder / "eval"), "--bootstrap_samples", "20"]) == 0
    assert main(["score", *model, "--output", str(folder / "scores.jsonl")]) == 0
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return load_reward_model(str(folder / "rm"))


@pytest.fixture(scope="module")
def pairs(folder):
    return load_pairs(str(folder / "pairs.jsonl"))[0]


def test_train_eval_and_score_read_the_call_and_lint_says_what_is_ignored(folder, model, pairs, capsys):
    examples, kept = read_golden(folder / "rm")
    assert model.rate(examples) == pytest.approx(kept, abs=1e-5)
    assert examples[0] in [one for pair in pairs for one in pair.examples]
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    by_id = {line["id"]: line["reward"] for line in lines}
    rewards = np.array([[by_id[f"{place}/chosen"], by_id[f"{place}/rejected"]] for place in range(24)])
    assert rewards == pytest.approx(np.array([model.rate(pair.examples)[:, 0] for pair in pairs]), abs=1e-5)
    assert (rewards[:, 0] != rewards[:, 1]).all()
    assert "Ignored columns: source (24 rows)." in (folder / "eval" / "report.md").read_text()
    assert json.loads((folder / "rm" / "manifest.json").read_text())["rows"]["ignored"] == {"source": 24}
    text = model.encoder.render(pairs[0].examples[0])
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>' in text
    assert '"description": "Weather of a city"' in text and "Be brief." in text and "21 C" in text
    found = main(["lint", "--data", str(folder / "pairs.jsonl"), "--model", str(folder / "rm")])
    text = "".join(capsys.readouterr())
    assert found == 0 and "Nothing is wrong with any of 24 rows." in text
    assert "data: ignored columns: source (24 rows)" in text


def test_a_server_gives_the_same_numbers(model, pairs):
    examples = [example for pair in pairs for example in pair.examples]
    with serve_in_thread(model, ServeConfig(model="rm", port=0)) as url:
        assert ScoringClient(url).rate(examples) == pytest.approx(model.rate(examples), abs=1e-5)
        raw = row(0)
        turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": raw["prompt"]}, *raw["chosen"]]
        turns[2]["tool_calls"][0]["function"]["arguments"] = json.dumps({"city": "Paris"})
        told = httpx.post(f"{url}/score", json={"conversations": [turns], "tools": [TOOL]}).json()
        assert told["results"][0]["scores"]["reward"] == pytest.approx(model.rate(examples[:1])[0, 0], abs=1e-5)
        turns[1]["content"] = [{"type": "image_url", "image_url": {"url": "a.png"}}]
        refused = httpx.post(f"{url}/score", json={"conversations": [turns]})
        assert refused.status_code == 422 and "conversation 0: content of the kind 'image_url'" in refused.text


def test_the_inspector_shows_and_exports_the_call(folder, pairs, tmp_path):
    run = open_run(folder / "eval")
    shown = item(run, run.scorers[0].name, "0")
    assert shown.answers == (pairs[0].chosen, pairs[0].rejected) and shown.messages == pairs[0].prompt
    page = case_html(shown)
    assert html.escape('{"name": "get_weather", "arguments": {"city": "Paris"}}') in page and "<tool_call>" not in page
    assert html.escape('"description": "Weather of a city"') in page
    assert [case.answers for case in read_items(folder / "eval")] == [(pair.chosen, pair.rejected) for pair in pairs]
    export(run, Filter(run.scorers[0].name), "jsonl", tmp_path / "pairs.jsonl", [], "data")
    written, _ = load_pairs(str(tmp_path / "pairs.jsonl"))
    assert [(one.prompt, one.chosen) for one in written] == [(one.prompt, one.chosen) for one in pairs]


def test_a_judge_is_shown_tools_and_calls_and_an_openai_server_is_sent_arguments_as_json_text(pairs):
    chat = scripted(["Winner: A", "Winner: A"])
    pairwise(chat)(as_cases(pairs[:1])[0])
    for text in (ask.messages[-1]["content"] for ask in chat.asked):
        assert '{"city": "Paris"}' in text and '{"city": "Rome"}' in text and "Weather of a city" in text
    body = chat_body(pairs[0].examples[0])
    assert body["tools"] == [TOOL] and "tools" not in body["messages"][0]
    assert json.loads(body["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}
    assert isinstance(completion_turns(pairs[0].chosen)[0]["tool_calls"][0]["function"]["arguments"], dict)


def test_prompts_of_a_policy_have_their_tools_and_what_is_added_leaves_them(folder, pairs):
    found = load_prompts([str(folder / "pairs.jsonl")])
    prompts = [as_prompt(one["prompt"]) for one in found.dataset()]
    assert prompts == found.prompts and tools_of(prompts[0]) == [TOOL] and prompts[0][0]["content"] == "Be brief."
    prompt = pairs[0].prompt
    for changed in (
        with_hints(prompt, Hints(("Names the city.",))),
        with_hints(with_tools(prompt[1:], [TOOL]), Hints(("Names the city.",))),
        with_role(prompt, "Look it up."),
        with_thought(prompt, "Paris."),
    ):
        assert tools_of(changed) == [TOOL] and changed != prompt
    (case,), _ = as_cases(pairs[:1])
    assert conversation_until(case, 0, 0) == pairs[0].examples[0].prompt + completion_turns(pairs[0].chosen)
