import os
import tempfile
from pathlib import Path

from rewardlab.apps.inspector import guard
from rewardlab.apps.inspector.guard import private_cache, refusal
from starlette.datastructures import Headers

LOCAL = ("127.0.0.1", "localhost", "::1")


def asked(path: str = "/", hosts=LOCAL, **headers: str) -> str:
    return refusal(path, Headers({"host": "127.0.0.1:7860", **headers}), hosts)


def test_a_request_by_another_name_or_from_another_site_is_refused():
    for host in ("127.0.0.1:7860", "localhost", "LocalHost:1", "[::1]:7860"):
        assert asked(host=host) == ""
    for host in ("evil.example", "127.0.0.1.evil.example", "", "evil@[::1", "localhost.evil:7860", "[::2]"):
        assert asked(host=host) == f"this server is not called '{host}'"
    assert asked(origin="http://127.0.0.1:7860") == ""
    for origin in ("http://evil.example", "null", "http://localhost:3000", "http://127.0.0.1", "http://[", ""):
        assert asked(origin=origin) == f"'{origin}' may not ask this server"
    assert asked(host="lab.example:7860", hosts=None) == "", "with a password it may have any name"
    assert asked(host="lab.example:7860", origin="http://evil.example", hosts=None) != ""


CLOSED = """
    /docs /openapi.json /monitoring /monitoring/summary /gradio_api/openapi.json /gradio_api/runs /gradio_api/upload
    /gradio_api/upload_progress /gradio_api/proxy=http://evil.example/ /gradio_api/call/x /gradio_api/run/predict
    /gradio_api/api/x /gradio_api/stream/1 /gradio_api/deep_link /gradio_api/file/etc/passwd /gradio_api/mcp/sse
    /gradio_api/custom_component/x/client/component/.. /dev/reload /configuration //etc/passwd
"""


def test_routes_that_no_page_of_ours_needs_are_closed():
    assert {path: asked(path) for path in CLOSED.split()} == dict.fromkeys(CLOSED.split(), "there is nothing here")


def test_functions_of_a_script_are_called_with_json_and_take_no_file():
    path = "/gradio_api/component_server"
    assert asked(path, **{"content-type": "application/json"}) == ""
    for kind in ("multipart/form-data; boundary=x", "text/plain", ""):
        assert asked(path, **{"content-type": kind}) == "files are not accepted here"


def test_files_come_from_the_cache_alone_which_is_for_this_user(monkeypatch, tmp_path):
    monkeypatch.setenv(guard.CACHE, str(tmp_path / "cache"))
    inside, outside = tmp_path / "cache" / "x.csv", tmp_path / "secret"
    inside.parent.mkdir()
    inside.write_text("x")
    outside.write_text("secret")
    os.symlink(outside, tmp_path / "cache" / "link")
    assert asked(f"/gradio_api/file={inside}") == ""
    refused = ["/etc/passwd", "../../etc/passwd", f"{inside.parent}/../secret", f"{inside.parent}/link", f"{inside}\0"]
    for path in [*refused, str(outside), "http://evil.example/x", "https:/evil.example", "", "file:///etc/passwd"]:
        assert asked(f"/gradio_api/file={path}") == "there is no such file here", path
    monkeypatch.delenv(guard.CACHE)
    assert asked(f"/gradio_api/file={inside}") == "there is no such file here"
    monkeypatch.delenv(guard.CACHE, raising=False)
    private_cache()
    folder = Path(os.environ[guard.CACHE])
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.is_relative_to(tempfile.gettempdir())
    private_cache()
    assert os.environ[guard.CACHE] == str(folder)
