import http.client
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE
from threading import Event
from urllib.parse import urlsplit

import pytest
from gradio import networking, route_utils
from rewardlab.apps.inspector import server
from rewardlab.apps.inspector.server import launch, serve
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build
from rewardlab.apps.serving.access import listen
from rewardlab.rm.errors import UsageError

from tests.conftest import PATIENCE


@pytest.fixture(scope="module")
def run(runs) -> str:
    return str(runs / "ponds")


def direct(*handlers) -> urllib.request.OpenerDirector:
    """Requests straight to this machine, whatever proxy the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)


def read(url: str) -> bytes:
    return direct().open(url, timeout=PATIENCE).read()


def respond(address: str, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    """The response to a request for a path exactly as it is written."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE)
    connection.request(method, path, body=b"{}" if method == "POST" else None, headers=headers)
    return connection.getresponse()


def ask(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    answer = respond(address, path, method, **headers)
    return answer.status, answer.read()


def test_nothing_is_reported_to_others_and_browsers_are_told_to_be_careful(address):
    config = json.loads(read(f"{address}config"))
    assert config["analytics_enabled"] is False and not config.get("run_history")
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert b"Content-Security-Policy" in read(address)
    headers = dict(respond(address, "/").getheaders())
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "https:" not in headers["content-security-policy"] and "*" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


def test_another_host_needs_a_token(run):
    for host in ("0.0.0.0", "192.168.0.7", "example.org", "", "::"):
        with pytest.raises(UsageError, match=f"--host {host} .*--token"):
            serve(InspectConfig(run=run, host=host, port=0))


def test_with_a_token_nothing_is_read_without_it_and_the_environment_opens_nothing(run, monkeypatch, tmp_path):
    """Tokens are compared in constant time: Gradio does it, and a version that stops is noticed."""
    secret, compared, digest = tmp_path / "secret.txt", [], route_utils.hmac.compare_digest
    secret.write_text("secret")
    variables = {"GRADIO_SHARE": "True", "GRADIO_ALLOWED_PATHS": "/", "GRADIO_RUN_HISTORY": "True"}
    variables |= {"GRADIO_MCP_SERVER": "True", "http_proxy": "http://127.0.0.1:9", "no_proxy": "example.org"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(networking, "setup_tunnel", lambda *_, **__: pytest.fail("a tunnel was opened"))
    monkeypatch.setattr(route_utils.hmac, "compare_digest", lambda *two: compared.append(two) or digest(*two))
    page = build(InspectConfig(run=run))
    address = launch(page, "0.0.0.0", 0, token="sesame")
    try:
        assert page.share is False and page.share_url is None
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(f"{address}config")
        opener = direct(urllib.request.HTTPCookieProcessor())
        for wrong in (b"username=rewardlab&password=wrong", b"username=root&password=sesame"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                opener.open(f"{address}login", wrong)
        assert (b"wrong", b"sesame") in compared
        opener.open(f"{address}login", b"username=rewardlab&password=sesame")
        assert json.loads(opener.open(f"{address}config").read())["title"] == "rewardlab · ponds"
        assert ask(address, f"/gradio_api/file={secret}")[0] == 403
        assert ask(address, "/gradio_api/mcp/sse")[0] == 403
    finally:
        page.close(verbose=False)


def test_a_request_that_comes_before_the_server_has_started_waits_for_it(run, monkeypatch):
    """Gradio itself gives its server five seconds to start, which a busy machine may need for more."""
    going, started = Event(), server.Server.run
    monkeypatch.setattr(server.Server, "run", lambda *asked: (going.wait(), started(*asked))[1])
    page = build(InspectConfig(run=run))
    address = launch(page)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(read, f"{address}config")
        with pytest.raises(UsageError, match=r"cannot listen on 127.0.0.1:\d+ .*a free one with --port 0"):
            serve(InspectConfig(run=run, port=urlsplit(address).port))
        assert not early.done()
        going.set()
        assert json.loads(early.result())["title"] == "rewardlab · ponds"
    page.close(verbose=False)


def test_another_sites_name_for_this_machine_gets_no_answer(address):
    port = urlsplit(address).port
    assert ask(address, "/config", Host="evil.example") == (403, b"this server is not called 'evil.example'")
    assert ask(address, "/config", Host=f"localhost:{port}")[0] == 200
    assert ask(address, "/config", Origin="http://evil.example")[0] == 403
    assert ask(address, "/gradio_api/queue/join", "POST", Origin=f"http://localhost:{port + 1}")[0] == 403
    own = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
    assert ask(address, "/gradio_api/queue/join", "POST", **own)[0] not in (403, 404), "it reads what is asked"


PATHS = """
    /gradio_api/file=/etc/passwd /gradio_api/file=..%2f..%2f..%2fetc%2fpasswd /gradio_api/file=file:///etc/passwd
    /gradio_api/file=%2Fetc%2Fpasswd%00.csv /file=/etc/passwd /gradio_api/proxy=http://127.0.0.1:9/ //etc/passwd
    /static/../../../../../../etc/passwd /assets/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd /svelte/..%2f..%2fetc%2fpasswd
    /pwa_icon/..%2f..%2fx /docs /openapi.json /monitoring /gradio_api/upload /gradio_api/runs
"""


def test_no_path_leads_to_a_file(address, runs):
    for path in PATHS.split():
        status, body = ask(address, path)
        assert status in (400, 403, 404, 405, 422) and b"root:" not in body, (path, status, body[:200])
    for name in (runs / "ponds" / "items.parquet", runs / "ponds" / "report.md"):
        for path in (name, os.path.relpath(name), name.name):
            assert ask(address, f"/gradio_api/file={path}") == (403, b"there is no such file here")
    for path in ("/gradio_api/upload", "/gradio_api/call/x", "/gradio_api/run/predict"):
        assert ask(address, path, "POST") == (403, b"there is nothing here")


def test_a_port_that_cannot_be_and_a_folder_that_is_not_there_are_told(tmp_path):
    with pytest.raises(UsageError, match="cannot listen on 127.0.0.1:99999 .*--port"):
        listen("127.0.0.1", 99999)
    with pytest.raises(UsageError, match="no run folder"):
        serve(InspectConfig(run=str(tmp_path / "nowhere"), port=0))


@pytest.mark.slow
def test_the_verb_serves_until_it_is_interrupted(run, script):
    text = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = script(text + "from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))", "inspect", run)
    process = subprocess.Popen([*command, "--port", "0"], stdout=PIPE, stderr=PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://127.0.0.1:" in line)
        url = next(word for word in line.split() if word.startswith("http"))
        assert b"rewardlab" in read(url)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert json.loads(output.splitlines()[-1]) == {"run": run, "url": url}


def test_the_first_page_needs_no_library_of_models_and_little_memory(script, runs):
    """Torch, Transformers, scikit-learn and Matplotlib took 27 s and 694 MB."""
    text = """
import re
from pathlib import Path
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build
from rewardlab.apps.inspector.run_list import open_root
build(InspectConfig(run=sys.argv[1]))
from rewardlab.apps.inspector.tabs.overview import queries, view
root = open_root(sys.argv[1])
assert any(queries.ranks(root, board) for board in queries.overview(root).boards)
assert not {"torch", "transformers", "sklearn", "matplotlib"} & sys.modules.keys()
peak = re.search("VmHWM: *\\t *([0-9]+)", Path("/proc/self/status").read_text())
assert int(peak[1]) < 350_000, peak[0]
"""
    subprocess.run(script(text, runs), check=True)
