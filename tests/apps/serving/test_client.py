"""The client is the model from afar: the same numbers, patience with a busy server, none with another contract."""

import json
from dataclasses import asdict, replace

import httpx
import numpy as np
import pytest
from datasets import Dataset
from rewardlab.apps.serving import client as client_module
from rewardlab.apps.serving.client import ScoringClient, TooLong
from rewardlab.apps.serving.replicas import Replicas
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import CheckFailed, DataError, UsageError
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.types import Example, Steps, user_turn
from trl import GRPOConfig, GRPOTrainer

from tests.apps.serving.conftest import EXAMPLES, config
from tests.conftest import SMALL_RUN
from tests.stand_ins.scoring_server import serve_in_thread

NEAR = 1e-6
CONTRACT = ScoringContract(kind="linear", objectives=("good",))


class Clock:
    """Time that passes only where someone sleeps."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client_module, "time", clock)
    monkeypatch.setattr(client_module.random, "uniform", lambda low, high: low)
    return clock


def scripted(*answers, contract=CONTRACT, limits=None, seen=None) -> httpx.Client:
    """A server that gives these answers one after the other, each a response, an error or a score for every row."""
    script = iter(answers)
    limits = {"request_items": 512, "request_tokens": 1000, "body_bytes": 10_000} | (limits or {})

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            told = {"contract": contract.hash(), "scoring": asdict(contract), "limits": limits}
            return httpx.Response(200, json=told)
        rows = json.loads(request.content)["conversations"]
        if seen is not None:
            seen.append(rows)
        answer = next(script)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        results = [{"scores": {"good": answer}} for _ in rows]
        return httpx.Response(200, json={"results": results}, headers={"x-scoring-contract": contract.hash()})

    return httpx.Client(transport=httpx.MockTransport(handle))


def busy(status: int, header: str, figure: float | None = None) -> httpx.Response:
    body = {"error": {} if figure is None else {"retry_after": figure}}
    return httpx.Response(status, json=body, headers={"retry-after": header})


def test_it_rates_as_the_model_does_and_a_wrong_address_is_told_at_once(url, model):
    with ScoringClient(url) as client:
        assert client.contract == model.contract
        assert client.rate(EXAMPLES) == pytest.approx(model.rate(EXAMPLES), abs=NEAR)
        assert client.rate([]).shape == (0, 2)
        for found in parity(model, EXAMPLES, own_variants(client)):
            assert found.passed, found
    with pytest.raises(UsageError, match="no answer .* is rewardlab serve running there"):
        ScoringClient("http://127.0.0.1:9")
    with pytest.raises(UsageError, match="no answer .*: 'port'"):
        ScoringClient("http://127.0.0.1:port")
    for health in ([], {"scoring": asdict(CONTRACT), "limits": {}}):
        with pytest.raises(UsageError, match="not the response of a rewardlab server"):
            transport = httpx.MockTransport(lambda _, health=health: httpx.Response(200, json=health))
            ScoringClient("http://x", http=httpx.Client(transport=transport))


def test_what_the_server_refuses_is_a_data_error_and_long_conversations_are_cut_as_the_contract_says(url, model):
    rows = [EXAMPLES[0], Example(user_turn("hello"), "fox " * 200)]
    with ScoringClient(url) as client, pytest.raises(TooLong, match="longer than the 64 tokens") as error:
        client.rate(rows)
    assert error.value.limit == 64 < error.value.lengths[1]
    with ScoringClient(url, truncate=True) as client:
        assert client.rate(rows) == pytest.approx(model.rate(rows), abs=NEAR)
    with ScoringClient(url) as client:
        with pytest.raises(DataError, match="conversation 1: an unpaired surrogate"):
            client.rate([EXAMPLES[0], Example(user_turn("a"), "\ud800")])
        with pytest.raises(DataError, match="conversations.0.0.role"):
            client.rate([Example(({"role": "root", "content": "a"},), "b")])


def test_steps_are_split_by_the_server_as_they_are_stored_or_refused(words):
    """The stored separator, a blank line, is not the model's."""
    model = process_from_config(
        small_config(words, hidden=32, layers=1), words, step_separator=" dog", aggregate="mean"
    )
    rows = [Example(user_turn("a"), Steps(steps)) for steps in (("the fox", "jumps"), ("the\n\nfox", "over", "the"))]
    with serve_in_thread(model, config()) as url:
        for client in (ScoringClient(url), Replicas([url])):
            assert client.rate(rows) == pytest.approx(model.rate(rows), abs=NEAR)
            for steps in (("a dog", "b"), ("a", " ")):
                with pytest.raises(
                    DataError, match="conversation 1: a step is blank or has the separator ' dog' in it"
                ):
                    client.rate([rows[0], Example(user_turn("a"), Steps(steps))])
            client.close()


def test_the_refusal_of_a_later_request_says_from_where_the_server_counts(url):
    long = Example(user_turn("hello"), "fox " * 200)
    rows = [*EXAMPLES, *EXAMPLES, *EXAMPLES, *EXAMPLES, *EXAMPLES[:16]]
    for client in (ScoringClient(url), Replicas([url], truncate=False)):
        with pytest.raises(TooLong, match=r"1 of 2 conversations .* \(counted from conversation 256\)") as error:
            client.rate([*rows, long, EXAMPLES[0]])
        assert error.value.lengths[0] > error.value.limit == 64
        with pytest.raises(DataError, match=r"conversations.1.0.role: .* \(counted from conversation 256\)"):
            client.rate([*rows, EXAMPLES[0], Example(({"role": "root", "content": "a"},), "b")])
        with pytest.raises(TooLong, match="set truncate$"):
            client.rate([long])
        client.close()


