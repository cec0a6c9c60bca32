"""rm/parity/model_server.py: requests to servers of other programs."""

from functools import partial

import httpx
import pytest
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.parity.model_server import ModelServer, ServedSteps, Vllm


@pytest.fixture
def headers(monkeypatch) -> list[httpx.Headers]:
    """Headers of the requests that reach a server which names its model."""
    received = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(request.headers)
        return httpx.Response(200, json={"data": [{"id": "rm"}]})

    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(answer)))
    return received


def test_the_key_of_a_file_that_ends_in_a_line_break_is_sent_without_it(headers, monkeypatch):
    for server, variable in ((Vllm, "VLLM_API_KEY"), (ServedSteps, "REWARDLAB_TOKEN")):
        monkeypatch.setenv(variable, "sesame\n")
        server("http://127.0.0.1:9").request("GET", "/health")
        assert headers[-1]["authorization"] == "Bearer sesame", server


def test_a_token_is_cleaned_as_a_key_is_and_one_of_two_lines_is_refused(headers):
    assert ModelServer("http://127.0.0.1:9", "sésame\n").name == "rm"
    assert headers[0].raw[-1][1] == "Bearer sésame".encode()
    with pytest.raises(UsageError, match="the token has a line break") as error:
        ModelServer("http://127.0.0.1:9", "open\nsesame")
    assert "sesame" not in str(error.value)


def test_a_server_that_was_started_for_something_else_is_told_its_options(monkeypatch):
    client, started = httpx.Client, "--runner pooling --some option"
    for status, body, remedy in (
        (404, {"detail": "Not Found"}, True),
        (400, {"error": {"message": "Unsupported task: 'token_classify'", "param": "task"}}, True),
        (400, {"error": {"message": "too many tokens", "param": "input"}}, False),
        (401, {"error": "Unauthorized"}, False),
    ):
        replies = {"GET": httpx.Response(200, json={"data": [{"id": "rm"}]}), "POST": httpx.Response(status, json=body)}
        transport = httpx.MockTransport(lambda request, replies=replies: replies[request.method])
        monkeypatch.setattr(httpx, "Client", partial(client, transport=transport))
        with pytest.raises(DataError, match=f"/pooling: {status} ") as error:
            Vllm("http://127.0.0.1:9", start=started).token_classify([[1, 2]])
        assert str(error.value).endswith(f"; start vLLM with {started}") == remedy, body
