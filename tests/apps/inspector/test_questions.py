"""Five questions of a reader, each answered from the first page in at most five interactions."""

import re
from typing import Any
from urllib.parse import parse_qs

from tests.apps.inspector.court import RUBRIC


def row(page: Any, model: str) -> Any:
    return page.locator("#leaderboard tbody tr", has=page.get_by_role("link", name=model, exact=True))


def test_five_questions_are_answered_in_few_interactions(visit, address):
    """Which model is best and by how much; did reinforcement learning over-optimise; and three more behind clicks."""
    page = visit(address, ready="#leaderboard table")
    assert "93.8" in row(page, "good").inner_text() and "+93.8" in row(page, "good").inner_text()
    names = page.locator("#runs svg[role=img]").evaluate_all("all => all.map(e => e.ariaLabel)")
    assert "reward from 0.10 to 0.90" in names and "gold (watched) from 0.90 to 0.10" in names

    for model in ("good", "weak"):  # three cases where two models differ most: three interactions
        page.get_by_role("checkbox", name=f"compare {model} of").click()
    page.get_by_role("button", name="Compare").click()
    rows = page.locator("#flips tbody tr")
    rows.nth(2).wait_for()
    links = [rows.nth(k).locator("a").first.get_attribute("href") for k in range(3)]
    opened = {parse_qs(link.removeprefix("?"))["item"][0] for link in links}
    assert len(opened) == 3 and opened <= {f"c{k}" for k in range(1, 15, 2)}

    page.goto(address)  # the worst subset: one interaction
    row(page, "weak").get_by_role("link", name="weak", exact=True).click()
    rows = page.locator("#areas tr.subset")
    rows.nth(1).wait_for()
    shares = {one.locator("th").inner_text(): one.locator("td").last.inner_text() for one in rows.all()}
    assert float(shares["a"].split()[0]) == 100 and float(shares["b"].split()[0]) == 0

    page.goto(address)  # why a score: one interaction
    row(page, RUBRIC).get_by_role("link", name=re.compile(r"^[0-9.]+ ?\[")).first.click()
    page.locator("#grounds mark", has_text="An oak").first.wait_for()
    assert page.locator("#grounds .reply").count() == 2
