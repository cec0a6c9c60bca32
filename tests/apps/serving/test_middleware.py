"""Who is let in, with how much, for how long; and that whoever is not, is told so and harms nobody."""

import asyncio
import importlib.util
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from rewardlab.apps.cli import main
from rewardlab.apps.serving.client import ScoringClient
from rewardlab.apps.serving.protocol import ScoreRequest
from rewardlab.apps.serving.refusals import Refused
from rewardlab.apps.serving.requests import Item
from rewardlab.apps.serving.routes import Site
from rewardlab.apps.serving.settings import ServeConfig
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, user_turn
from starlette.datastructures import Headers
from starlette.requests import Request

from tests.apps.serving.conftest import EXAMPLES, asks, config
from tests.conftest import PATIENCE, wait_until
from tests.soak.malformed_requests import requests

ONE = asks(EXAMPLES[:1])


# ---- who ----


def test_other_machines_need_a_token_of_one_line_which_may_stand_in_the_environment(capsys, monkeypatch):
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        monkeypatch.delenv("REWARDLAB_TOKEN", raising=False)
        assert main(["serve", "nowhere", "--host", host]) == 2, host
        message = f"--host {host} lets other machines ask this model; set a password with --token"
        assert message in capsys.readouterr().err
    monkeypatch.setenv("REWARDLAB_TOKEN", "sesame")
    assert ServeConfig(model="rm").token == "sesame" and ServeConfig(model="rm", token="mine").token == "mine"
    assert main(["serve", "nowhere", "--token", "open\nsesame"]) == 2
    assert "the token has a line break" in capsys.readouterr().err
    with pytest.raises(UsageError, match="the token has a line break"):
        ScoringClient("http://127.0.0.1:1", "open\nsesame")


def test_with_a_token_nothing_but_health_is_answered_without_it_and_it_is_compared_in_constant_time(
    serve, http, model, monkeypatch
):
    url = serve(model, host="0.0.0.0", token="sésame").replace("0.0.0.0", "127.0.0.1")
    for given_token in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic sésame".encode()}):
        for path in ("score", "classify", "get_reward", "metrics", "nowhere", "openapi.json"):
            method = "GET" if path == "metrics" else "POST"
            answer = http.request(method, f"{url}/{path}", json=ONE, headers=given_token)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    right = {"authorization": "Bearer sésame".encode()}
    assert http.post(f"{url}/score", json=ONE, headers=right).status_code == 200
    assert http.get(f"{url}/health").status_code == 200
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda *two: compared.append(two) or two[0] == two[1])
    url = serve(model, token="sesame")
    http.post(f"{url}/score", json=ONE, headers={"authorization": "Bearer sesam"})
    assert compared == [(b"sesam", b"sesame")]


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch, capsys):
    find, absent = importlib.util.find_spec, "prometheus_client"
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == absent else find(name, *rest))
    assert main(["serve", "nowhere"]) == 2
    said = capsys.readouterr().err
    assert "pip install 'rewardlab[serve]' for the server (prometheus_client is not installed)" in said


def test_client_and_server_take_the_same_token(serve, model):
    example = [Example(user_turn("hi"), "bees")]
    for token in ("sesame\n", " sesame", "sésame", "voilà", "open sesame"):
        url = serve(model, token=token)
        for sent in (token, token.strip()):
            assert ScoringClient(url, sent, patience=1).rate(example) == pytest.approx(model.rate(example), abs=1e-6)
        with pytest.raises(UsageError, match="requires a token"):
            ScoringClient(url, "wrong", patience=1).rate(example)


def test_another_sites_pages_may_not_ask(url, http):
    for header in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "http://["}):
        assert http.post(f"{url}/score", json=ONE, headers=header).status_code == 403, header


# ---- how much ----


