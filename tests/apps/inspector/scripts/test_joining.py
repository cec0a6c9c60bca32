"""Events that are asked for while the stream of the events before ends."""

import gradio as gr
import pytest
from rewardlab.apps.inspector.scripts import joining

from tests.conftest import PATIENCE

LATE = """{
    const ask = window.fetch;
    const transform = async (chunk, out) => {
        const end = new TextDecoder().decode(chunk).includes("close_stream");
        if (end) window.ending?.();
        if (end) await new Promise(go => setTimeout(go, 300));
        out.enqueue(chunk);
    };
    window.fetch = async (...call) => {
        const response = await ask(...call);
        if (!String(call[0].url ?? call[0]).includes("/queue/data")) return response;
        return new Response(response.body.pipeThrough(new TransformStream({transform})), response);
    };
}"""
"""The end of a stream arrives late, and `ending` is called meanwhile."""
ASK = "() => {window.ending = () => {window.ending = null; document.querySelector('#b').click()}}"


@pytest.fixture(scope="module")
def address():
    with gr.Blocks(analytics_enabled=False) as page:
        for name in "ab":
            said = gr.HTML(elem_id=f"said-{name}")
            gr.Button(name, elem_id=name).click(lambda name=name: f"{name} is done", None, said, show_progress="hidden")
    options = {"prevent_thread_lock": True, "quiet": True, "ssr_mode": False, "run_history": False}
    yield page.launch(head=joining.HEAD, **options)[1]
    page.close(verbose=False)


def test_an_event_that_is_accepted_before_the_end_of_the_stream_is_read_is_answered(browser, address):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(LATE)
    page.goto(address)
    page.locator("#b").wait_for()
    page.evaluate(ASK)
    page.locator("#a").click()
    page.locator("#said-a", has_text="a is done").wait_for()
    page.locator("#said-b", has_text="b is done").wait_for()
    page.close()
