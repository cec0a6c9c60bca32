"""Every protocol gives the number that `rate` gives, under the contract's name."""

import concurrent.futures
import copy
import re
from html import unescape

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.ensemble.model import EnsembleRewardModel
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.kinds.r2m.model import R2MRewardModel
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.types import Example, PreferencePair, user_turn
from transformers import AutoModelForCausalLM

from tests.apps.serving.conftest import EXAMPLES, asks, turns
from tests.rm.backbones.test_omitted_texts import NO_THOUGHT
from tests.stand_ins.scoring_server import serve_in_thread

NEAR = 1e-6


def scores(answer) -> list[list[float]]:
    assert answer.status_code == 200, answer.text
    return [[*one["scores"].values()] for one in answer.json()["results"]]


def test_score_gives_every_objective_its_number(url, http, model):
    answer = http.post(f"{url}/score", json=asks(EXAMPLES))
    assert scores(answer) == pytest.approx(model.rate(EXAMPLES), abs=NEAR)
    ids = {"tokens": [encoded.ids for encoded in model.encoder.encode_all(EXAMPLES)]}
    assert scores(http.post(f"{url}/score", json=ids)) == pytest.approx(model.rate(EXAMPLES), abs=NEAR)
    told = answer.json()
    assert told["objectives"] == ["helpful", "brief"] == [*told["results"][0]["scores"]]
    assert told["contract"] == answer.headers["x-scoring-contract"] == model.contract.hash()
    lengths = [encoded.length for encoded in model.encoder.encode_all(EXAMPLES)]
    assert [one["tokens"] for one in told["results"]] == lengths
    assert not any(one["truncated"] for one in told["results"])
    assert http.post(f"{url}/score", json={"conversations": []}).json()["results"] == []
    empty = Example(user_turn("hello"), "")
    assert scores(http.post(f"{url}/score", json=asks([empty]))) == pytest.approx(model.rate([empty]), abs=NEAR)


def test_clients_at_once_get_their_own_scores(url, http, model):
    truth = model.rate(EXAMPLES)

    def ask(place: int) -> bool:
        some = [(place + k) % len(EXAMPLES) for k in range(1 + place % 5)]
        found = scores(http.post(f"{url}/score", json=asks([EXAMPLES[one] for one in some])))
        return bool(np.abs(np.array(found) - truth[some]).max() < NEAR)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(32)))


def test_what_the_model_would_read_cut_off_is_refused_with_the_lengths(url, http, model):
    long = Example(user_turn("hello"), "fox " * 200)
    length = model.encoder.encode(long).length
    answer = http.post(f"{url}/score", json=asks([EXAMPLES[0], long]))
    error = answer.json()["error"]
    assert answer.status_code == 422 and error["limit"] == 64 and error["lengths"][1] == length > 64
    assert "1 of 2 conversations are longer than the 64 tokens" in error["message"]
    cut = http.post(f"{url}/score", json=asks([EXAMPLES[0], long]) | {"truncate": True})
    assert scores(cut) == pytest.approx(model.rate([EXAMPLES[0], long]), abs=NEAR)
    assert [(one["tokens"] == 64, one["truncated"]) for one in cut.json()["results"]] == [(False, False), (True, True)]


def test_classify_answers_as_vllm_does_and_refuses_what_would_change_a_number(url, http, model):
    truth = model.rate(EXAMPLES[:3])
    rendered = [model.encoder.render(example) for example in EXAMPLES[:3]]
    ids = [encoded.ids for encoded in model.encoder.encode_all(EXAMPLES[:3])]
    for given in (rendered, ids):
        answer = http.post(f"{url}/classify", json={"model": "rm", "input": given, "use_activation": False}).json()
        assert [one["probs"] for one in answer["data"]] == pytest.approx(truth, abs=NEAR)
        assert [one["index"] for one in answer["data"]] == [0, 1, 2] and answer["object"] == "list"
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == sum(map(len, ids))
        assert answer["model"] == "rm" and answer["id"].startswith("classify-") and answer["contract"]
        best = [["helpful", "brief"][row.argmax()] for row in truth]
        assert [one["label"] for one in answer["data"]] == best and answer["data"][0]["num_classes"] == 2
    for alone in ({"input": rendered[0]}, {"input": ids[0]}, {"messages": turns(EXAMPLES[0])}):
        (one,) = http.post(f"{url}/classify", json=alone).json()["data"]
        assert one["probs"] == pytest.approx(truth[0], abs=NEAR)
    rendered = "the scoring contract determines how messages are rendered"
    for setting, status, sentence in (
        ({"use_activation": True}, 422, "this server returns raw scores only"),
        ({"add_generation_prompt": True}, 422, rendered),
        ({"chat_template": "{{ messages }}"}, 422, rendered),
        ({"truncate_prompt_tokens": 8}, 422, "the contract determines the truncation"),
        ({"input": "a"}, 422, "give either input or messages"),
        ({"model": "gpt"}, 404, "no model 'gpt' here; this server has 'rm'"),
    ):
        answer = http.post(f"{url}/classify", json={"messages": turns(EXAMPLES[0])} | setting)
        assert answer.status_code == status and sentence in answer.json()["error"]["message"], setting


