"""Sections of a benchmark as a filter of its cases."""

from dataclasses import replace

from rewardlab.apps.inspector.tabs.judgments.filters import START, filter_of, subset_choices
from rewardlab.apps.inspector.tabs.judgments.queries import lines, open_run, sections
from rewardlab.apps.inspector.tabs.metrics import SECTION
from rewardlab.judges.types import Case
from rewardlab.rm.types import user_turn

from tests.apps.inspector.evaluations import write_evaluation

SCORES = (2.0, 2.0, 2.0, 1.0, 1.0, 1.0)


def test_a_section_of_an_address_passes_the_cases_of_its_subsets(tmp_path):
    """RM-Bench's safety has two subsets; its domain chat is a subset, and its levels are all of it."""
    names = ("chat", "safety-refuse", "safety-response")
    cases = [Case(f"c{k}", user_turn(name), tuple("abcdef"), (0, 1, 2), name) for k, name in enumerate(names)]
    cases = [replace(case, sets=(3, 3)) for case in cases]
    folder = write_evaluation(tmp_path / "eval", cases, {"rm": {f"c{k}": SCORES for k in range(3)}})
    run = open_run(folder)
    assert sections(run) == {"safety": ["safety-refuse", "safety-response"]}
    assert ("section safety (2)", f"{SECTION}safety") in subset_choices(run)
    asked = START._replace(run="eval", scorer="rm", outcome="all", subset=f"{SECTION}safety")
    assert [line.case for line in lines(run, filter_of(run, asked, []), 0, 9)] == ["c1", "c2"]
    assert [line.case for line in lines(run, filter_of(run, asked._replace(subset=f"{SECTION}gone"), []), 0, 9)] == []
