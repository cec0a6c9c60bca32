"""The inspector's pictures, taken again from a folder of runs: `make screenshots`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page, sync_playwright
from rewardlab.apps.commands.inspect.settings import InspectConfig
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.site import build

WIDTHS = {1280: 1000, 390: 1400}
"""Width and height of the windows, in CSS pixels."""
PATIENCE = 120_000
"""Milliseconds until a busy machine has drawn a plot."""
SETTLING = 4_000
"""Milliseconds for the transitions of Gradio and Plotly."""


class Scene(NamedTuple):
    """A picture: the address, what is waited for, what is done there, and what is then in view."""

    query: str
    ready: str
    act: Callable[[Page], Any] = lambda page: None
    view: str = ""


def explain(page: Page) -> None:
    """Ask the first model why."""
    page.get_by_role("button", name="Explain").click()
    page.locator("#why .heat").first.wait_for()


def annotate(page: Page) -> None:
    """Fill in a reader's name and note, and disagree."""
    page.locator("#who input, #who textarea").first.fill("Ada")
    page.locator("#note input, #note textarea").first.fill("both miss the question")
    page.locator("#annotate").get_by_label("disagree", exact=True).check()
    page.get_by_role("button", name="annotate").click()
    page.locator("#said", has_text="Ada").wait_for()
    page.get_by_label("word diff").check()


def decode(page: Page) -> None:
    """Two preferences in one batch."""
    page.locator("#prompt textarea").fill("please tell me about bees")
    for shares in ({"helpful": "1", "harmless": "0"}, {"helpful": "0", "harmless": "1"}):
        for name, share in shares.items():
            field = page.get_by_label(f"number input for {name}")
            field.fill(share)
            field.press("Tab")
        told = f"helpful {shares['helpful']}.00"
        page.locator("#mixture", has_text=told).wait_for()
        page.get_by_role("button", name="add a setting").click()
        page.locator("#kept", has_text=told).wait_for()
    page.get_by_role("button", name="Decode", exact=True).click()
    page.locator("#status", has_text="2 answers,").wait_for()


PLOT = ".js-plotly-plot:visible"
SCENES = {
    "judgments": Scene("?tab=judgments&outcome=wrong", "#item .prompt"),
    "item": Scene("?tab=judgments&outcome=wrong", "#item .prompt", annotate, "#item-before"),
    "why": Scene("?tab=judgments&outcome=wrong", "#item .prompt", explain, "#why"),
    "compare": Scene("?tab=compare", PLOT),
    "benchmarks": Scene("?tab=benchmarks", PLOT),
    "training": Scene("?tab=training", PLOT),
    "playground": Scene("?tab=playground", "#prompt textarea", decode, "#kept"),
    "studies": Scene("?tab=studies", "#study img, #study-figures img"),
}


def shoot(browser: Any, address: str, scene: Scene, width: int, path: Path, scheme: str) -> None:
    """One scene at one width; a page that is wider than its window is an error."""
    page = browser.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    page.goto(address + scene.query + ("&__theme=dark" if scheme == "dark" else ""))
    page.locator(scene.ready).first.wait_for()
    scene.act(page)
    if scene.view:
        page.locator(scene.view).first.evaluate("it => it.scrollIntoView({block: 'start'})")
    page.mouse.move(0, 0)
    page.wait_for_timeout(SETTLING)
    if (found := page.evaluate("document.documentElement.scrollWidth")) > width:
        raise SystemExit(f"{path.name}: the page is {found} pixels wide and the window {width}")
    page.screenshot(path=path)
    page.close()


def main() -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs")
    parser.add_argument("--model", nargs="*", default=[])
    parser.add_argument("--arm", nargs="*", default=[])
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--scenes", nargs="*", default=[*SCENES], choices=[*SCENES])
    parser.add_argument("--scheme", choices=["light", "dark"], default="light")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    page = build(InspectConfig(run=asked.runs, model=asked.model, arm=asked.arm))
    address = launch(page)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in asked.scenes:
            for width in WIDTHS:
                print(name, width, flush=True)
                shoot(browser, address, SCENES[name], width, asked.output / f"{name}-{width}.png", asked.scheme)
        browser.close()
    page.close(verbose=False)


if __name__ == "__main__":
    main()