def test_get_reward_answers_as_openrlhf_reads_it(url, http, model, serve):
    query = [model.encoder.render(example) for example in EXAMPLES[:4]]
    truth = model.rate(EXAMPLES[:4])
    asked = {"query": query, "prompts": [one[:5] for one in query], "labels": [None, "x", 3, {}]}
    answer = http.post(f"{url}/get_reward", json=asked)
    told = answer.json()
    assert told["rewards"] == told["scores"] == pytest.approx(truth.mean(1), abs=NEAR)
    assert told["extra_logs"]["brief"] == pytest.approx(truth[:, 1], abs=NEAR)
    assert answer.headers["x-scoring-contract"] == model.contract.hash()
    other = serve(model, objective="brief")
    assert http.post(f"{other}/get_reward", json=asked).json()["rewards"] == pytest.approx(truth[:, 1], abs=NEAR)
    with pytest.raises(UsageError, match="no objective 'breif'; did you mean 'brief'"):
        serve(model, objective="breif")


def test_a_model_without_a_tokenizer_scores_conversations_and_says_so_of_the_rest(serve, http):
    pairs = [PreferencePair(str(k), user_turn(f"q {k}"), f"good fox {k % 3}", f"bad dog {k % 4} x") for k in range(40)]
    baseline = new_linear().fit(pairs)
    url = serve(baseline)
    answer = http.post(f"{url}/score", json=asks(EXAMPLES[:5]))
    assert scores(answer) == pytest.approx(baseline.rate(EXAMPLES[:5]))
    assert {(one["tokens"], one["truncated"]) for one in answer.json()["results"]} == {(None, None)}
    ids = http.post(f"{url}/score", json={"tokens": [[1, 2]]})
    assert ids.status_code == 422 and "does not score token ids" in ids.json()["error"]["message"]
    text = http.post(f"{url}/classify", json={"input": "good fox"})
    assert text.status_code == 422 and "send conversations to /score" in text.json()["error"]["message"]
    split = http.post(f"{url}/get_reward", json={"query": ["hello good fox"], "prompts": ["hello "]})
    assert split.json()["rewards"] == pytest.approx(baseline.rate([Example(user_turn("hello "), "good fox")])[:, 0])
    for prompts, sentence in ((None, "add prompts"), (["no "], "does not begin with its prompt")):
        answer = http.post(f"{url}/get_reward", json={"query": ["hello good fox"], "prompts": prompts})
        assert answer.status_code == 422 and sentence in answer.json()["error"]["message"]


def test_an_ensemble_tells_its_members_longest_reading_and_what_needs_more_than_text_is_not_served(
    serve, http, model, tmp_path
):
    both = EnsembleRewardModel([model, model], [str(tmp_path / "a"), str(tmp_path / "b")])
    url = serve(both)
    answer = http.post(f"{url}/score", json=asks(EXAMPLES[:3]))
    assert scores(answer) == pytest.approx(both.rate(EXAMPLES[:3]), abs=NEAR)
    assert answer.json()["results"][0]["tokens"] == model.encoder.encode(EXAMPLES[0]).length
    long = Example(user_turn("hello"), "fox " * 200)
    assert http.post(f"{url}/score", json=asks([long])).json()["error"]["limit"] == 64
    states = R2MRewardModel.on(model, policy_width=8, width=8)
    with pytest.raises(UsageError, match="reads the policy's hidden states"), serve_in_thread(states):
        pass


def test_a_score_that_is_not_finite_is_null_or_refused_where_there_is_no_null(serve, http, gated):
    gated.gate.set()
    gated.rate = lambda examples: np.array([[np.nan if one.completion == "bad" else 1.0] for one in examples])
    url = serve(gated)
    rows = [Example(user_turn("a"), answer) for answer in ("good", "bad")]
    assert scores(http.post(f"{url}/score", json=asks(rows))) == [[1.0], [None]]
    answer = http.post(f"{url}/get_reward", json={"query": ["a bad"], "prompts": ["a "]})
    assert answer.status_code == 422 and "score of conversation 0 is not finite" in answer.json()["error"]["message"]


def test_texts_that_the_template_leaves_out_are_answered_and_counted(serve, http, words):
    template = copy.deepcopy(words)
    template.chat_template = NO_THOUGHT
    url = serve(scalar_from_config(small_config(template), template, max_length=64))
    thinking = Example(user_turn("the fox"), "<think>moss</think>\nthe dog")
    answer = http.post(f"{url}/score", json=asks([thinking, EXAMPLES[0]]))
    assert [result["omitted"] for result in answer.json()["results"]] == ["moss", None]
    assert "rewardlab_omitted_total 1.0" in http.get(f"{url}/metrics").text


