"""Several servers of one model are that model: the same numbers, whoever answers, fails or comes back."""

import json
import threading
from collections import Counter
from dataclasses import asdict, replace

import httpx
import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.rewards.served import served
from rewardlab.apps.serving import client as client_module
from rewardlab.apps.serving import replicas as replicas_module
from rewardlab.apps.serving.client import ScoringClient
from rewardlab.apps.serving.open_model import is_served, open_model
from rewardlab.apps.serving.replicas import Replicas, open_replicas
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import CheckFailed, DataError, UsageError
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn

from tests.apps.serving.conftest import EXAMPLES, config, turns
from tests.apps.serving.test_client import Clock, busy
from tests.conftest import PATIENCE
from tests.stand_ins.scoring_server import serve_in_thread

CONTRACT = ScoringContract(kind="linear", objectives=("good",))
LIMITS = {"request_items": 512, "request_tokens": 100_000, "body_bytes": 1_000_000}
DIGIT = np.finfo(np.float32).eps


class Fleet:
    """Servers without a network: each gives its answers one after the other, then the length of every answer."""

    def __init__(self, *scripts, contracts=(), limits=None):
        self.scripts = dict(zip("abc", map(iter, scripts), strict=False))
        self.contracts = dict(zip("abc", contracts or [CONTRACT] * len(scripts), strict=False))
        self.limits, self.asked, self.lock = limits or {}, Counter(), threading.Lock()

    def connect(self, url: str, token: str | None, **settings) -> ScoringClient:
        return ScoringClient(url, token, **settings, http=httpx.Client(transport=httpx.MockTransport(self.handle)))

    def handle(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        with self.lock:
            if request.url.path == "/health":
                return self._health(host)
            self.asked[host] += 1
            answer = next(self.scripts[host], None)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        rows = json.loads(request.content)["conversations"]
        results = [{"scores": {"good": float(len(turns[-1]["content"]))}} for turns in rows]
        return httpx.Response(200, json={"results": results}, headers={"x-scoring-contract": self.contract(host)})

    def _health(self, host: str) -> httpx.Response:
        contract = self.contracts[host]
        if isinstance(contract, Exception):
            raise contract
        limits = LIMITS | self.limits.get(host, {})
        return httpx.Response(200, json={"contract": contract.hash(), "scoring": asdict(contract), "limits": limits})

    def contract(self, host: str) -> str:
        return self.contracts[host].hash()

    def open(self, **settings) -> Replicas:
        return Replicas([f"http://{host}" for host in self.scripts], connect=self.connect, **settings)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(replicas_module, "time", clock)
    monkeypatch.setattr(replicas_module.random, "uniform", lambda low, high: low)
    return clock


LENGTHS = [[float(len(one.completion))] for one in EXAMPLES]


def test_requests_take_turns_and_what_one_cannot_answer_goes_to_another_at_once(clock):
    fleet = Fleet([], [], [])
    assert fleet.open().rate(EXAMPLES).tolist() == LENGTHS
    assert fleet.asked == {"a": 1, "b": 1, "c": 1}, "a third of the 60 conversations each"
    assert fleet.open().rate([]).shape == (0, 1) and clock.slept == []
    for wrong in (httpx.ConnectError("gone"), busy(429, "30"), busy(503, "1", 0.25)):
        fleet = Fleet([wrong] * 9, [])
        assert fleet.open(in_flight=1).rate(EXAMPLES[:8]).tolist() == LENGTHS[:8], wrong
        assert fleet.asked == {"a": 1, "b": 2} and clock.slept == [], wrong


def test_where_all_are_full_or_fail_slowly_it_comes_again_until_its_patience_ends(clock):
    fleet = Fleet([busy(429, "3")], [busy(503, "2")])
    assert fleet.open().rate(EXAMPLES[:1]).tolist() == LENGTHS[:1]
    assert clock.slept == [2.0] and fleet.asked == {"a": 1, "b": 2}
    clock.slept.clear()
    fleet = Fleet([busy(429, "3")] * 9, [httpx.ConnectError("gone")] * 9)
    with pytest.raises(UsageError, match=r"none of http://a, http://b answers for 7 s; last reason: .*raise patience"):
        fleet.open(patience=7).rate(EXAMPLES[:1])
    assert sum(clock.slept) <= 7
    # Each takes 10 s to fail, longer than the other's rest, so that one of them always seems to be up.

    class Slow(Fleet):
        def handle(self, request):
            clock.now += 10.0 * (request.url.path == "/score")
            return super().handle(request)

    fleet = Slow([httpx.ReadTimeout("slow")] * 9, [httpx.ReadTimeout("slow")] * 9)
    with pytest.raises(UsageError, match=r"answers for 15 s; last reason: no answer \(ReadTimeout\)"):
        fleet.open(patience=15).rate(EXAMPLES[:1])
    assert fleet.asked == {"a": 1, "b": 1}


def test_a_replica_of_another_model_is_refused_and_one_that_is_down_at_first_is_asked_when_it_is_there(clock):
    other = replace(CONTRACT, objectives=("better",))
    with pytest.raises(CheckFailed, match=f"http://b scores under contract {other.hash()}.* under {CONTRACT.hash()}"):
        Fleet([], [], contracts=[CONTRACT, other]).open()
    fleet = Fleet([], [])
    model = fleet.open()
    fleet.contracts["b"] = other
    with pytest.raises(CheckFailed, match=f"under contract {other.hash()}, and before under {CONTRACT.hash()}"):
        model.rate(EXAMPLES)
    fleet = Fleet([], [], contracts=[httpx.ConnectError("not yet"), CONTRACT])
    model = fleet.open(in_flight=1)
    assert model.rate(EXAMPLES[:4]).tolist() == LENGTHS[:4] and fleet.asked == {"b": 2}
    fleet.contracts["a"], clock.now = CONTRACT, 100.0
    assert model.rate(EXAMPLES[:4]).tolist() == LENGTHS[:4] and fleet.asked == {"a": 1, "b": 3}
    later = Fleet([], [], contracts=[httpx.ConnectError("not yet"), CONTRACT])
    model, later.contracts["a"] = later.open(), replace(CONTRACT, objectives=("better",))
    with pytest.raises(CheckFailed, match="cannot be compared"):
        model.rate(EXAMPLES)


def test_the_smallest_limits_hold_for_all_and_servers_that_cannot_be_asked_are_told(clock):
    fleet = Fleet([], [], limits={"b": {"request_items": 4}})
    assert fleet.open().rate(EXAMPLES[:20]).tolist() == LENGTHS[:20]
    assert fleet.asked.total() == 5
    refused = httpx.Response(422, json={"error": {"message": "conversation 0: no"}})
    fleet = Fleet([refused], [refused])
    with pytest.raises(DataError, match="http://a: conversation 0: no"):
        fleet.open().rate(EXAMPLES[:1])
    assert fleet.asked.total() == 1
    for urls, message in (
        ("http://127.0.0.1:9", "no answer .*is rewardlab serve running there"),
        ("127.0.0.1:9", "a server's address must be an address such as"),
        ("[http://a, http://a]", "urls names http://a twice"),
    ):
        with pytest.raises(UsageError, match=message):
            served(run=None, urls=urls)
    assert is_served("served(urls=http://a)") and not is_served("served_models/rm")
    with pytest.raises(UsageError, match="the argument 'urls' is missing"):
        open_model("served")


def same(found, truth) -> bool:
    """A sum in float32 depends in its last digit on what else is in the batch, here as in one process."""
    return np.allclose(found, truth, rtol=0, atol=4 * DIGIT * np.abs(truth).max())


def test_rewards_are_the_local_models_to_the_last_digit(serve, model, monkeypatch):
    """Two replicas with a token, conversations beyond what the model reads among them."""
    monkeypatch.setenv("REWARDLAB_TOKEN", "sesame")
    rows = [*EXAMPLES, Example(user_turn("hello"), "fox " * 200)]
    urls = [serve(model, token="sesame") for _ in range(2)]
    with open_replicas(urls) as replicas:
        alone = np.concatenate([replicas.rate([one]) for one in rows[-8:]])
        assert same(replicas.rate(rows), model.rate(rows)) and replicas.contract == model.contract
    assert np.array_equal(alone, np.concatenate([model.rate([one]) for one in rows[-8:]])), "the way loses no digit"
    monkeypatch.delenv("REWARDLAB_TOKEN")
    with pytest.raises(UsageError, match="requires a token"), open_replicas(urls) as replicas:
        replicas.rate(rows[:1])


def asked_until_one_fails(replicas):
    """Rewards of round after round, the last of them that in which a replica was first without an answer."""
    while not any(rest.failures for rest in replicas.rotation.states):
        yield replicas.rate(EXAMPLES)


def test_a_replica_that_stops_in_the_middle_loses_nothing(serve, model, monkeypatch):
    """It stops after its first answer; the rest is the other one's."""
    truth, staying = model.rate(EXAMPLES), serve(model)
    with serve_in_thread(model, config()) as leaving:
        replicas = Replicas([leaving, staying])
        rounds = [replicas.rate(EXAMPLES)]
        late = threading.Thread(target=lambda: rounds.extend(asked_until_one_fails(replicas)))
        late.start()
    late.join(PATIENCE)
    assert len(rounds) > 1 and all(same(one, truth) for one in rounds)
    assert replicas.rotation.states[0].failures > 0


def test_score_and_eval_name_servers_as_they_name_a_model(serve, model, tmp_path, capsys):
    model.save(tmp_path / "rm")
    write_golden(model, EXAMPLES[:8], tmp_path / "rm")
    local = load_reward_model(str(tmp_path / "rm"))
    urls = [serve(local) for _ in range(2)]
    rows = [{"id": str(place), "messages": turns(one)} for place, one in enumerate(EXAMPLES)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [{"prompt": "a", "chosen": one.completion, "rejected": two.completion}
             for one, two in zip(EXAMPLES[::2], EXAMPLES[1::2], strict=True)]  # fmt: skip
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    spec = f"served(urls=[{', '.join(urls)}])"
    named = {"local": ["--model", str(tmp_path / "rm")], "servers": ["--servers", *urls], "spec": ["--model", spec]}
    for name, words in named.items():
        asked = ["score", *words, "--data", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / f"{name}.jsonl")]
        assert main(asked) == 0
    told = [json.loads(line)["contract"] for line in capsys.readouterr().out.splitlines()]
    assert told == [local.contract.hash()] * 3
    found = {name: [json.loads(line)["helpful"] for line in (tmp_path / f"{name}.jsonl").open()] for name in named}
    for name in ("servers", "spec"):
        assert same(found[name], np.array(found["local"]))
    words = ["eval", "--benchmark", "pairs", "--model", str(tmp_path / "rm"), spec, "--data",
             str(tmp_path / "pairs.jsonl"), "--bootstrap_samples=50", "--output", str(tmp_path / "eval")]  # fmt: skip
    assert main(words) == 0
    overall = json.loads(capsys.readouterr().out.splitlines()[-1])["overall"]
    assert overall["served"] == overall["rm"]
    assert main(["score", "--servers", urls[0], "--model", "rm", "--data", "d", "--output", "x.jsonl"]) == 2
    assert "--servers have the model; leave --model rm out" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "AGAIN", 0.01)
