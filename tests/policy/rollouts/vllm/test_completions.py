"""Answers from a server, with a stand-in that speaks its protocol, and with vLLM's own."""

import copy

import pyarrow.parquet as pq
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.rollouts.vllm.completions import distribute, request, server_rollouts
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.io.server_rotation import Rotation

from tests.json_server import JsonHandler, running
from tests.policy.toy_training import logged

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")


class StandIn(JsonHandler):
    """Draws every answer from a model at temperature 1, as the server that it is in for."""

    model = None
    requests: list = []  # noqa: RUF012
    broken = ""

    def do_GET(self):
        self.reply({"data": [] if self.broken == "no model" else [{"id": "policy"}]})

    def do_POST(self):
        asked = self.asked()
        type(self).requests.append(asked | {"key": self.headers.get("Authorization")})
        if self.broken == "busy":
            self.send_error(503, "busy")
            return
        choices = [self._answer(place, ids, asked["max_tokens"]) for place, ids in enumerate(asked["prompt"])]
        if self.broken == "short":
            choices.pop()
        if self.broken in ("token_ids", "logprobs"):
            choices = [one | {self.broken: None} for one in choices]
        self.reply({"choices": choices[::-1]})

    def _answer(self, place, ids, most):
        tokens = self.model.generate(torch.tensor([ids]), max_new_tokens=most, do_sample=True, top_k=0)[0]
        with torch.no_grad():
            logp = self.model(tokens[None]).logits[0].log_softmax(-1)
        said = tokens[len(ids) :].tolist()
        logprobs = [logp[len(ids) - 1 + t, token].item() for t, token in enumerate(said)]
        return {"index": place, "token_ids": said, "logprobs": {"token_logprobs": [*logprobs[:-1], None]}}


@pytest.fixture
def server(base):
    StandIn.model, StandIn.requests, StandIn.broken = copy.deepcopy(base), [], ""
    with running(StandIn) as url:
        yield url


@pytest.fixture
def train(train_written_by):
    def run(url, policy=None, steps=1):
        changed = {"max_steps": steps, "gradient_accumulation_steps": 1, "max_completion_length": 8, "rollout_steps": 1}
        return train_written_by(server_rollouts(url), policy=policy, **changed)

    return run


def test_ratios_are_taken_against_the_policy_that_wrote_the_answers(server, train, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_API_KEY", "secret\n")  # as a file of secrets ends
    trainer = train(server, steps=3)
    ratios = logged(trainer, "ratio")
    assert ratios[0] == pytest.approx(1, abs=1e-4)  # the server has the start policy
    assert abs(ratios[2] - 1) > 1e-4  # and still has it after two steps
    (first, *_) = StandIn.requests
    assert first["key"] == "Bearer secret" and first["model"] == "policy" and first["return_token_ids"]
    prompts = [trainer.encoder.encode_prompt(one) for one in garden.prompts(16, 0)]
    assert all(one in prompts for one in first["prompt"]) and len(first["prompt"]) == 8
    file, *_ = sorted((tmp_path / "run" / "rollouts").iterdir())
    assert {row["logprobs_of"] for row in pq.read_table(file).to_pylist()} == {"server"}


def test_a_server_that_fails_is_named_and_a_key_of_two_lines_refused(server, make_trainer, monkeypatch):
    trainer, asked = make_trainer(max_completion_length=8), [list(one) for one in garden.prompts(8, 0)]
    for StandIn.broken, error, message in (
        ("busy", DataError, "completions: 503"),
        ("short", DataError, "returned 7 completions for 8 prompts"),
        ("token_ids", UsageError, "completions have no token_ids or no logprobs"),
        ("logprobs", UsageError, "completions have no token_ids or no logprobs"),
        ("no model", UsageError, "not a response of a completion server .*; check the address"),
    ):
        with pytest.raises(error, match=message):
            server_rollouts(server)(asked, trainer)
    with pytest.raises(DataError, match="no response .*; check that the server is running"):
        server_rollouts("http://127.0.0.1:9")(asked, trainer)
    monkeypatch.setenv("VLLM_API_KEY", "open\nsesame")
    with pytest.raises(UsageError, match="the API key in VLLM_API_KEY has a line break"):
        server_rollouts("http://127.0.0.1:9")


def test_a_proxy_is_not_used_for_a_server_on_this_machine(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert request(f"{server}/v1/models", 10.0)["data"] == [{"id": "policy"}]


def test_two_servers_take_turns_by_whole_groups(base, train):
    """Two groups of four: each server is asked for one prompt four times over."""
    StandIn.model, StandIn.requests, StandIn.broken = copy.deepcopy(base), [], ""
    with running(StandIn) as first, running(StandIn) as second:
        trainer = train(f"[{first}, {second}/]")
    prompts = [asked["prompt"] for asked in StandIn.requests]
    assert [len(one) for one in prompts] == [4, 4] and all(one == [one[0]] * 4 for one in prompts)
    ratios = logged(trainer, "ratio")
    assert ratios == pytest.approx([1], abs=1e-4)


def test_groups_are_dealt_again_until_every_server_has_failed_once():
    """Of three servers the second fails: its third of the groups is dealt to the first and the third."""
    asked, groups = [], [range(start, start + 2) for start in range(0, 12, 2)]

    def draw(place, rows):
        asked.append((place, rows))
        if place == 1:
            raise DataError("down")
        return [{"row": row, "by": place} for row in rows]

    turns = Rotation(3, first=1.0)
    found = distribute(turns, groups, draw, clock=lambda: 0.0)
    assert [found[row]["row"] for row in range(12)] == [*range(12)]
    assert sorted(asked[:3]) == [(0, [0, 1, 6, 7]), (1, [2, 3, 8, 9]), (2, [4, 5, 10, 11])]
    assert sorted(asked[3:]) == [(0, [2, 3]), (2, [8, 9])] or sorted(asked[3:]) == [(0, [8, 9]), (2, [2, 3])]
    assert turns.available(0.5) and 1 not in turns.available(0.5) and 1 in turns.available(1.0)