def test_many_or_long_conversations_go_in_several_requests():
    seen: list = []
    client = ScoringClient("http://x", http=scripted(*[1.0] * 9, limits={"request_items": 4}, seen=seen))
    assert client.rate(EXAMPLES[:10]).tolist() == [[1.0]] * 10 and [len(rows) for rows in seen] == [4, 4, 2]
    seen.clear()
    client = ScoringClient("http://x", http=scripted(*[1.0] * 9, seen=seen))
    client.rate([Example(user_turn("a"), "x" * size) for size in (10, 10, 900, 10, 2000)])
    lengths = [[len(turns[-1]["content"]) for turns in rows] for rows in seen]
    assert lengths == [[10, 10], [900], [10], [2000]], "1,000 tokens are at least 1,000 bytes, some of them of roles"


def test_those_who_were_refused_come_back_when_told_and_not_together(clock, monkeypatch):
    answers = [busy(429, "2"), busy(503, "1", 0.25), httpx.ConnectError("gone"), 1.0]
    client = ScoringClient("http://x", http=scripted(*answers))
    assert client.rate(EXAMPLES[:1]).tolist() == [[1.0]]
    assert clock.slept == [2.0, 0.25, 0.5], "the header, the figure behind it, half a second for a lost connection"
    clock.slept.clear()
    client = ScoringClient("http://x", patience=7, http=scripted(*[busy(429, "3")] * 9))
    with pytest.raises(UsageError, match="status 429 for 7 s"):
        client.rate(EXAMPLES[:1])
    assert clock.slept == [3.0, 3.0], "a third wait would end after nine seconds"
    clock.slept.clear()
    drawn = []
    monkeypatch.setattr(client_module.random, "uniform", lambda low, high: drawn.append((low, high)) or high)
    ScoringClient("http://x", http=scripted(busy(429, "2"), 1.0)).rate(EXAMPLES[:1])
    assert drawn == [(1.0, 1.5)] and clock.slept == [3.0]


def test_other_failures_are_not_repeated_and_another_contract_is_refused(clock):
    for status in (500, 504):
        answer = httpx.Response(status, json={"error": {"message": "broken"}})
        with pytest.raises(UsageError, match="http://x: broken"):
            ScoringClient("http://x", http=scripted(answer)).rate(EXAMPLES[:1])
        assert clock.slept == [], status
    for answer in (httpx.Response(200, text="<html>back soon"), httpx.Response(200, json={})):
        with pytest.raises(UsageError, match="http://x/score: not the response of a rewardlab server"):
            ScoringClient("http://x", http=scripted(answer)).rate(EXAMPLES[:1])
    other = replace(CONTRACT, objectives=("better",))
    answer = httpx.Response(200, json={"results": []}, headers={"x-scoring-contract": other.hash()})
    client = ScoringClient("http://x", http=scripted(1.0, answer))
    client.rate(EXAMPLES[:1])
    with pytest.raises(CheckFailed, match=f"scores under contract {other.hash()}, and before under {CONTRACT.hash()}"):
        client.rate(EXAMPLES[:1])


def test_a_reward_function_takes_plain_and_conversational_prompts_and_gives_none_without_a_score(url, model):
    with ScoringClient(url) as client:
        truth = model.rate(EXAMPLES[:2])
        plain = client.as_reward()([EXAMPLES[0].prompt[0]["content"]], [EXAMPLES[0].completion], extra=[1])
        assert plain == pytest.approx([truth[0].mean()], abs=NEAR)
        talks = [[*map(dict, example.prompt)] for example in EXAMPLES[:2]]
        answers = [[{"role": "assistant", "content": example.completion}] for example in EXAMPLES[:2]]
        brief = client.as_reward("brief")
        assert brief(prompts=talks, completions=answers) == pytest.approx(truth[:, 1], abs=NEAR)
        assert brief.__name__ == "brief" and client.as_reward().__name__ == "reward"
        with pytest.raises(UsageError, match="no objective 'breif'; did you mean 'brief'"):
            client.as_reward("breif")
        with pytest.raises(DataError, match="the last turn of a completion is 'user'"):
            brief(prompts=talks[:1], completions=[[{"role": "user", "content": "no"}]])
    rows = ["fox", "fox " * 200, "dog"]
    truth = model.rate([Example(user_turn("a"), row) for row in rows])
    with ScoringClient(url) as client:
        found = client.as_reward("helpful")(["a"] * 3, rows)
    assert found[1] is None and [found[0], found[2]] == pytest.approx([truth[0, 0], truth[2, 0]], abs=NEAR)
    assert ScoringClient("http://x", http=scripted(None)).as_reward()(["a"], ["b"]) == [None]


def test_grpo_trains_on_a_served_reward(url, model, tmp_path):
    words = models.tokenizer()
    prompts = [{"prompt": [*map(dict, prompt)]} for prompt in garden.prompts(16, 0)]
    with ScoringClient(url, truncate=True) as client:
        trainer = GRPOTrainer(
            models.causal_lm(words, seed=3),
            reward_funcs=[client.as_reward("helpful"), client.as_reward("brief")],
            args=GRPOConfig(output_dir=str(tmp_path), max_steps=2, logging_steps=1, report_to=[], **SMALL_RUN),
            train_dataset=Dataset.from_list(prompts),
            processing_class=words,
        )
        trainer.train()
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert len(logged) == 2
    for row in logged:
        parts = [row[f"rewards/{name}/mean"] for name in ("helpful", "brief")]
        assert row["reward"] == pytest.approx(sum(parts), abs=1e-5) and all(np.isfinite(parts)) and all(parts)
