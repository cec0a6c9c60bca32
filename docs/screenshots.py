"""The inspector's pictures, taken again from a folder of runs: `make screenshots`."""

import argparse
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build

WIDTHS = {1280: 960, 1920: 1080, 390: 1000}
"""Width and height of the windows, in CSS pixels."""
NARROW = 700
"""Width below which the page has another layout, which is opened anew."""
SCHEMES = ("light", "dark")
PATIENCE = 240_000
"""Milliseconds until a busy machine has drawn a plot."""
SETTLING = 2_500
"""Milliseconds for the transitions of Gradio and Plotly."""
FREQUENT, RARE = 160, 96
"""Colours of a palette."""


class Scene(NamedTuple):
    """A picture: the address, what is waited for, what is done there, and what is then at the top of the window."""

    query: str
    ready: str
    act: Callable[[Page], Any] = lambda page: None
    top: str = ""


def open_case(page: Page) -> None:
    """Open the first case where a narrow page begins with the list."""
    if not page.locator("#case .answer").first.is_visible():
        page.locator("#cases .row").first.click()


def annotate(page: Page) -> None:
    """Fill in a reader's name and note, disagree, and return to the case."""
    open_case(page)
    page.locator("#annotation-reader").fill("Ada")
    page.locator("#annotation-note").fill("both miss the question")
    page.locator("#annotation-choices").get_by_role("button", name="No").click()
    page.locator("#case-place", has_text="2 of").wait_for()
    page.get_by_role("button", name="previous case").click()
    page.locator("#annotation-said", has_text="Ada").first.wait_for()
    page.get_by_role("button", name="Word diff").click()
    page.locator("#case ins").first.wait_for()


def decode(page: Page) -> None:
    """Two preferences in one batch."""
    page.locator("#prompt textarea").fill("please tell me about bees")
    weight = page.get_by_label("number input for Guidance weight")
    weight.fill("2")
    weight.press("Tab")
    for shares in ({"helpful": "1", "harmless": "0"}, {"helpful": "0", "harmless": "1"}):
        for name, share in shares.items():
            field = page.get_by_label(f"number input for {name}")
            field.fill(share)
            field.press("Tab")
        told = f"helpful {shares['helpful']}.00"
        page.locator("#mixture", has_text=told).wait_for()
        page.get_by_role("button", name="Add setting").click()
        page.locator("#kept", has_text=told).wait_for()
    page.get_by_role("button", name="Decode", exact=True).click()
    page.locator("#status", has_text="2 completions,").wait_for()


PLOT = ".js-plotly-plot:visible"
SCENES = {
    "overview": Scene("", "#runs .curves"),
    "judgments": Scene("?tab=judgments&run=eval&outcome=wrong", "#case .answer, #cases .row[data-full]"),
    "item": Scene("?tab=judgments&run=eval&outcome=wrong", "#cases .row[data-full]", annotate),
    "rubric": Scene("?tab=judgments&run=judge&outcome=wrong", "#cases .row[data-full]", open_case, "#grounds"),
    "compare": Scene("?tab=compare&run=eval&scorer=rm&with=eval&other=linear", "#statistics"),
    "benchmarks": Scene("?tab=benchmarks&run=eval&scorer=rm", "#lengths .point"),
    "training": Scene("?tab=training&run=grpo-without-kl", "#rl-entropy .scatterlayer .trace"),
    "completions": Scene("?tab=training&run=grpo&step=20", "#waterfall .point", top="#rollouts"),
    "playground": Scene("?tab=playground", "#prompt textarea", decode),
    "studies": Scene("?tab=studies&run=studies/overoptimisation", "#study img, #study-figures img"),
}


@contextmanager
def opened(browser: Any, address: str, scene: Scene, width: int) -> Iterator[Page]:
    """Yield the page of a scene, after what is done there."""
    page = browser.new_page(viewport={"width": width, "height": WIDTHS[width]})
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}{scene.query}{'&' if scene.query else '?'}__theme=light")
    page.locator(scene.ready).first.wait_for()
    scene.act(page)
    page.evaluate("document.querySelector('.heading .faint').textContent = '~/runs/garden'")  # no path of this machine
    yield page
    page.close()


def shoot(page: Page, scene: Scene, width: int, scheme: str, *, full_page: bool) -> bytes:
    """Take a picture in another width or scheme; a page that is wider than its window is an error."""
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.evaluate("dark => document.body.classList.toggle('dark', dark)", scheme == "dark")
    if scene.top:
        page.locator(scene.top).first.evaluate("it => it.scrollIntoView({block: 'start'})")
    page.mouse.move(0, 0)
    page.wait_for_timeout(SETTLING)
    if (found := page.evaluate("document.documentElement.scrollWidth")) > width:
        raise SystemExit(f"{scene.query}: the page is {found} pixels wide and the window {width}")
    return page.screenshot(full_page=full_page)


def save(picture: bytes, path: Path) -> None:
    """Write a PNG file with a palette: the most frequent colours, and some of the rest. It is a third of the size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    pixels = np.asarray(image).reshape(-1, 3) @ [1 << 16, 1 << 8, 1]
    colours, counts = np.unique(pixels, return_counts=True)
    rare = image.quantize(RARE, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*_channels(colours[np.argsort(-counts)[:FREQUENT]]), *rare[: 3 * RARE]])
    indexed = image.quantize(palette=palette, dither=Image.Dither.NONE)
    indexed.putpalette(_channels(_most_frequent(np.asarray(indexed).ravel(), pixels)))
    indexed.save(path, optimize=True)


def _most_frequent(indices: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Return for each index of the palette the most frequent colour that it is for: Pillow rounds to multiples of 4."""
    pairs, counts = np.unique(np.stack([indices, pixels]), axis=1, return_counts=True)
    exact = np.zeros(256, int)
    for at in np.argsort(counts):
        exact[pairs[0, at]] = pairs[1, at]
    return exact


def _channels(colours: np.ndarray) -> list[int]:
    return [int(colour) >> shift & 255 for colour in colours for shift in (16, 8, 0)]


def main() -> None:
    """Take the pictures that are named, or all: `OUTPUT/SCENE/WIDTH-SCHEME.png`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs")
    parser.add_argument("--model", nargs="*", default=[])
    parser.add_argument("--arm", nargs="*", default=[])
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "images")
    parser.add_argument("--scenes", nargs="*", default=[*SCENES], choices=[*SCENES])
    parser.add_argument("--widths", nargs="*", type=int, default=[*WIDTHS], choices=[*WIDTHS])
    parser.add_argument("--schemes", nargs="*", default=SCHEMES, choices=SCHEMES)
    parser.add_argument("--full_page", action="store_true", help="all of the page instead of the window")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    site = build(InspectConfig(run=asked.runs, model=asked.model, arm=asked.arm))
    address = launch(site)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, narrow in product(asked.scenes, (False, True)):
            widths = [width for width in asked.widths if (width < NARROW) == narrow]
            if not widths:
                continue
            shutil.rmtree(Path(asked.runs) / "annotations", ignore_errors=True)  # of the picture before
            with opened(browser, address, SCENES[name], widths[0]) as page:
                for width, scheme in product(widths, asked.schemes):
                    path = asked.output / name / f"{width}-{scheme}.png"
                    save(shoot(page, SCENES[name], width, scheme, full_page=asked.full_page), path)
                    print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)
        browser.close()
    site.close(verbose=False)


if __name__ == "__main__":
    main()