def test_what_cannot_be_scored_is_told_why_and_the_next_is_scored(url, http):
    for body, status, sentence in (
        (b"x", 400, "the body is not JSON"),
        (b"", 400, "the body is not JSON"),
        (b"\xff\xfe{}", 400, "the body is not JSON"),
        (b"[" * 100_000, 400, "recursion limit"),
        (b'{"conversations":' + b"[" * 100_000, 400, "recursion limit"),
        (b'{"conversations": [[{"role": "assistant", "content": "\\ud800"}]]}', 400, "the body is not JSON"),
        (b"[]", 422, "should be an object"),
        (b"{}", 422, "give either conversations or tokens"),
        (b'{"conversations": [], "tokens": []}', 422, "give either conversations or tokens"),
        (b'{"conversations": [[]]}', 422, "conversation 0 does not end with a response of the assistant"),
        (
            b'{"conversations": [[{"role": "user", "content": "a"}]]}',
            422,
            "does not end with a response of the assistant",
        ),
        (b'{"conversations": [[{"role": "assistant", "content": 3}]]}', 422, "is not {role, content} with text"),
        (b'{"conversations": [[{"role": "root", "content": "a"}]]}', 422, "conversations.0.0.role: "),
        (b'{"conversations": "a"}', 422, "conversations: Input should be a valid array"),
        (b'{"conversations": [], "trucate": true}', 422, "trucate: Extra inputs are not permitted; the fields are"),
        (b'{"tokens": [[]]}', 422, "conversation 0 has no tokens"),
        (b'{"tokens": [[1, true]]}', 422, "tokens.0.1: "),
        (b'{"tokens": [[1, 1e999]]}', 422, "tokens.0.1: "),
        (b'{"tokens": [[1, -1]]}', 422, "sequence 0 has an invalid token id; ids are 0 to 299"),
        (b'{"tokens": [[1, 300]]}', 422, "sequence 0 has an invalid token id"),
        (b'{"tokens": [[' + b"9" * 5000 + b"]]}", 400, "number out of range"),
        (b'{"tokens": [' + b"[1]," * 600 + b"[1]]}", 422, "601 conversations in one request; the limit is 512"),
    ):
        answer = http.post(f"{url}/score", content=body)
        assert answer.status_code == status and sentence in answer.json()["error"]["message"], body
        assert answer.json()["error"]["code"] == status and answer.headers["x-scoring-contract"], body
        assert http.post(f"{url}/score", json=ONE).status_code == 200, body


def test_too_many_megabytes_or_tokens_are_refused_and_large_bodies_are_held_only_in_a_number(url, http, serve, model):
    body = json.dumps(asks([Example(user_turn("a"), "x" * 10_000_000)])).encode()
    for content in (body, iter([body[:1000], body[1000:]])):
        answer = http.post(f"{url}/score", content=content)
        assert answer.status_code == 413 and answer.json()["error"]["limit"] == 4_194_304
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
        raw.sendall(f"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**15}\r\n\r\n".encode())
        assert raw.recv(12) == b"HTTP/1.1 413"
    assert http.post(f"{url}/score", json=ONE).status_code == 200
    answer = http.post(f"{serve(model, request_tokens=50)}/score", json=asks(EXAMPLES[:6]))
    assert answer.status_code == 422 and "the limit is 50" in answer.json()["error"]["message"]
    long = asks([Example(user_turn("a"), "fox " * 40_000)])
    for truncate in (False, True):
        answer = http.post(f"{url}/score", json=long | {"truncate": truncate})
        assert answer.status_code == 422, "too long even to be cut"
    assert "the limit is 32768" in answer.json()["error"]["message"]
    assert http.post(f"{url}/score", json=ONE).status_code == 200
    site = Site(model, config(body_bytes=1000))
    site.access.held = 15_500
    sizes = {size: site.access._reserved(Headers({"content-length": str(size)})) for size in (400, 100)}
    assert sizes == {400: 400, 100: 100} and site.access.held == 16_000, "sixteen of the largest"
    with pytest.raises(Refused, match="too many large requests wait") as refused:
        site.access._reserved(Headers({"content-length": "1"}))
    assert refused.value.status == 429
    site.close()


# ---- how long ----


def test_a_full_queue_is_429_with_the_time_to_wait(serve, http, gated):
    url = serve(gated, queue_tokens=4, request_tokens=4)
    asked = asks([Example(user_turn("a"), "x" * 5)])  # a quarter of the 12 characters of "user: a" and this, and one

    async def together() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
            first = asyncio.ensure_future(client.post(f"{url}/score", json=asked))
            await asyncio.to_thread(gated.busy.wait, PATIENCE)
            second = asyncio.ensure_future(client.post(f"{url}/score", json=asked))
            while "rewardlab_queue_tokens 4.0" not in (await client.get(f"{url}/metrics")).text:
                await asyncio.sleep(0.01)
            third = await client.post(f"{url}/score", json=asked)
            gated.gate.set()
            return [await first, await second, third, await client.post(f"{url}/score", json=asked)]

    answers = asyncio.run(together())
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]
    assert answers[2].headers["retry-after"] == "1" and answers[2].json()["error"]["retry_after"] == 1.0


