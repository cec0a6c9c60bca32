"""Five questions of a reader, each answered from the first page in at most five interactions."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.apps.inspector.court import RUBRIC, write_court
from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.trainings import logged, write_training

BASELINE = {"shortest": margins([-1.0] * 16)}
GOOD = margins([1.0] * 15 + [-1.0])
WEAK = margins([1.0, -1.0] * 8)


@pytest.fixture(scope="module")
def address(served, tmp_path_factory) -> str:
    """`good` is right on 15 of 16 cases; `weak` is wrong on all of subset b; the judge has a rubric; gold falls."""
    folder: Path = tmp_path_factory.mktemp("questions") / "runs"
    write_evaluation(folder / "new", pairs(16), {"good": GOOD}, nulls=BASELINE)
    write_evaluation(folder / "old", pairs(16), {"weak": WEAK}, nulls=BASELINE)
    write_court(folder / "judge")
    write_training(folder / "rl", [logged(step) for step in range(1, 6)])
    return served(folder)


class Visitor:
    """A reader whose interactions are counted."""

    def __init__(self, page: Any):
        self.page, self.interactions = page, 0

    def click(self, locator: Any) -> None:
        self.interactions += 1
        assert self.interactions <= 5
        locator.click()


@pytest.fixture
def visitor(visit, address) -> Visitor:
    return Visitor(visit(address, ready="#leaderboard table"))


def row(page: Any, model: str) -> Any:
    return page.locator("#leaderboard tbody tr", has=page.get_by_role("link", name=model, exact=True))


def test_which_model_is_best_and_by_how_much(visitor):
    board = visitor.page.locator("#leaderboard .board", has_text="16 cases")
    assert board.locator("tbody th.name").all_inner_texts() == ["good", "weak"]
    assert "93.8" in row(visitor.page, "good").inner_text() and "+93.8" in row(visitor.page, "good").inner_text()


def test_which_subset_is_worst(visitor):
    visitor.click(row(visitor.page, "weak").get_by_role("link", name="weak", exact=True))
    rows = visitor.page.locator("#areas tr.subset")
    rows.nth(1).wait_for()
    shares = {one.locator("th").inner_text(): one.locator("td").last.inner_text() for one in rows.all()}
    assert float(shares["a"].split()[0]) == 100 and float(shares["b"].split()[0]) == 0


def test_three_cases_where_two_models_differ_most(visitor):
    for model in ("good", "weak"):
        visitor.click(visitor.page.get_by_role("checkbox", name=f"compare {model} of"))
    visitor.click(visitor.page.get_by_role("button", name="Compare"))
    rows = visitor.page.locator("#flips tbody tr")
    rows.nth(2).wait_for()
    links = [rows.nth(k).locator("a").first.get_attribute("href") for k in range(3)]
    opened = [parse_qs(link.removeprefix("?"))["item"][0] for link in links]
    assert len({*opened}) == 3 and {*opened} <= {f"c{k}" for k in range(1, 15, 2)}


def test_did_reinforcement_learning_over_optimise(visitor):
    names = visitor.page.locator("#runs svg[role=img]").evaluate_all("all => all.map(e => e.ariaLabel)")
    assert "reward from 0.10 to 0.50" in names and "gold (watched) from 0.90 to 0.50" in names
    visitor.click(visitor.page.locator("#runs").get_by_role("link", name="rl", exact=True))
    visitor.page.locator("#rl-proxy-and-gold .scatterlayer .trace").nth(1).wait_for()


def test_why_a_score(visitor):
    visitor.click(row(visitor.page, RUBRIC).get_by_role("link", name=re.compile(r"^[0-9.]+ ?\[")).first)
    visitor.page.locator("#grounds mark", has_text="An oak").first.wait_for()
    assert visitor.page.locator("#grounds .reply").count() == 2
