"""A browser, pages over runs that are only read, and visits that must end without an error or a script of the data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from rewardlab.apps.inspector.components import Site
from rewardlab.apps.inspector.models import Models
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build

from tests.apps.inspector import gallery
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


@pytest.fixture(scope="session")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [*FLAGS.split(), "--no-first-run", ELSEWHERE]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[..., str]]:
    """The address of an inspector over a folder."""
    pages = []

    def start(folder: Path, **options: Any) -> str:
        pages.append(build(InspectConfig(run=str(folder), **options)))
        return launch(pages[-1])

    yield start
    for page in pages:
        page.close(verbose=False)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A base, guides, and a reward model: see `gallery.write_models`."""
    return gallery.write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory, models) -> Path:
    """Runs of every kind, which no test changes: see `gallery.write_runs`."""
    return gallery.write_runs(tmp_path_factory.mktemp("gallery") / "runs", models)


@pytest.fixture(scope="session")
def address(served, runs, models) -> str:
    """The page over these runs, with models that explain and guide."""
    guides = [f"{name}={models / name}" for name in gallery.OBJECTIVES]
    return served(runs, base=str(models / "base"), arm=guides, model=[str(models / "arm"), str(models / "words")])


@pytest.fixture(scope="session")
def desk(tmp_path_factory) -> Path:
    """A folder into which each test writes runs of its own name."""
    return tmp_path_factory.mktemp("desk")


@pytest.fixture(scope="session")
def desk_address(served, desk) -> str:
    """The page over the desk, without models."""
    return served(desk)


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


@pytest.fixture(scope="session")
def site(runs) -> Site:
    """The context of the tabs over these runs, without a page that is served."""
    config = InspectConfig(run=str(runs))
    with gr.Blocks() as page:
        return Site(page, open_root(runs), config, Models(config))