def test_who_waits_too_long_has_left_the_queue_before_he_is_told(gated):
    site = Site(gated, config(timeout=0.2))
    body = json.dumps(asks([Example(user_turn("a"), "two")])).encode()

    async def asked():
        arriving = asyncio.Queue()
        arriving.put_nowait({"type": "http.request", "body": body})
        request = Request({"type": "http", "method": "POST", "headers": []}, arriving.get)
        with pytest.raises(Refused, match="not scored within 0.2 s") as refused:
            await site._scored(request, ScoreRequest, site.reader.score)
        assert refused.value.status == 504
        return [one.job.future.cancelled() for one in site.queue._waiting]

    site.queue.enter([Item(EXAMPLES[0], 1)])
    assert gated.busy.wait(PATIENCE) and asyncio.run(asked()) == [True]
    site.close()


@contextmanager
def sent(url: str, body: object) -> Iterator[None]:
    """A request whose sender waits for no answer: he leaves at the end of the block."""
    data = json.dumps(body).encode()
    head = f"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
        raw.sendall(f"{head}\r\n\r\n".encode() + data)
        yield


def test_who_leaves_is_not_scored(serve, http, gated):
    url = serve(gated)

    def told(line):
        return lambda: line in http.get(f"{url}/metrics").text

    for number, text, arrived in ((1, "busy", gated.busy.is_set), (2, "gone", told("rewardlab_queue_items 1.0"))):
        with sent(url, asks([Example(user_turn("a"), text)])):
            wait_until(arrived)
        wait_until(told(f'status="408"}} {number}.0'))
    gated.gate.set()
    assert http.post(f"{url}/score", json=asks([Example(user_turn("a"), "here")])).status_code == 200
    assert gated.batches == [["busy"], ["here"]]


def test_a_body_that_does_not_arrive_is_given_up(serve, model):
    url = serve(model, timeout=0.3)
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
        raw.sendall(b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        raw.settimeout(PATIENCE)
        assert raw.recv(12) == b"HTTP/1.1 408"


# ---- what stays secret ----


def test_no_text_of_a_request_is_logged_or_told_to_another(serve, http, gated, capfd, caplog):
    gated.gate.set()
    gated.refuses = "SECRET"
    url = serve(gated)
    with caplog.at_level("DEBUG"):
        failed = http.post(f"{url}/score", json=asks([Example(user_turn("SECRET-prompt"), "SECRET-answer")]))
        http.post(f"{url}/score", content=b'{"SECRET')
        http.post(f"{url}/score", json={"conversations": [[{"role": "SECRET", "content": "SECRET"}]]})
        other = http.post(f"{url}/score", json=asks([Example(user_turn("a"), "fine")]))
        page = http.get(f"{url}/metrics")
    assert failed.status_code == 500 and other.status_code == 200
    written = capfd.readouterr()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    for text in (failed.text, other.text, page.text, written.out, written.err, *ours):
        assert "SECRET" not in text


def test_what_breaks_in_a_route_is_told_by_its_place_alone(serve, http, model, monkeypatch, capfd):
    url = serve(model)
    monkeypatch.setattr("rewardlab.apps.serving.routes.uuid.uuid4", lambda: 1 / 0)
    answer = http.post(f"{url}/classify", json={"input": "a"})
    assert answer.status_code == 500 and answer.json()["error"]["message"] == "this server failed; its log says where"
    lines: list[str] = []
    # it may come after the answer
    wait_until(lambda: lines.append(capfd.readouterr().err) or "classify: " in "".join(lines))
    said = "".join(lines)
    assert "classify: ZeroDivisionError at " in said and "division by zero" not in said and "Traceback" not in said
    assert http.post(f"{url}/score", json=ONE).status_code == 200


# ---- nonsense ----


def test_200_requests_of_nonsense_get_no_5xx(model):
    site = Site(model, config(port=8000))

    @seed(0)
    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(requests())
    def ask(sent) -> None:
        headers = {"content-type": sent.content_type}
        asked = client.request(sent.method, sent.path, content=sent.body, headers=headers)
        answer = loop.run_until_complete(asked)
        statuses.add(answer.status_code)
        assert answer.status_code < 500, (sent, answer.text)
        assert answer.headers["x-scoring-contract"] == site.contract

    statuses: set[int] = set()
    loop = asyncio.new_event_loop()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(site.access), base_url="http://127.0.0.1:8000")
    ask()
    answer = loop.run_until_complete(client.post("/score", json=ONE))
    loop.run_until_complete(client.aclose())
    loop.close()
    site.close()
    assert statuses >= {400, 404, 422} and answer.status_code == 200
