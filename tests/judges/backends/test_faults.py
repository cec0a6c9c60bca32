"""judges/backends/faults.py: each fault of an endpoint through the official client, and the same table in the docs."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import httpx2
import openai
import pytest
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.cost import Prices, most_prompt_tokens
from rewardlab.judges.backends.faults import FAULTS, Action, Billed
from rewardlab.judges.backends.openai_endpoint import Endpoint
from rewardlab.rm.types import user_turn

ASKS = [Ask(user_turn("Which?"), max_tokens=20), Ask(user_turn("And which?"), max_tokens=20)]
USAGE = {"prompt_tokens": 10, "completion_tokens": 5}
GUIDE = Path(__file__).parents[3] / "docs/guides/judges.md"
FAULT = {fault.name: fault for fault in FAULTS}


class Mocked(Endpoint):
    """An endpoint whose client has a transport of the test, and no network."""

    transport: httpx2.MockTransport

    def _client(self, url):
        client = httpx2.AsyncClient(transport=self.transport)
        return openai.AsyncOpenAI(api_key="none", base_url=url, timeout=5, max_retries=0, http_client=client)


def refused(status, message="no", **error):
    return lambda _: httpx2.Response(status, json={"error": {"message": message, **error}})


def completion(content="", finish="stop", usage=USAGE, **message):
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return lambda _: httpx2.Response(200, json={"choices": [choice], "usage": usage})


def body(text):
    return lambda _: httpx2.Response(200, text=text)


def raising(error):
    def answer(request):
        raise error("nothing", request=request)

    return answer


CASES = [
    ("the quota or credit of the account is used up", refused(402, "Insufficient Balance")),
    ("the quota or credit of the account is used up", refused(429, "later", code="insufficient_quota")),
    ("the quota or credit of the account is used up", refused(429, "later", type="insufficient_quota")),
    ("the quota or credit of the account is used up", refused(400, "limit", code="billing_hard_limit_reached")),
    ("the request is refused by a content filter", refused(400, code="content_filter")),
    ("the request is refused by a content filter", refused(403, code=403, metadata={"flagged_input": "x"})),
    ("the request is too long", refused(413)),
    ("the request is too long", refused(400, "max_tokens is too large", code="context_length_exceeded")),
    ("the API key is refused", refused(401, code="invalid_api_key")), ("the key may not use the model", refused(403)),
    ("no such model or address", refused(404, code="model_not_found")),
    ("the request is refused", refused(400, code=400, type="BadRequestError")),
    ("the request is refused", refused(422)), ("the request is refused", refused(418)),
    ("the server asks to try again", refused(408)), ("the server asks to try again", refused(409)),
    ("too many requests", refused(429, "insufficient_quota is no reason here", code="rate_limit_exceeded")),
    ("too many requests", lambda _: httpx2.Response(429, text="slow down")), ("the server failed", refused(500)),
    ("the server failed", refused(503, type="overloaded")), ("the server failed", refused(599)),
    ("the server failed", body('{"error": {"code": 500, "message": "within a success"}}')),
    ("the quota or credit of the account is used up", body('{"error": {"code": "insufficient_quota"}}')),
    ("a gateway has no reply from the server", lambda _: httpx2.Response(502, text="<html>bad gateway")),
    ("a gateway has no reply from the server", refused(504)), ("no reply in time", raising(httpx2.ReadTimeout)),
    ("no connection", raising(httpx2.ConnectError)), ("no connection", raising(httpx2.ConnectTimeout)),
    ("the connection was lost", raising(httpx2.ReadError)),
    ("the connection was lost", raising(httpx2.RemoteProtocolError)),
    ("the response is no completion", body('{"choices": []}')),
    ("the response is no completion", body('{"choices": [{"mess')), ("the reply has no text", completion()),
    ("the reply has no text", completion(None, reasoning_content="hm")),
    ("the server did not finish the reply", completion('{"winner": "A"}', "error")),
    ("the server did not finish the reply", completion('{"winner": "A"}', "abort")),
    ("the server did not finish the reply", completion(None, "insufficient_system_resource")),
    ("the reply is cut off", completion('{"winner": ', "length")),
    ("the reply is cut off", completion('{"winner": ', "model_length")),
    ("the reply is cut off", completion(None, "length", reasoning_content="hm")),
    ("the model or a filter declines to reply", completion(None, refusal="I cannot judge that.")),
    ("the model or a filter declines to reply", completion("half of", "content_filter")),
]  # fmt: skip


class Outcome(NamedTuple):
    requests: int
    billed: int
    """Tokens on the bill."""
    replies: list


def outcome(answer) -> Outcome:
    """Send two requests, one after the other, each with one retry, to a server that always answers alike."""
    received = []

    def handler(request):
        received.append(json.loads(request.content))
        return answer(request)

    settings = {"concurrency": 1, "retries": 1, "first_wait": 0.0, "prices": Prices(1.0, 1.0)}
    chat = Mocked("judge", "http://127.0.0.1:9/v1", **settings)
    chat.transport = httpx2.MockTransport(handler)
    replies = chat.ask(ASKS)
    bill = chat.bill
    assert bill.requests == sum(reply.requests for reply in replies)
    return Outcome(len(received), bill.prompt_tokens + bill.completion_tokens, replies)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_done_about_a_fault_and_what_it_adds_to_the_bill():
    for name, answer in CASES:
        fault, found = FAULT[name], outcome(answer)
        assert found.requests == {Action.FATAL: 1, Action.ABSTAIN: 2, Action.RETRY: 4}[fault.action], name
        most = sum(most_prompt_tokens(ask) + ask.max_tokens for ask in ASKS)
        assert found.billed == {Billed.NO: 0, Billed.USAGE: 2 * 15, Billed.AT_MOST: 2 * most}[fault.billed], name
        assert all(reply.estimated == (2 if fault.billed == Billed.AT_MOST else 0) for reply in found.replies), name
        assert found.replies[1].error.startswith("not asked: ") == (fault.action == Action.FATAL), name


def test_the_guide_has_the_same_table_and_every_fault_a_case():
    rows = re.findall(r"^\| (.+) \| (.*) \| (fatal|retry|abstain) \| (.+) \|$", GUIDE.read_text(), re.MULTILINE)
    assert rows == [
        (fault.name, ", ".join([*map(str, fault.statuses), *(f"`{code}`" for code in fault.codes)]), *fault[1:3])
        for fault in FAULTS
    ]
    assert {name for name, _ in CASES} == FAULT.keys()
