import json

import pytest
from rewardlab.apps.cli import main

from tests.apps.inspector.gallery import OBJECTIVES

PROMPT = "tell me about bees"


@pytest.fixture(scope="session")
def swept(runs, models) -> list[dict]:
    """Three completions of the command line, from all weight on the second objective to all on the first."""
    (models / "bees.txt").write_text(PROMPT + "\n")
    words = ["--base", str(models / "base"), "--arm", *(f"{name}={models / name}" for name in OBJECTIVES)]
    words += ["--data", str(models / "bees.txt"), "--output", str(runs / "swept.jsonl")]
    assert main(["decode", *words, "--weight", "3", "--sweep", "3", "--max_new_tokens", "5"]) == 0
    return [json.loads(line) for line in (runs / "swept.jsonl").read_text().splitlines()]


def set_number(page, label: str, value: float | str) -> None:
    field = page.get_by_label(f"number input for {label}").or_(page.get_by_label(label, exact=True)).first
    field.fill(str(value))
    field.press("Tab")


def press(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def prompted(page, tokens: int, text: str = PROMPT):
    """The page with a prompt and a length."""
    page.locator("#prompt textarea").fill(text)
    set_number(page, "Maximum tokens", tokens)
    return page


def answers(page, selector: str = "#decoded") -> list[str]:
    """The texts of the tokens of each answer."""
    boxes = page.locator(f"{selector} .heat")
    return ["".join(boxes.nth(index).locator("i").all_inner_texts()) for index in range(boxes.count())]


def words_of(text: str) -> list[str]:
    return text.removesuffix("</s>").replace("<unk>", "").split()


def test_two_settings_are_decoded_together_and_stay_where_input_is_missing(visit, address):
    page = prompted(visit(address, "?tab=playground"), 8)
    set_number(page, "Guidance weight", 3)
    set_number(page, "helpful", 1)
    set_number(page, "harmless", 0.25)
    assert page.locator("#mixture").inner_text() == "Preference: helpful 0.80 · harmless 0.20"
    press(page, "Add setting")
    set_number(page, "helpful", 0)
    press(page, "Add setting")
    page.locator("#kept .pill", has_text="helpful 0.00 · harmless 1.00").wait_for()
    assert page.locator("#kept .pill").first.inner_text().startswith("helpful 0.80 · harmless 0.20 · w 3")
    press(page, "Decode")
    page.locator("#status", has_text="2 completions,").wait_for()
    before = answers(page)
    assert len(before) == 2 and before[0] != before[1]
    title = page.locator("#decoded i").first.get_attribute("title")
    assert title.startswith("push ") and "helpful " in title and "log p: base -" in title
    assert page.locator("#decoded .swatch").count() == 2
    style = page.locator("#decoded i").first.get_attribute("style")
    page.get_by_label("entropy").click()
    page.wait_for_function("old => document.querySelector('#decoded i').getAttribute('style') != old", arg=style)
    page.locator("#prompt textarea").fill(" ")
    press(page, "Decode")
    page.get_by_text("the prompt is empty").wait_for()
    page.locator("#prompt textarea").fill(PROMPT)
    press(page, "Clear settings")
    page.locator("#kept .pill").first.wait_for(state="detached")
    set_number(page, "harmless", "")
    set_number(page, "Seed", -5)
    press(page, "Decode")
    page.get_by_text("the seed must be 0 or more, got -5").wait_for()
    assert answers(page) == before and page.get_by_text("Error", exact=True).count() == 0


def test_a_sweep_and_a_file_have_the_completions_of_the_command_line(visit, address, swept, runs):
    page = prompted(visit(address, "?tab=playground"), 5)
    set_number(page, "Guidance weight", 3)
    set_number(page, "Steps", 3)
    page.locator("button", has_text="Sweep").last.click()
    page.locator("#status", has_text="3 completions,").wait_for()
    assert [words_of(text) for text in answers(page)] == [words_of(row["completion"]) for row in reversed(swept)]
    assert page.locator("#decoded .head").nth(1).inner_text().startswith("helpful 0.50 · harmless 0.50")
    page.locator("#sweep .ytitle", has_text="arm · harmless").wait_for()
    page.get_by_role("combobox", name="Up", exact=True).click()
    page.get_by_role("option", name="words · reward").click()
    page.locator("#sweep .ytitle", has_text="words · reward").wait_for()
    prompted(page, 4, "bees " * 300)
    press(page, "Decode")
    page.get_by_text("shorten it to at most 255").first.wait_for()
    assert answers(page) == []
    (runs / "broken.jsonl").write_text('{"completion": 1, "tokens": 2, "base": 3}\n')
    page.get_by_role("tab", name="Decoded files").click()
    page.locator("#file-note", has_text="broken.jsonl:1: no line of").wait_for()
    page.get_by_label("File", exact=True).select_option("swept.jsonl")
    page.locator("#file-answers .heat").nth(2).wait_for()
    assert [words_of(text) for text in answers(page, "#file-answers")] == [words_of(row["completion"]) for row in swept]
    assert PROMPT in page.locator(".prompt").last.inner_text()
    title = page.locator("#file-answers .heat").nth(1).locator("i").first.get_attribute("title")
    assert "helpful " in title and "harmless " in title
    page.wait_for_url("**?tab=playground&run=swept.jsonl**")
    page = visit(address, "?tab=playground&run=swept.jsonl", ready="#file-answers .heat")
    assert len(answers(page, "#file-answers")) == 3, "the address of a file opens it"
