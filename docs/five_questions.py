"""Five questions about real reward models, answered on the inspector's page: interactions, seconds and a picture each.

The models are trained on UltraFeedback and HH (helpful) and evaluated on RewardBench: words and length, a linear head
on MiniLM, and MiniLM trained as a whole. Each question begins at the first page, in a browser that kept nothing.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page, sync_playwright
from rewardlab.apps.inspector.server import launch
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build
from screenshot_runs import run_missing
from screenshots import PATIENCE, save

MOST = 4
"""Largest number of interactions of a question: clicks and choices."""
PAIRS = "{data}/ultrafeedback_sample/train.jsonl.gz {data}/hh_rlhf/helpful_rmgallery.public.jsonl.gz --on_bad_row skip"
TUNED = (
    "--chat_template plain --max_length 256 --max_steps 60 --logging_steps 2 --eval_strategy steps --eval_steps 20 "
    "--eval_data {data}/ultrafeedback_sample/eval.jsonl.gz"
)
COMMANDS = {
    "linear": f"train --kind linear --data {PAIRS}",
    "minilm": f"train --kind embedding --model {{backbone}} --data {PAIRS}",
    "minilm-tuned": f"train --model {{backbone}} --data {PAIRS} {TUNED}",
    "rewardbench": "eval --benchmark rewardbench --model linear minilm --data "
    "{data}/rewardbench_v1/filtered-00000-of-00001.parquet",
}
"""Name below the folder of runs -> the command that writes it, with the folders of data and of the backbone."""


class Reader:
    """A reader of the page, whose interactions are counted."""

    def __init__(self, page: Page):
        self.page, self.interactions = page, 0

    def click(self, selector: str, index: int = 0) -> None:
        """Click the visible element at an index of those that match."""
        self.page.locator(selector).locator("visible=true").nth(index).click()
        self.interactions += 1

    def text(self, selector: str) -> str:
        """Return the text of an element, once it is there, on one line."""
        return " ".join(self.page.locator(selector).first.inner_text().split())


class Question(NamedTuple):
    """A question, what a reader does to answer it, and the element at the top of the picture."""

    text: str
    answer: Callable[[Reader], str]
    top: str


# ---- answers ----


def best(reader: Reader) -> str:
    """Compare the first two models of the leaderboard."""
    for index in range(2):
        reader.click(".board tbody input[type=checkbox]", index)
    reader.click("#board-compare")
    return reader.text("#verdict b")


def worst_section(reader: Reader) -> str:
    """Open the best model, whose gaps to the baselines are sorted."""
    reader.click(".board tbody th.name a")
    return reader.text("#gap-table tbody tr")


def worst_mistake(reader: Reader) -> str:
    """Open the worst mistakes of the best model, and ask the model why."""
    reader.click(".board .head a:has-text('Worst mistakes of')")
    reader.page.wait_for_url("**order=worst**item=**")
    reader.click("#why-section button:text-is('Explain')")
    return f"{reader.text('#case .case-name')}: {reader.text('#why .lead')}"


def training(reader: Reader) -> str:
    """Open the training, whose table has first, last and change."""
    reader.click("#runs .cards a:has-text('tuned')")
    return "; ".join(" ".join(row.inner_text().split()) for row in rows(reader, "#changes tbody tr"))


def rows(reader: Reader, selector: str) -> list[Any]:
    """Return the rows of a table, once they are there."""
    reader.page.locator(selector).first.wait_for()
    return reader.page.locator(selector).all()


def doubtful_label(reader: Reader) -> str:
    """Open the most doubtful label, call it wrong, read that it is stored, list the annotated cases, and export."""
    reader.click(".board .head a:text-is('Doubtful labels')")
    reader.page.locator("#case .case-name").wait_for()
    case = reader.text("#case .case-name")
    reader.click("#annotation-choices button:has-text('No')")
    reader.page.locator("#annotation-stored", has_text=f"Stored: No for {case}").wait_for()
    reader.click("#outcome label:has-text('annotated')")
    reader.page.locator("#case-place:text-is('1 of 1')").wait_for()
    with reader.page.expect_download() as download:
        reader.click("#annotation-give")
    (line,) = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    if (exported := json.loads(line)["case"]) != case:
        raise SystemExit(f"{case} was marked and {exported} exported")
    return f"{case}: {json.loads(line)['verdict']}, in {download.value.suggested_filename}"


QUESTIONS = {
    "best": Question("Which model is best, and by how much?", best, "#tabs"),
    "section": Question("Where is it worst beside the baselines?", worst_section, "#gaps"),
    "mistake": Question("What is its worst mistake, and why?", worst_mistake, "#why-controls"),
    "training": Question("What did training do?", training, "#tabs"),
    "label": Question("Which label is doubtful?", doubtful_label, "#judgments-toolbar"),
}


def ask(browser: Any, address: str, question: Question, picture: Path) -> dict[str, Any]:
    """Answer a question in a fresh browser, and return the answer, the interactions and the seconds."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}?__theme=light")
    page.locator("#leaderboard td:nth-child(2)[data-value='1']").first.wait_for()
    page.evaluate("document.querySelector('.heading .faint').textContent = '~/runs'")  # no path of this machine
    reader, start = Reader(page), time.perf_counter()
    answer = question.answer(reader)
    seconds = round(time.perf_counter() - start, 1)
    if reader.interactions > MOST:
        raise SystemExit(f"{question.text} took {reader.interactions} interactions; at most {MOST} are wanted")
    page.locator(question.top).first.evaluate("top => top.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(1500)  # transitions of Gradio and Plotly
    save(page.screenshot(), picture)
    context.close()
    return {"question": question.text, "answer": answer, "interactions": reader.interactions, "seconds": seconds}


def main() -> None:
    """Write the runs that are missing, answer the questions, and print a JSON line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path, help="folder with rewardbench_v1, ultrafeedback_sample and hh_rlhf")
    parser.add_argument("--backbone", type=Path, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "images" / "questions")
    parser.add_argument("--questions", nargs="*", default=[*QUESTIONS], choices=[*QUESTIONS])
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    os.chdir(options.runs)
    for name, command in COMMANDS.items():
        run_missing(name, command.format(data=options.data, backbone=options.backbone))
    shutil.rmtree("annotations", ignore_errors=True)
    site = build(InspectConfig(run=".", model=["linear", "minilm"]))
    address = launch(site)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in options.questions:
            answered = ask(browser, address, QUESTIONS[name], options.output / f"{name}.png")
            print(json.dumps(answered, ensure_ascii=False), flush=True)
        browser.close()
    site.close(verbose=False)


if __name__ == "__main__":
    main()
