"""A server that is told to stop answers what is queued and ends; a killed one comes back with the same scores."""

import asyncio
import concurrent.futures
import json
import os
import signal
import threading
import time

import httpx
import numpy as np
import pytest
from rewardlab.apps.serving.client import ScoringClient
from rewardlab.apps.serving.process import DrainingServer, prepare_server
from rewardlab.rm.types import Example, user_turn

from tests.apps.serving.conftest import EXAMPLES, asks, config
from tests.conftest import PATIENCE
from tests.soak.__main__ import drained, served, write_model


@pytest.fixture
def server(gated):
    """A server over the gated model and its address; `drain` is half a second."""
    site, url = prepare_server(gated, config(drain=0.5))
    server = DrainingServer(site)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server, url, thread
    gated.gate.set()
    server.handle_exit(signal.SIGTERM, None)
    thread.join(PATIENCE)


def asked(url: str, text: str) -> httpx.Response:
    with httpx.Client(timeout=PATIENCE, trust_env=False) as http:
        return http.post(f"{url}/score", json=asks([Example(user_turn("a"), text)]))


def test_what_is_queued_is_answered_and_nothing_new_is_taken(server, gated, http):
    running, url, thread = server
    running.site.config.drain = 30.0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(asked, url, "first")
        assert gated.busy.wait(PATIENCE)
        second = pool.submit(asked, url, "second")
        while not running.site.queue.depth:
            time.sleep(0.01)
        running.handle_exit(signal.SIGTERM, None)
        late, health = asked(url, "late"), http.get(f"{url}/health")
        assert late.status_code == 503 and int(late.headers["retry-after"]) >= 1
        assert late.headers["connection"] == "close" and "stopping" in late.json()["error"]["message"]
        assert health.status_code == 503 and health.json()["status"] == "draining"
        assert thread.is_alive()
        gated.gate.set()
        assert [one.result(PATIENCE).status_code for one in (first, second)] == [200, 200]
    thread.join(PATIENCE)
    assert not thread.is_alive() and gated.batches == [["first"], ["second"]]
    with pytest.raises(httpx.ConnectError):
        asked(url, "later")


@pytest.mark.parametrize("second_signal", [False, True])
def test_it_does_not_wait_for_ever_nor_after_a_second_signal(server, gated, second_signal):
    running, url, thread = server
    running.site.config.drain = 60.0 if second_signal else 0.5
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(asked, url, "never answered")
        assert gated.busy.wait(PATIENCE)
        waiting = pool.submit(asked, url, "waits")
        while not running.site.queue.depth:
            time.sleep(0.01)
        started = time.monotonic()
        running.handle_exit(signal.SIGTERM, None)
        if second_signal:
            thread.join(0.5)
            assert thread.is_alive(), "the first signal waits for what is queued"
            running.handle_exit(signal.SIGTERM, None)
        thread.join(PATIENCE)
        assert not thread.is_alive() and time.monotonic() - started >= 0.5
        gated.gate.set()
        assert second_signal or waiting.result(PATIENCE).status_code == 503


@pytest.mark.slow
def test_a_process_that_was_killed_comes_back_with_the_same_scores_and_sigterm_drains_it(tmp_path, script):
    model = write_model(tmp_path / "rm")
    text = "from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))"
    command = script(text, "serve", model, "--port", 0, "--queue_tokens", 12000, "--request_tokens", 6000)
    with served(command, tmp_path / "first") as server:
        with ScoringClient(server.url) as client:
            before = client.rate(EXAMPLES)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(PATIENCE)
    with served(command, tmp_path / "second") as server:
        with ScoringClient(server.url) as client:
            assert np.array_equal(client.rate(EXAMPLES), before)
        stopped = drained(server, EXAMPLES)
        assert stopped["exit code"] == 0 and "200" in stopped["requests on their way"]
        assert {*stopped["requests on their way"]} <= {"200", "429", "503"}
        last = json.loads(server.process.stdout.read().strip().split("\n")[-1])
    assert last["items"] >= len(EXAMPLES) and last["contract"] and last["requests"] >= 17
