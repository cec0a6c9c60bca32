"""A browser, and visits that must end without an error, a script of the data, or a request to elsewhere."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rewardlab.apps.commands.inspect.settings import InspectConfig
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.site import build

from tests.conftest import PATIENCE

FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
ELSEWHERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"


LEFT = (
    "AbortError: BodyStreamBuffer was aborted",
    "AbortError: signal is aborted without reason",
    "Connection errored out.",
    "Unexpected error Connection errored out.",
)
"""What Gradio reports when a visitor follows a link while the page is being filled."""


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [*FLAGS.split(), "--no-first-run", ELSEWHERE]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Callable[..., str]]:
    """The address of an inspector over a folder."""
    pages = []

    def start(folder: Path, **options: Any) -> str:
        pages.append(build(InspectConfig(run=str(folder), **options)))
        return launch(pages[-1])

    yield start
    for page in pages:
        page.close(verbose=False)


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Any]]:
    """A fresh page at an address; afterwards it must have seen no error, dialog, script of the data, or other host."""
    pages, strange = [], []

    def note(error: str) -> None:
        if not error.startswith(LEFT):
            strange.append(error)

    def start(address: str, query: str = "", *, width: int = 1280, height: int = 900, ready: str = "#tabs") -> Any:
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", lambda message: note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("dialog", lambda dialog: (strange.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        inside = (address, "data:", "blob:")
        page.on("request", lambda request: None if request.url.startswith(inside) else strange.append(request.url))
        page.goto(address + query)
        page.wait_for_selector(ready)
        pages.append(page)
        return page

    yield start
    for page in pages:
        assert page.evaluate("window.hacked") is None
        page.close()
    assert strange == []
