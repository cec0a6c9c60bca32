"""The playground in a browser, and the same answers from `rewardlab decode`."""

import json
import time

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.inspector.tabs.playground import view as playground

from tests.apps.inspector.acts import fill
from tests.apps.inspector.garden_models import NAMES, save_arm, save_base, save_linear
from tests.conftest import PATIENCE

PROMPT = "tell me about bees"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A base, a guide for each objective, one that follows a preference, a reward model, a folder of runs."""
    folder = tmp_path_factory.mktemp("playground")
    base = save_base(folder / "base")
    for seed, name in enumerate(NAMES):
        save_arm(base, folder / name, seed=seed, kind="lora", objectives=(name,))
    save_arm(base, folder / "both")
    save_linear(folder / "words")
    (folder / "runs").mkdir()
    (folder / "bees.txt").write_text(PROMPT + "\n")
    return folder


@pytest.fixture(scope="module")
def guides(world) -> list[str]:
    return [f"{name}={world / name}" for name in NAMES]


@pytest.fixture(scope="module")
def address(served, world, guides) -> str:
    return served(world / "runs", base=str(world / "base"), arm=guides, model=[str(world / "words")])


def decode(world, name: str, *words) -> list[dict]:
    """What the command line answers."""
    asked = ["--data", str(world / "bees.txt"), "--output", str(world / "runs" / name), *words]
    assert main(["decode", *asked]) == 0
    return [json.loads(line) for line in (world / "runs" / name).read_text().splitlines()]


def set_number(page, label: str, value: float | str) -> None:
    field = page.get_by_label(f"number input for {label}").or_(page.get_by_label(label, exact=True)).first
    field.fill(str(value))
    field.press("Tab")


def press(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def press_until(page, button, status: str, **numbers: float) -> None:
    """Fill the numbers and press a button until the status says so: the page may fill a number itself."""
    from playwright.sync_api import TimeoutError as NotYet

    for attempt in range(PATIENCE // 20):
        for label, value in numbers.items():
            set_number(page, label, value)
        button.click()
        try:
            page.locator("#status", has_text=status).wait_for(timeout=20_000)
        except NotYet:
            print(f"press {attempt + 1}: {page.locator('#status').inner_text()!r}")
        else:
            return
    raise AssertionError(f"the status never said {status!r}")


def answers(page, selector: str = "#decoded") -> list[str]:
    """The texts of the tokens of each answer."""
    boxes = page.locator(f"{selector} .heat")
    return ["".join(boxes.nth(place).locator("i").all_inner_texts()) for place in range(boxes.count())]


def test_two_settings_decoded_together_are_two_answers_of_the_command_line(visit, address, world, guides, capsys):
    page = visit(address, "?tab=playground")
    fill(page, page.locator("#prompt textarea"), PROMPT)
    set_number(page, "Maximum tokens", 8)
    set_number(page, "Guidance weight", 3)
    set_number(page, "helpful", 1)
    set_number(page, "harmless", 0.25)
    page.locator("#mixture", has_text="helpful 0.80 · harmless 0.20").wait_for()
    press(page, "Add setting")
    page.locator("#kept", has_text="helpful 0.80").wait_for()
    set_number(page, "helpful", 0)
    page.locator("#mixture", has_text="helpful 0.00 · harmless 1.00").wait_for()
    press(page, "Add setting")
    page.locator("#kept", has_text="harmless 1.00").wait_for()
    press(page, "Decode")
    page.locator("#status", has_text="2 completions,").wait_for(timeout=PATIENCE * 1000)
    same = ["--base", str(world / "base"), "--arm", *guides, "--weight", "3", "--max_new_tokens", "8"]
    for place, preference in enumerate(("helpful=0.8,harmless=0.2", "helpful=0,harmless=1")):
        (row,) = decode(world, f"one-{place}.jsonl", *same, "--preference", preference)
        shown = answers(page)[place].removesuffix("</s>")
        assert shown.replace("<unk>", "").split() == row["completion"].replace("<unk>", "").split()
    assert answers(page)[0] != answers(page)[1]
    title = page.locator("#decoded i").first.get_attribute("title")
    assert title.startswith("push ") and "helpful " in title and "log p: base -" in title
    assert page.locator("#decoded .swatch").count() == 2
    before = page.locator("#decoded i").first.get_attribute("style")
    page.get_by_label("entropy").click()
    page.wait_for_function("old => document.querySelector('#decoded i').getAttribute('style') != old", arg=before)


def test_a_sweep_is_a_figure_and_its_axes_can_be_chosen(visit, address):
    page = visit(address, "?tab=playground")
    fill(page, page.locator("#prompt textarea"), PROMPT)
    set_number(page, "Maximum tokens", 4)
    page.get_by_text("Sweep", exact=True).first.click()
    press_until(page, page.locator("button", has_text="Sweep").last, "3 completions,", Steps=3)
    assert page.locator("#decoded .head").nth(1).inner_text().startswith("helpful 0.50 · harmless 0.50")
    page.locator("#sweep .js-plotly-plot").wait_for(timeout=PATIENCE * 1000)
    page.locator("#sweep", has_text="words · reward").wait_for()
    page.get_by_role("combobox", name="Up", exact=True).click()
    page.get_by_role("option", name="reward of helpful").click()
    page.locator("#sweep .ytitle", has_text="reward of helpful").wait_for()


def test_a_prompt_that_cannot_be_answered_is_a_sentence(visit, address):
    page = visit(address, "?tab=playground")
    press(page, "Decode")
    page.get_by_text("the prompt is empty").first.wait_for()
    assert answers(page) == [] and "Decoding" not in page.locator("#status").inner_text()
    fill(page, page.locator("#prompt textarea"), "bees " * 300)
    press(page, "Decode")
    page.get_by_text("shorten it to 255 at most").first.wait_for(timeout=PATIENCE * 1000)
    assert answers(page) == []


def test_missing_input_is_one_sentence_and_the_completions_stay(visit, address):
    """Defect 18: an empty prompt put pills with the word "Error" in place of the outputs."""
    page = visit(address, "?tab=playground")
    fill(page, page.locator("#prompt textarea"), PROMPT)
    set_number(page, "Maximum tokens", 4)
    press(page, "Decode")
    page.locator("#status", has_text="1 completion,").wait_for(timeout=PATIENCE * 1000)
    before = answers(page)
    fill(page, page.locator("#prompt textarea"), " ")
    press(page, "Decode")
    page.get_by_text("the prompt is empty").wait_for()
    fill(page, page.locator("#prompt textarea"), PROMPT)
    set_number(page, "helpful", "")
    page.locator("#mixture", has_text="helpful 0.00 · harmless 1.00").wait_for()
    set_number(page, "Seed", -5)
    press(page, "Decode")
    page.get_by_text("the seed is 0 or more, got -5").wait_for()
    assert answers(page) == before and before != []
    assert page.get_by_text("Error", exact=True).count() == 0


@pytest.mark.slow
def test_a_visitor_who_cancels_or_leaves_keeps_nobody_waiting(visit, address, browser, monkeypatch):
    def slowly(*asked):
        for piece in quickly(*asked):
            time.sleep(0.5)
            yield piece

    quickly = playground._pieces
    monkeypatch.setattr(playground, "_pieces", slowly)  # 200 tokens take 100 seconds
    left = browser.new_page()
    left.set_default_timeout(PATIENCE * 1000)
    left.goto(address + "?tab=playground")
    page = visit(address, "?tab=playground")
    for one in (left, page):
        fill(one, one.locator("#prompt textarea"), PROMPT)
        set_number(one, "Maximum tokens", 200)
        set_number(one, "Guidance weight", 0)
    press(left, "Decode")
    left.locator("#decoded .guided", has_text=" ").first.wait_for()
    left.close()
    press(page, "Decode")
    page.locator("#decoded .guided").first.wait_for(timeout=PATIENCE * 1000)
    press(page, "Cancel")
    page.locator("#status", has_text="Cancelled.").wait_for()
    set_number(page, "Maximum tokens", 2)
    press(page, "Decode")
    page.locator("#status", has_text="1 completion, 2 tokens").wait_for(timeout=PATIENCE * 1000)
    press(page, "Cancel")
    page.wait_for_timeout(1000)
    assert page.locator("#status").inner_text().startswith("1 completion, 2 tokens")


def test_a_decoded_file_is_shown_by_its_address(visit, address, world, guides):
    decode(
        world, "swept.jsonl", "--base", str(world / "base"), "--arm", *guides, "--sweep", "3", "--max_new_tokens", "5"
    )
    page = visit(address, "?tab=playground&run=swept.jsonl&prompt=1")
    page.locator("#file-answers .heat").nth(2).wait_for()
    assert PROMPT in page.locator(".prompt").last.inner_text()
    assert page.locator("#file-answers .heat").nth(1).locator("i").count() == 5
    title = page.locator("#file-answers .heat").nth(1).locator("i").first.get_attribute("title")
    assert "helpful " in title and "harmless " in title
    assert "⟨" not in page.locator("#file-answers").inner_text()
    page.locator(".js-plotly-plot").first.wait_for(timeout=PATIENCE * 1000)
    (world / "runs" / "broken.jsonl").write_text('{"completion": 1, "tokens": 2, "base": 3}\n')
    page.get_by_role("combobox", name="File", exact=True).click()
    page.get_by_role("option", name="broken.jsonl").click()
    page.locator("#file-note", has_text="broken.jsonl:1: no line of").wait_for()
    page.locator("#file-answers .heat").first.wait_for(state="detached")
    page.wait_for_function("location.search == '?tab=playground&run=broken.jsonl'")


def test_without_models_there_is_the_command(visit, served, world, tmp_path):
    page = visit(served(tmp_path), "?tab=playground")
    page.get_by_text("--arm GUIDE").wait_for()
    assert page.locator("#prompt").count() == 0
    page.get_by_role("tab", name="Decoded files").click()
    page.get_by_text("No decoded file is here yet").wait_for()
    assert "rewardlab decode --base MODEL --arm GUIDE" in page.locator("#file-note").inner_text()
    assert page.locator("#file-answers .heat").count() == 0


@pytest.mark.slow
def test_a_guide_that_follows_a_preference_has_its_sliders(visit, served, world):
    page = visit(served(world / "runs", arm=[str(world / "both")]), "?tab=playground", width=390, height=800)
    page.get_by_label("number input for helpful").wait_for()
    fill(page, page.locator("#prompt textarea"), PROMPT)
    set_number(page, "Maximum tokens", 3)
    press(page, "Decode")
    page.locator("#status", has_text="1 completion, 3 tokens").wait_for(timeout=PATIENCE * 1000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
