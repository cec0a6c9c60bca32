from functools import partial
from pathlib import Path

import gradio as gr
import pytest
from rewardlab.apps.inspector.components import QUIET
from rewardlab.apps.inspector.server import launch

from tests.conftest import PATIENCE

SCRIPTS = Path(__file__).parent
ASK = "() => {window.ending = () => {window.ending = null; document.querySelector('#b').click()}}"


BOTH = "['a', 'b'].forEach(name => document.getElementById(name).click())"


@pytest.fixture(scope="module")
def done() -> list[str]:
    """Events in the order in which they were handled."""
    return []


@pytest.fixture(scope="module")
def buttons(done):
    """The address of a page with two buttons, whose events the product's scripts join."""

    def handle(name: str) -> str:
        done.append(name)
        return f"{name} is done"

    with gr.Blocks(analytics_enabled=False) as page:
        for name in "ab":
            said = gr.HTML(elem_id=f"said-{name}")
            gr.Button(name, elem_id=name).click(partial(handle, name), None, said, **QUIET)
    yield launch(page)
    page.close(verbose=False)


@pytest.fixture
def opened(browser, buttons, done):
    """The page under a script of this folder that delays something."""
    pages = []

    def start(script: str):
        pages.append(browser.new_page())
        pages[-1].set_default_timeout(PATIENCE * 1000)
        pages[-1].add_init_script(path=SCRIPTS / f"{script}.js")
        pages[-1].goto(buttons)
        pages[-1].locator("#b").wait_for()
        done.clear()
        return pages[-1]

    yield start
    for page in pages:
        page.close()


def expect_both(page) -> None:
    for name in "ab":
        page.locator(f"#said-{name}", has_text=f"{name} is done").wait_for()


def test_an_event_that_is_accepted_before_the_end_of_the_stream_is_read_is_answered(opened, done):
    page = opened("late")
    page.evaluate(ASK)
    page.locator("#a").click()
    expect_both(page)
    assert done == ["a", "b"] and page.evaluate("window.ending") is None  # asked for at the end of the stream


def test_events_are_handled_in_the_order_in_which_they_were_asked_for(opened, done):
    page = opened("slow")
    page.evaluate(BOTH)
    expect_both(page)
    assert done == ["a", "b"]


def test_answers_are_shown_in_the_order_in_which_they_arrive(opened):
    page = opened("together")
    page.evaluate(BOTH)
    page.wait_for_function("window.shown.length === 2")
    assert page.evaluate("window.shown") == ["a", "b"]
