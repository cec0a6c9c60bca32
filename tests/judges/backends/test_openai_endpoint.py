"""judges/backends/openai_endpoint.py: the official client against a real HTTP server of ours that misbehaves."""

import asyncio
import json
import logging
import socket
import sys
import threading
import time
import warnings

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.cost import Prices
from rewardlab.judges.backends.openai_endpoint import Endpoint
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn
from rewardlab.tests.stand_ins.chat_server import FAULTS, SPOILT, ChatServer, verdict
from transformers import AutoModelForCausalLM

from tests.conftest import PATIENCE
from tests.vllm_server import vllm_python, vllm_server

QUICK = {"first_wait": 0.01, "longest_wait": 0.1, "retries": 20}
SCHEMA = {"type": "object", "properties": {"winner": {"enum": ["A", "B"]}}, "required": ["winner"]}
A_COIN_EACH = Prices(completion=250_000.0)  # a verdict has 15 letters, so 4 tokens: 1.0
SHORT = {"max_tokens": 4}


def asks(number, **options):
    return [Ask(user_turn(f"Case {place}: which answer is better?"), **options) for place in range(number)]


def ours(told):
    """Our own among the warnings that were recorded; others are told of whatever is collected meanwhile."""
    return [one for one in told if one.category is UserWarning]