def test_metrics_count_requests_items_tokens_and_batches(serve, http, model):
    url = serve(model)
    http.post(f"{url}/score", json=asks(EXAMPLES[:5]))
    http.post(f"{url}/score", content=b"x")
    http.get(f"{url}/nowhere/{'x' * 50}")
    page = http.get(f"{url}/metrics").text
    tokens = sum(encoded.length for encoded in model.encoder.encode_all(EXAMPLES[:5]))
    for line in (
        'rewardlab_requests_total{route="/score",status="200"} 1.0',
        'rewardlab_requests_total{route="/score",status="400"} 1.0',
        'rewardlab_requests_total{route="other",status="404"} 1.0', "rewardlab_items_total 5.0",
        f"rewardlab_tokens_total {float(tokens)}", "rewardlab_queue_items 0.0", "rewardlab_batch_items_sum 5.0",
        'rewardlab_request_seconds_count{route="/score"} 2.0',
        f'rewardlab_scoring_contract{{hash="{model.contract.hash()}"}} 1.0',
    ):  # fmt: skip
        assert line in page.splitlines(), line


def test_the_server_tells_its_contract_limits_and_schema_on_a_page_that_fetches_nothing(url, http, model):
    told = http.get(f"{url}/health").json()
    assert told["status"] == "ready" and told["contract"] == model.contract.hash()
    assert told["scoring"]["max_length"] == 64 and told["limits"]["request_items"] == 512
    routes = {"/score", "/classify", "/pooling", "/get_reward", "/health", "/metrics", "/docs"}
    assert routes == {*http.get(f"{url}/openapi.json").json()["paths"]}
    page = http.get(f"{url}/docs")
    assert page.headers["content-type"].startswith("text/html") and "<script" not in page.text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page.text)
    assert all(f"<code>{field}</code>" in page.text for field in ("conversations", "truncate", "messages", "query"))
    body = re.search(r"-d &#x27;(.*?)&#x27; http://ADDRESS/score", page.text)
    assert body and http.post(f"{url}/score", content=unescape(body[1])).status_code == 200


def test_pooling_gives_every_token_of_a_process_model_its_score(words, http, url):
    whole, settings = url, {"step_separator": " dog", "max_length": 64}
    process_model = process_from_config(small_config(words, hidden=32, layers=1), words, **settings)
    encoded = process_model.encoder.encode_steps(EXAMPLES[:6])
    rows, logits = [some.ids for some in encoded], process_model.token_logits([some.ids for some in encoded])
    with serve_in_thread(process_model) as url:
        asked = {"input": rows, "task": "token_classify", "use_activation": False}
        raw = http.post(f"{url}/pooling", json=asked).json()
        assert [entry["index"] for entry in raw["data"]] == [*range(6)] and raw["data"][0]["object"] == "pooling"
        for entry, expected in zip(raw["data"], logits, strict=True):
            assert np.allclose(entry["data"], expected, atol=1e-5)
        (alone,) = http.post(f"{url}/pooling", json={"input": rows[0]}).json()["data"]
        (scores_of_steps,) = process_model.step_scores(EXAMPLES[:1])
        assert np.allclose(np.array(alone["data"])[list(encoded[0].ends)], scores_of_steps, atol=1e-6)
        answer = http.post(f"{url}/score", json=asks(EXAMPLES[:6]))
        assert scores(answer) == pytest.approx(process_model.rate(EXAMPLES[:6]), abs=NEAR)
        refused = http.post(f"{url}/score", json={"tokens": rows})
        assert refused.status_code == 422 and "does not score token ids" in refused.text
        assert http.post(f"{url}/pooling", json={"input": rows, "task": "embed"}).status_code == 422
    refused = http.post(f"{whole}/pooling", json={"input": [[1, 2]]})
    assert refused.status_code == 422 and "does not score single tokens" in refused.text, "a model of whole answers"


def test_an_autoregressive_model_scores_conversations_and_prompts_with_their_answers(serve, http, words, tmp_path):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(small_config(words)).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    guide = load_autoregressive(str(tmp_path))
    url = serve(guide)
    truth = guide.rate(EXAMPLES[:4])
    answer = http.post(f"{url}/score", json=asks(EXAMPLES[:4]))
    assert scores(answer) == pytest.approx(truth, abs=1e-4)
    lengths = [encoded.length for encoded in guide.encoder.encode_all(EXAMPLES[:4])]
    assert [one["tokens"] for one in answer.json()["results"]] == lengths
    prompts = [example.prompt[0]["content"] for example in EXAMPLES[:4]]
    query = [prompt + example.completion for prompt, example in zip(prompts, EXAMPLES, strict=False)]
    rewards = http.post(f"{url}/get_reward", json={"query": query, "prompts": prompts}).json()["rewards"]
    assert rewards == pytest.approx(truth[:, 0], abs=1e-4)
