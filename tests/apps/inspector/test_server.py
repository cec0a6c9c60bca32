"""What the inspector listens on, what it tells nobody, and what its server refuses to hand out."""

import http.client
import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from gradio import networking, route_utils
from rewardlab.apps.commands.inspect.settings import InspectConfig
from rewardlab.apps.inspector.server import launch, serve
from rewardlab.apps.inspector.site import build
from rewardlab.rm.errors import UsageError

from tests.apps.inspector.ponds import write_run
from tests.conftest import PATIENCE


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(write_run(tmp_path_factory.mktemp("runs") / "eval"))


@pytest.fixture(scope="module")
def address(run, served) -> str:
    return served(Path(run))


def read(url: str) -> bytes:
    """Straight from this machine, whatever proxy the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=PATIENCE).read()


def ask(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """Status and body of a request for a path exactly as it is written."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE)
    connection.request(method, path, body=b"{}" if method == "POST" else None, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


# ---- who may read ----


def test_nothing_is_reported_to_others(address):
    config = json.loads(read(f"{address}config"))
    assert config["analytics_enabled"] is False and not config.get("run_history")
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert b"Content-Security-Policy" in read(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "example.org", "", "::"])
def test_another_host_needs_a_token(run, host):
    with pytest.raises(UsageError, match=f"--host {host} .*--token"):
        serve(InspectConfig(run=run, host=host, port=0))


def test_with_a_token_nothing_is_read_without_it(run):
    page = build(InspectConfig(run=run))
    address = launch(page, "0.0.0.0", 0, token="sesame")
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(f"{address}config")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
        for wrong in (b"username=rewardlab&password=wrong", b"username=root&password=sesame"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                opener.open(f"{address}login", wrong)
        opener.open(f"{address}login", b"username=rewardlab&password=sesame")
        assert json.loads(opener.open(f"{address}config").read())["title"] == "rewardlab · eval"
    finally:
        page.close(verbose=False)


def test_tokens_are_compared_in_constant_time(run, monkeypatch):
    """Gradio does it; a version that stops is noticed."""
    compared = []
    digest = route_utils.hmac.compare_digest
    monkeypatch.setattr(route_utils.hmac, "compare_digest", lambda *two: compared.append(two) or digest(*two))
    page = build(InspectConfig(run=run))
    address = launch(page, token="sesame")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"{address}login", b"username=rewardlab&password=wrong"
        )
    page.close(verbose=False)
    assert compared == [(b"wrong", b"sesame")]


def test_the_environment_cannot_share_the_page_or_open_folders(run, monkeypatch, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    monkeypatch.setenv("GRADIO_SHARE", "True")
    monkeypatch.setenv("GRADIO_ALLOWED_PATHS", "/")
    monkeypatch.setenv("GRADIO_RUN_HISTORY", "True")
    monkeypatch.setenv("GRADIO_MCP_SERVER", "True")
    monkeypatch.setattr(networking, "setup_tunnel", lambda *_, **__: pytest.fail("a tunnel was opened"))
    page = build(InspectConfig(run=run))
    address = launch(page)
    assert page.share is False and page.share_url is None
    assert ask(address, f"/gradio_api/file={secret}")[0] == 403
    assert ask(address, "/gradio_api/mcp/sse")[0] == 403
    page.close(verbose=False)


def test_a_page_that_is_slow_to_answer_is_served(run, monkeypatch):
    """Gradio would give up after three seconds and advise to share the page."""

    def late(*_, **__):
        raise httpx.ReadTimeout("timed out")

    monkeypatch.setattr(networking.httpx, "head", late)
    page = build(InspectConfig(run=run))
    address = launch(page)
    assert json.loads(read(f"{address}config"))["title"] == "rewardlab · eval"
    page.close(verbose=False)


def test_another_sites_name_for_this_machine_gets_no_answer(address):
    port = urlsplit(address).port
    assert ask(address, "/config", Host="evil.example") == (403, b"this server is not called 'evil.example'")
    assert ask(address, "/config", Host=f"localhost:{port}")[0] == 200
    assert ask(address, "/config", Origin="http://evil.example")[0] == 403
    assert ask(address, "/gradio_api/queue/join", "POST", Origin=f"http://localhost:{port + 1}")[0] == 403
    own = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
    assert ask(address, "/gradio_api/queue/join", "POST", **own)[0] not in (403, 404), "it reads what is asked"


# ---- files ----


@pytest.mark.parametrize(
    "path",
    [
        *("/gradio_api/file=/etc/passwd", "/gradio_api/file=../../../../etc/passwd", "/gradio_api/file/etc/passwd"),
        *("/gradio_api/file=..%2f..%2f..%2f..%2fetc%2fpasswd", "/gradio_api/file=%2e%2e/%2e%2e/etc/passwd"),
        *("/gradio_api/file=file:///etc/passwd", "/gradio_api/file=%2Fetc%2Fpasswd%00.csv", "/file=/etc/passwd"),
        *("/gradio_api/file=http://127.0.0.1:9/", "/gradio_api/proxy=http://127.0.0.1:9/", "/gradio_api/file=."),
        *("/static/../../../../../../etc/passwd", "/static/..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd"),
        *(
            "/assets/../../../../../../etc/passwd",
            "/assets/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/assets//etc/passwd",
        ),
        *("/svelte/..%2f..%2f..%2fetc%2fpasswd", "/..%2f..%2fetc%2fpasswd", "//etc/passwd", "/pwa_icon/..%2f..%2fx"),
        *("/docs", "/openapi.json", "/monitoring", "/gradio_api/upload", "/gradio_api/runs", "/gradio_api/deep_link"),
    ],
)
def test_no_path_leads_to_a_file(address, path):
    status, body = ask(address, path)
    assert status in (400, 403, 404, 405, 422), (status, body[:200])
    assert b"root:" not in body


def test_a_runs_own_files_are_not_served(address, run):
    for name in ("items.parquet", "report.md"):
        for path in (f"{run}/{name}", os.path.relpath(f"{run}/{name}"), name):
            assert ask(address, f"/gradio_api/file={path}") == (403, b"there is no such file here")


def test_nothing_can_be_uploaded_or_called_by_name(address):
    for path in ("/gradio_api/upload", "/gradio_api/call/x", "/gradio_api/run/predict"):
        assert ask(address, path, "POST") == (403, b"there is nothing here")


def test_the_answers_tell_the_browser_to_be_careful(address):
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE)
    connection.request("GET", "/")
    headers = dict(connection.getresponse().getheaders())
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "https:" not in headers["content-security-policy"] and "*" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


# ---- listening ----


def test_a_busy_port_is_told_with_the_way_out(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port} .*--port 0 for a free one"):
            serve(InspectConfig(run=run, port=port))
    with pytest.raises(UsageError, match="cannot listen on 127.0.0.1:99999 .*--port"):
        serve(InspectConfig(run=run, port=99999))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_in_the_environment_does_not_stand_between(run, host, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org")
    page = build(InspectConfig(run=run))
    assert b"rewardlab" in read(launch(page, host))
    assert os.environ["no_proxy"].startswith("example.org,")
    page.close(verbose=False)


def test_a_folder_that_is_not_there_is_told_before_anything_listens(tmp_path):
    with pytest.raises(UsageError, match="no run folder"):
        serve(InspectConfig(run=str(tmp_path / "nowhere"), port=0))


@pytest.mark.slow
def test_the_verb_serves_until_it_is_interrupted(run, script):
    text = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        script(text, "inspect", run, "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
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