@pytest.fixture(autouse=True)
def no_key_of_ours(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_replies_come_in_the_order_of_the_asks_with_their_tokens_and_the_request_says_what_was_asked():
    with ChatServer() as server:
        replies = Endpoint("judge", server.url).ask(asks(30))
    assert [reply.text for reply in replies] == [verdict({"messages": list(ask.messages)}) for ask in asks(30)]
    assert {reply.text for reply in replies} == {'{"winner": "A"}', '{"winner": "B"}'}
    assert replies[0][1:4] == ("stop", 8, 4) and replies[0].seconds > 0  # 31 letters asked, 15 said
    with ChatServer() as server:
        options = {"top_p": 0.5, "temperature": None}
        Endpoint("judge", server.url, options=options).ask(asks(1, max_tokens=7, seed=3, schema=SCHEMA))
        (said,) = server.requests
    assert (said["model"], said["max_tokens"], said["seed"], said["top_p"]) == ("judge", 7, 3, 0.5)
    assert said["response_format"]["json_schema"]["schema"] == SCHEMA and "temperature" not in said


def test_a_proxy_is_not_used_for_a_server_on_this_machine(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ChatServer() as server:
        (reply,) = Endpoint("judge", server.url, retries=0).ask(asks(1))
    assert not reply.error


def test_what_may_pass_is_asked_again_and_a_reason_is_one_line_of_bounded_length():
    kinds = [kind for kind in FAULTS if kind not in SPOILT]
    with ChatServer(faults=0.5, kinds=kinds, hang=60.0) as server:
        replies = Endpoint("judge", server.url, **QUICK, timeout=1.0).ask(asks(30))
    assert not any(reply.error for reply in replies)
    assert {*server.faulty} == {*kinds} and server.asked.total() >= 30 + server.faulty.total()
    with ChatServer(faults=1.0, kinds=["failing"], failure="<html>\n" + "busy " * 2000) as server:
        (reply,) = Endpoint("judge", server.url, retries=0).ask(asks(1))
    assert reply.error.endswith("... (attempts: 1)") and "\n" not in reply.error and len(reply.error) < 330


def test_a_server_is_left_alone_for_as_long_as_it_asks_unless_that_is_too_long():
    with ChatServer(faults=1.0, kinds=["busy"], retry_after="0.3") as server:
        start = time.monotonic()
        (reply,) = Endpoint("judge", server.url, retries=1, first_wait=0.0).ask(asks(1))
    assert time.monotonic() - start >= 0.3 and server.asked.total() == 2 and "slow down" in reply.error
    with ChatServer(faults=1.0, kinds=["busy"], retry_after="3600") as server:
        (reply,) = Endpoint("judge", server.url).ask(asks(1))
    assert "the server asks to wait 3600 s" in reply.error and server.asked.total() == 1


def test_a_parameter_that_a_server_refuses_is_left_out_or_renamed_unless_it_is_a_users():
    with ChatServer(refuses=["response_format"]) as server:
        chat = Endpoint("judge", server.url, concurrency=1)
        with pytest.warns(UserWarning, match="refuses a JSON schema; requests are sent without it") as told:
            replies = chat.ask(asks(5, schema=SCHEMA))
        assert len(ours(told)) == 1 and not any(reply.error for reply in replies)
        assert ["response_format" in said for said in server.requests] == [True] + [False] * 5
    with ChatServer(refuses=["max_tokens"]) as server:
        replies = Endpoint("judge", server.url, concurrency=1).ask(asks(3, max_tokens=9))
        assert not any(reply.error for reply in replies)
        assert [said.get("max_completion_tokens") for said in server.requests] == [None, 9, 9, 9]
    with ChatServer(refuses=["max_tokens"]) as server:
        options = {"max_tokens": 5}  # ours to insist on, so that it is not given up
        (reply,) = Endpoint("judge", server.url, options=options).ask(asks(1))
    assert "400" in reply.error and server.asked.total() == 1


def test_a_wrong_key_ends_the_call_and_is_repeated_nowhere_and_a_key_has_one_line(monkeypatch, caplog):
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    caplog.set_level(logging.DEBUG)
    with ChatServer(key="sk-another") as server, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        chat = Endpoint("judge", server.url, key_variable="JUDGE_KEY", concurrency=4)
        replies = chat.ask(asks(50))
    assert server.asked.total() <= 4  # those that were in flight together
    assert all("Incorrect API key provided: ***" in reply.error for reply in replies)
    assert sum(reply.error.startswith("not asked: ") for reply in replies) >= 46
    written = "".join([repr(chat), chat.name, caplog.text, *map(str, replies), *(str(one.message) for one in told)])
    assert "sk-very-secret" not in written
    monkeypatch.setenv("JUDGE_KEY", "sk-right\n")  # as a file of secrets ends
    with ChatServer(key="sk-right") as server:
        (reply,) = Endpoint("judge", server.url, key_variable="JUDGE_KEY").ask(asks(1))
    assert not reply.error
    monkeypatch.setenv("JUDGE_KEY", "sk-one\nsk-two")
    with ChatServer() as server, pytest.raises(UsageError, match="the API key in JUDGE_KEY has a line break") as error:
        Endpoint("judge", server.url, key_variable="JUDGE_KEY").ask(asks(1))
    assert not server.requests and "sk-" not in str(error.value)


def test_no_request_starts_once_the_limit_of_cost_is_reached_and_those_in_flight_cannot_overrun_it():
    with ChatServer() as server:
        chat = Endpoint("judge", server.url, prices=A_COIN_EACH, max_cost=5.0, concurrency=2)
        with pytest.warns(UserWarning, match="the cost limit 5 is reached: 5 spent, .* may cost up to 1") as told:
            replies = chat.ask(asks(20, **SHORT))
        paid = [reply for reply in replies if not reply.error]
        assert len(ours(told)) == 1 and len(paid) == chat.bill.budget.spent == server.asked.total() == 5
        assert all("not asked: the cost limit 5 is reached" in reply.error for reply in replies if reply.error)
        with warnings.catch_warnings(action="ignore"):
            assert chat.ask(asks(1, **SHORT))[0].error
        assert server.asked.total() == 5 and chat.bill.budget.reserved == 0
    with ChatServer() as server, pytest.raises(UsageError, match="--max_cost 1 is too low: a single request may"):
        Endpoint("judge", server.url, prices=A_COIN_EACH, max_cost=1.0).ask(asks(3, max_tokens=5))
    assert not server.requests
    # Each may cost 4 of a limit of 10 and costs 1: two are in flight, and the last starts when 6 are spent.
    spent = pytest.warns(UserWarning, match="the cost limit 10 is reached: 7 spent")
    with ChatServer(latency=0.01) as server, spent:
        chat = Endpoint("judge", server.url, prices=A_COIN_EACH, max_cost=10.0)
        replies = chat.ask(asks(40, max_tokens=16))
        assert server.most_in_flight == 2 and chat.bill.budget.spent == server.asked.total() == 7
    assert sum(not reply.error for reply in replies) == 7


def test_a_request_that_waits_for_its_turn_is_not_sent_when_the_limit_is_reached_meanwhile():
    class Slow(Endpoint):
        """Whose rate lets one request through, and the others when that one is paid."""

        turns = 0

        async def turn(self, ask, place):
            self.turns += 1
            while self.turns > 1 and not self.bill.requests:
                await asyncio.sleep(0.001)

    with ChatServer() as server, pytest.warns(UserWarning, match="the cost limit 1 is reached"):
        chat = Slow("judge", server.url, prices=A_COIN_EACH, max_cost=1.0)
        replies = chat.ask(asks(4, **SHORT))
        assert server.asked.total() == 1 and chat.turns == 4 and sum(not reply.error for reply in replies) == 1


def test_a_server_that_is_down_is_given_up():
    with socket.socket() as deaf, pytest.warns(UserWarning, match="16 requests in a row failed"):
        deaf.bind(("127.0.0.1", 0))  # held, so that nobody else takes the port, and not listened to
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        replies = Endpoint("judge", url, retries=0, concurrency=4).ask(asks(100))
    refused = [reply.error for reply in replies if reply.error.startswith("not asked: ")]
    assert all(reply.error for reply in replies) and len(refused) in range(80, 85)


def test_as_many_are_in_flight_as_allowed_and_no_more():
    """Nobody is answered until eight wait, and then no ninth request has arrived."""
    arrived = []
    eight = threading.Barrier(8, action=lambda: arrived.append(server.asked.total()), timeout=PATIENCE)

    def answer(asked):
        eight.wait()
        return verdict(asked)

    with ChatServer(answer=answer) as server:
        replies = Endpoint("judge", server.url, concurrency=8, retries=0).ask(asks(40))
    assert arrived == [8, 16, 24, 32, 40] and not any(reply.error for reply in replies)


def test_requests_keep_to_the_rate_of_their_server():
    with ChatServer() as server:
        start = time.monotonic()
        Endpoint("judge", server.url, requests_per_minute=1200.0).ask(asks(7))
        assert time.monotonic() - start >= 6 * 0.05
        start = time.monotonic()  # each counts as 8 + 92 tokens, then as 12
        Endpoint("judge", server.url, tokens_per_minute=60_000.0, concurrency=1).ask(asks(3, max_tokens=92))
        assert time.monotonic() - start >= 2 * 0.012
    # Each of two gets 4 of 8 requests 50 ms apart, so the last goes after 3 such pauses.
    with ChatServer() as first, ChatServer() as second:
        start = time.monotonic()
        chat = Endpoint("judge", [first.url, second.url], requests_per_minute=1200.0, concurrency=8)
        chat.ask(asks(8))
        assert time.monotonic() - start >= 3 * 0.05 and first.asked.total() == second.asked.total() == 4


def test_replies_arrive_one_by_one_in_the_callers_thread_and_an_interrupt_ends_the_call():
    seen = []

    def arrived(place, reply):
        seen.append((place, threading.current_thread()))
        time.sleep(0.02)  # whose asking goes on behind the caller's back would be far ahead by now
        if len(seen) == 5:
            raise KeyboardInterrupt

    with ChatServer() as server:
        with pytest.raises(KeyboardInterrupt):
            Endpoint("judge", server.url, concurrency=2).ask(asks(100), arrived)
        assert server.asked.total() <= 5 + 2
    assert len({place for place, _ in seen}) == 5 and {thread for _, thread in seen} == {threading.current_thread()}


def test_the_name_tells_model_server_and_options_and_a_loop_may_be_running_already():
    plain = Endpoint("judge", "http://127.0.0.1:8000/v1")
    assert plain.name == "judge at http://127.0.0.1:8000/v1"
    assert Endpoint("judge", "http://127.0.0.1:8000/v1", options={"top_p": 0.5}).name != plain.name
    assert Endpoint("judge", "http://127.0.0.1:8000/v1", name="mine", concurrency=64).name == "mine"
    one, two = (Endpoint("judge", urls) for urls in ("http://a/v1", ["http://a/v1", "http://b/v1"]))
    assert one.name == two.name == "judge at http://a/v1"
    assert Endpoint("judge", "http://127.0.0.1:9/v1").ask([]) == []

    async def notebook(url):
        return Endpoint("judge", url).ask(asks(3))

    with ChatServer() as server:
        assert len(asyncio.run(notebook(server.url))) == 3


# ---- several servers ----


def test_servers_of_one_model_take_turns_share_the_bill_and_are_asked_again_when_they_have_come_back():
    with ChatServer() as first, ChatServer() as second:
        chat = Endpoint("judge", [first.url, second.url], concurrency=1, prices=A_COIN_EACH)
        replies = chat.ask(asks(10))
    assert [reply.text for reply in replies] == [verdict({"messages": list(ask.messages)}) for ask in asks(10)]
    assert (first.asked.total(), second.asked.total()) == (5, 5) and chat.bill.budget.spent == 10.0
    with ChatServer(key="sk-right") as bad, ChatServer(latency=0.005) as good:
        chat = Endpoint("judge", [bad.url, good.url], concurrency=1, first_wait=0.02)
        chat.ask(asks(3))
        bad.key, before = "", bad.asked.total()
        time.sleep(0.1)
        assert not any(reply.error for reply in chat.ask(asks(10))) and bad.asked.total() == before + 5


def test_what_was_in_flight_at_a_server_that_fails_goes_to_another():
    """Without a single retry nothing is lost, and whoever failed is left alone."""
    failing = ({"kinds": ["failing"]}, {"kinds": ["reset"]}, {"kinds": ["busy"], "retry_after": "30"})
    for wrong in (*({"faults": 1.0} | kind for kind in failing), {"key": "sk-other"}):
        with ChatServer(**wrong) as bad, ChatServer() as good:
            chat = Endpoint("judge", f"[{bad.url}, {good.url}]", retries=0, first_wait=30.0, concurrency=4)
            replies = chat.ask(asks(40))
        assert not any(reply.error for reply in replies) and good.asked.total() == 40, wrong
        assert 1 <= bad.asked.total() <= 4, wrong  # those that were in flight before the first failure was known


def test_where_all_servers_are_down_it_is_as_with_one():
    with ChatServer(faults=1.0, kinds=["failing"]) as first, ChatServer(faults=1.0, kinds=["failing"]) as second:
        replies = Endpoint("judge", [first.url, second.url], retries=1, first_wait=0.01).ask(asks(2))
        # two attempts each; a server that the other request has found to be down is not asked again
        assert first.asked.total() + second.asked.total() >= 4 and first.asked and second.asked
    assert all("out of order" in reply.error and reply.error.endswith("(attempts: 2)") for reply in replies)
    with ChatServer(key="a") as first, ChatServer(key="b") as second, pytest.warns(UserWarning, match="Incorrect"):
        replies = Endpoint("judge", [first.url, second.url], concurrency=2).ask(asks(50))
        assert first.asked.total() <= 2 and second.asked.total() <= 2
    assert sum(reply.error.startswith("not asked: ") for reply in replies) >= 48


def test_settings_that_make_no_sense_are_refused_and_a_missing_package_is_told(monkeypatch):
    for settings, message in [
        ({"base_url": "127.0.0.1:8000"}, "base_url must be an address such as https://api.openai.com/v1"),
        ({"base_url": "https://me:secret@host/v1"}, "the address of host has a user, a password or a query"),
        ({"base_url": "https://host/v1?key=secret"}, "environment variable OPENAI_API_KEY instead"),
        ({"base_url": ["http://a/v1", "b/v1"]}, "base_url must be an address such as .*, got 'b/v1'"),
        ({"base_url": "[http://a/v1, http://a/v1]"}, "base_url names http://a/v1 twice"),
        ({"concurrency": 0}, "concurrency must be 1 or more, got 0"),
        ({"timeout": 0.0}, "timeout must be a number of seconds > 0, got 0.0"),
        ({"max_cost": 1.0}, "needs prices"),
        ({"max_cost": 1.0, "options": {"n": 2}}, "max_cost does not support the option n"),
        ({"options": {"n": 2}}, "the option n is not supported: a request has one whole reply; leave it out"),
        ({"options": {"stream": True}}, "the option stream is not supported"),
    ]:
        with pytest.raises(UsageError, match=message) as error:
            Endpoint("judge", **settings)
        assert "secret" not in str(error.value), settings
    with pytest.raises(UsageError, match="the environment variable OPENAI_API_KEY has no API key"):
        Endpoint("judge").ask(asks(1))
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError, match=r"pip install 'rewardlab\[judges\]'"):
        Endpoint("judge", "http://127.0.0.1:9/v1").ask(asks(1))


def test_vllms_own_server_makes_untrained_weights_follow_a_schema(tmp_path):
    """They draw their tokens at random, and every text is a verdict all the same."""
    vllm_python()
    words = small_tokenizer([one.completion for one in garden.supervised_examples(300, seed=0)], 600)
    torch.manual_seed(0)
    config = small_config(words, hidden=64, layers=2, heads=2, positions=256)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    schema = SCHEMA | {"additionalProperties": False}
    drawn = [Ask(ask, schema, 120, temperature=1.0, seed=place) for place, ask in enumerate(garden.prompts(8, 0))]
    options = ["--served-model-name", "judge", "--max-model-len", "256"]
    with vllm_server(tmp_path, tmp_path / "log", *options) as url:
        chat = Endpoint("judge", f"{url}/v1")
        replies = chat.ask(drawn)
        (unknown,) = Endpoint("nobody", f"{url}/v1").ask(drawn[:1])
    assert {json.loads(reply.text)["winner"] for reply in replies if reply.finish == "stop"} == {"A", "B"}
    assert sum(reply.finish == "stop" for reply in replies) >= 6 and chat.bill.requests == 8
    assert "`nobody` does not exist" in unknown.error
