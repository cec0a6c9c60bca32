"""Events that are asked for while the stream of the events before ends, or just after another one."""

from functools import partial

import gradio as gr
import pytest
from rewardlab.apps.inspector.components import QUIET
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
SLOW = """{
    const ask = window.fetch;
    let first = true;
    window.fetch = async (...call) => {
        const late = first && String(call[0].url ?? call[0]).includes("/queue/join");
        if (late) first = false;
        if (late) await new Promise(go => setTimeout(go, 300));
        return ask(...call);
    };
}"""
"""The first event is on its way for longer than the next one."""
TOGETHER = """{
    const ask = window.fetch, decoder = new TextDecoder();
    let kept = "";
    const transform = (chunk, out) => {
        kept += decoder.decode(chunk, {stream: true});
        const first = kept.indexOf("process_completed"), second = kept.indexOf("process_completed", first + 1);
        const passed = first < 0 || second >= 0 ? kept.length : kept.lastIndexOf("data:", first);
        out.enqueue(new TextEncoder().encode(kept.slice(0, passed)));
        kept = kept.slice(passed);
    };
    window.fetch = async (...call) => {
        const name = String(call[0].url ?? call[0]), response = await ask(...call);
        if (!name.includes("/queue/data")) return response;
        return new Response(response.body.pipeThrough(new TransformStream({transform})), response);
    };
    window.shown = [];
    new MutationObserver(() => "ab".split("").forEach(name => {
        const there = document.getElementById(`said-${name}`)?.textContent.includes("is done");
        if (there && !window.shown.includes(name)) window.shown.push(name);
    })).observe(document, {childList: true, characterData: true, subtree: true});
}"""
"""The page learns of the second event when both answers arrive."""
ASK = "() => {window.ending = () => {window.ending = null; document.querySelector('#b').click()}}"


@pytest.fixture(scope="module")
def done() -> list[str]:
    """Events in the order in which they were handled."""
    return []


@pytest.fixture(scope="module")
def address(done):
    def handle(name: str) -> str:
        done.append(name)
        return f"{name} is done"

    with gr.Blocks(analytics_enabled=False) as page:
        for name in "ab":
            said = gr.HTML(elem_id=f"said-{name}")
            gr.Button(name, elem_id=name).click(partial(handle, name), None, said, **QUIET)
    options = {"prevent_thread_lock": True, "quiet": True, "ssr_mode": False, "run_history": False}
    yield page.launch(head=joining.HEAD, **options)[1]
    page.close(verbose=False)


def test_an_event_that_is_accepted_before_the_end_of_the_stream_is_read_is_answered(browser, address, done):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(LATE)
    page.goto(address)
    page.locator("#b").wait_for()
    done.clear()
    page.evaluate(ASK)
    page.locator("#a").click()
    page.locator("#said-a", has_text="a is done").wait_for()
    page.locator("#said-b", has_text="b is done").wait_for()
    assert done == ["a", "b"] and page.evaluate("window.ending") is None  # asked for at the end of the stream
    page.close()


def test_events_are_handled_in_the_order_in_which_they_were_asked_for(browser, address, done):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(SLOW)
    page.goto(address)
    page.locator("#b").wait_for()
    done.clear()
    page.evaluate("['a', 'b'].forEach(name => document.getElementById(name).click())")
    page.locator("#said-b", has_text="b is done").wait_for()
    page.locator("#said-a", has_text="a is done").wait_for()
    assert done == ["a", "b"]
    page.close()


def test_answers_are_shown_in_the_order_in_which_they_arrive(browser, address):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(TOGETHER)
    page.goto(address)
    page.locator("#b").wait_for()
    page.evaluate("['a', 'b'].forEach(name => document.getElementById(name).click())")
    page.wait_for_function("window.shown.length === 2")
    assert page.evaluate("window.shown") == ["a", "b"]
    page.close()
