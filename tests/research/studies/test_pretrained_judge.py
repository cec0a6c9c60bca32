import json

import numpy as np
from rewardlab.research.studies.pretrained_judge import pretrained_judge
from rewardlab.research.studies.pretrained_judge.report import share
from rewardlab.research.studies.pretrained_judge.runs import conversations
from rewardlab.research.studies.pretrained_judge.texts import Trace, load_texts, prepared
from rewardlab.rm.data.conversation_split import normal_prompt


def test_both_orders_of_a_trace_have_the_critiques_of_the_responses_shown_and_the_verdict_of_the_better_one():
    trace = Trace("Which plant?", ("a fern", "no idea"), ("Names one.", "Names none."), 0)
    replies = [json.loads(record["completion"][0]["content"]) for record in conversations(trace)]
    assert {reply["winner"] for reply in replies} == {"A", "B"}
    for record, reply in zip(conversations(trace), replies, strict=True):
        request = record["prompt"][-1]["content"]
        first = request.index("a fern") < request.index("no idea")
        assert reply["winner"] == ("A" if first else "B")
        expected = "A: Names one. B: Names none." if first else "A: Names none. B: Names one."
        assert reply["reasoning"] == expected


def test_no_prompt_is_in_two_of_traces_training_and_test(shared_data, tmp_path):
    texts = load_texts(tmp_path, prepared(shared_data.parent, tmp_path, 50, 20, 0))
    prompts = [
        {normal_prompt(trace.query) for trace in texts.traces},
        {normal_prompt(pair.prompt) for pair in texts.training},
        {normal_prompt(pair.prompt) for pair in texts.test},
    ]
    assert len(texts.traces) > 50 and len(texts.training) == 50 and len(texts.test) == 20
    assert not prompts[0] & prompts[1] and not prompts[0] & prompts[2] and not prompts[1] & prompts[2]
    assert 10 < sum(pair.better for pair in texts.training) < 40


def test_a_share_has_its_interval_and_none_of_nothing():
    assert share(5, 10).startswith("0.500 [0.2") and share(0, 0) == "–" and share(np.nan, 3) == "–"


def test_a_dry_run_trains_judges_and_reports(shared_data, tmp_path, small_language_model):
    study = pretrained_judge(
        shared_data.parent, tmp_path / "cache", rows=8, workers=1, model=small_language_model, log=lambda _: None
    )
    assert all(f"| {name} |" in study.text for name in ("start", "critiques", "verdict reward"))
    assert json.dumps(study.facts) and set(study.figures) == {"reward"}
