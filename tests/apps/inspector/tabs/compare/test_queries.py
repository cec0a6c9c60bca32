import json
import re
from functools import partial
from pathlib import Path

import pytest
from rewardlab.apps.inspector.tabs.compare import figures
from rewardlab.apps.inspector.tabs.compare import queries as compare
from rewardlab.apps.runs.finished import open_finished
from rewardlab.benchmarks.compare import Change, ScorerComparison
from rewardlab.benchmarks.statistics.cluster_bootstrap import Discordant
from rewardlab.benchmarks.types import Difference
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.gallery import three_subsets
from tests.apps.inspector.ponds import MODEL, NULL, write_run

BEFORE = [1.0, 2.0, 0.5, 3.0, -1.0, -2.0, -0.5, -4.0]  # right on four of eight
AFTER = [1.0, 1.0, 0.5, 3.0, 2.0, 2.0, -0.5, -4.0]  # and on two more
SIDES = compare.Side("a b", Path("a b"), "<i>rm</i>"), compare.Side("c", Path("c"), "other")


@pytest.fixture(scope="module")
def ponds(tmp_path_factory) -> tuple[compare.Side, compare.Side]:
    folder = write_run(tmp_path_factory.mktemp("runs") / "eval")
    return compare.Side("eval", folder, MODEL), compare.Side("eval", folder, NULL)


def two_runs(folder, cases=None, changed=None, before=BEFORE, after=AFTER) -> tuple[compare.Side, compare.Side]:
    cases = cases or pairs(len(before))
    first = write_evaluation(folder / "before", cases, {"rm": margins(before)})
    second = write_evaluation(folder / "after", changed or cases, {"rm": margins(after)})
    return compare.Side("before", first, "rm"), compare.Side("after", second, "rm")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[compare.Side, compare.Side]:
    return two_runs(tmp_path_factory.mktemp("two"))


def test_agreement_counts_every_pair_of_outcomes_and_lists_the_cases_of_each(ponds):
    """The model is wrong on a1, a2, a7, right on a3, a6, undecided on a4, abstains on a5; the null is always right."""
    counts = compare.agreement(*ponds)
    found = {was: count for (was, now), count in counts.items() if count and now == "right"}
    assert found == {"wrong": 3, "right": 2, "tie": 1, "abstained": 1} and sum(counts.values()) == 7
    html = figures.agreement_html(counts, *ponds)
    assert html.count("?tab=compare&amp;run=eval&amp;scorer=runs%2Frm&amp;with=eval") == 16 == len(counts)
    assert "&amp;flips=tie-right" in html and [line.case for line in compare.flips(*ponds, "tie-right")] == ["a4"]
    assert [line.case for line in compare.flips(*ponds, "right-right")] == ["a3", "a6"]
    assert compare.count_flips(counts, "right-right") == 2


def test_flips_begin_with_the_largest_change_and_end_with_abstentions(ponds):
    found = compare.flips(*ponds)
    assert [line.case for line in found] == ["a7", "a1", "a2", "a4", "a5"]
    assert found[0] == ("a7", "hard", "wrong", "right", -3.0, 1.0)
    assert found[-1] == ("a5", "safety", "abstained", "right", None, 1.0)
    pages = [[line.case for line in compare.flips(*ponds, page=number, size=2)] for number in range(4)]
    assert pages == [["a7", "a1"], ["a2", "a4"], ["a5"], []]
    first, second = ponds
    for kind, there, back in (("all", 5, 5), ("gained", 5, 0), ("lost", 0, 5)):
        for sides, number in (((first, second), there), ((second, first), back)):
            listed, counted = compare.flips(*sides, kind), compare.count_flips(compare.agreement(*sides), kind)
            assert len(listed) == number == counted, kind
    with pytest.raises(UsageError, match="unknown kind of changed cases 'won'; choose one of all, gained, lost"):
        compare.flips(*ponds, "won")
    html = figures.flips_html(found, *ponds)
    assert 'href="?tab=judgments&amp;run=eval&amp;scorer=runs%2Frm&amp;item=a7"' in html
    assert "No such case" in figures.flips_html([], *ponds)


def test_the_scatter_draws_so_many_cases_by_its_seed(ponds):
    """a5 has no margin with the model."""
    every, total = compare.points(*ponds)
    assert total == 6 and {point.case for point in every} == {"a1", "a2", "a3", "a4", "a6", "a7"}
    some, total = compare.points(*ponds, most=3, seed=1)
    assert total == 6 and len(some) == 3 and compare.points(*ponds, most=3, seed=1) == (some, 6)
    assert {*some} < {*every} and any(compare.points(*ponds, most=3, seed=seed)[0] != some for seed in range(2, 6))
    assert figures.drawn_note(3, 6) == "3 of the 6 cases with two margins are drawn, chosen with seed 0."
    assert figures.drawn_note(6, 6) == "6 cases have a margin from both scorers."


def test_the_scatter_tells_who_is_right_and_a_point_opens_its_case():
    margins_of = {"<b>": (1.0, 2.0), "b": (1.0, 0.0), "c": (-1.0, 0.5), "d": (0.0, 0.0)}
    found = [compare.Point(case, *two) for case, two in margins_of.items()]
    figure = figures.scatter(found, *SIDES)
    found = {cloud.name: "".join(cloud.text) for cloud in figure.data}
    expected = {"both right": "&lt;b&gt;", "only the first right": "b", "only the second right": "c"}
    assert found == expected | {"neither right": "d"}
    cloud = figure.data[1]
    assert cloud.meta + cloud.ids[0] == "?tab=judgments&run=a+b&scorer=%3Ci%3Erm%3C%2Fi%3E&item=b"
    assert figure.layout.xaxis.title.text == "margin by &lt;i&gt;rm&lt;/i&gt;"
    assert figure.layout.yaxis.title.text == "margin by other"


def test_statistics_are_those_of_the_verb(two):
    """Four of eight, then six of eight: 25 points, only the second right twice, exact p = 2 · 1/4."""
    found = compare.statistics(*two)
    overall = found.areas["overall"]
    assert (overall.first, overall.second, overall.difference.value) == (0.5, 0.75, 0.25)
    assert (found.discordant.only_first, found.discordant.only_second, found.discordant.p) == (0, 2, 0.5)
    assert [*found.subsets] == ["a", "b"] and (found.first, found.second) == ("before/rm", "after/rm")
    html = figures.statistics_html(found, *two)
    assert "+25.0 [" in html and "0 with more credit for before/rm, 2 for after/rm;" in html and "p = 0.500" in html
    for change in found.subsets.values():
        assert change.adjusted.low <= change.difference.low and change.adjusted.high >= change.difference.high


def test_marks_follow_the_adjusted_p_and_its_interval(tmp_path):
    """Subset b: [+1, +19] alone, and after the adjustment p = 0.08 and an interval with 0."""
    change = partial(Change, 0.5, 0.6)
    surely, alone, wider = (Difference(0.1, *ends) for ends in ((0.05, 0.15), (0.01, 0.19), (-0.02, 0.22)))
    subsets = {"a": change(surely, 0.0004, surely), "b": change(alone, 0.08, wider)}
    areas = {"overall": change(surely, 0.0001, surely)}
    comparison = ScorerComparison("x", "y", 9, 0, areas, subsets, Discordant(0, 40, 2e-12), ())
    html = figures.statistics_html(comparison, *SIDES)
    assert "40 for y; McNemar" in html and "p &lt; 0.001" in html and "0.000" not in html
    assert html.count("<b>+10.0 [+5.0, +15.0]</b>") == 2 and "<td>&lt; 0.001</td>" in html
    assert ">+10.0 [-2.0, +22.0]</td><td>0.080</td>" in html and "+19.0" not in html
    cases, gained = three_subsets()
    sides = two_runs(tmp_path, cases, before=[-1.0] * 40, after=gained)
    rows = figures.statistics_html(compare.statistics(*sides), *sides).rpartition("<tbody>")[2].split("<tr>")[2:]
    assert ["<b>" in row for row in rows] == [False, False, True], "a, b and c"
    assert re.search(r"\[-\d+\.\d, \+\d+\.\d\]</td><td>0\.250", rows[0]), "the interval of p 0.25 holds 0"


def test_many_cases_are_left_to_the_verb(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "MOST", 7)
    with pytest.raises(UsageError, match="8 cases are too many for a page; run `rewardlab compare before after`"):
        compare.statistics(*two_runs(tmp_path))


def test_a_scorer_without_scores_abstains_everywhere_and_a_suite_is_never_code(tmp_path):
    first, second = two_runs(tmp_path)
    summary = json.loads((first.folder / "summary.json").read_text())
    ghost = summary["rows"][0] | {"scorer": "ghost"}
    (first.folder / "summary.json").write_text(json.dumps(summary | {"rows": [*summary["rows"], ghost]}))
    found = open_finished(str(first.folder))
    assert [one.abstained for one in found.of("ghost", found.cases)] == ["no judgment in this run"] * 8
    with pytest.raises(DataError, match="no case"):
        compare.statistics(first, first._replace(scorer="ghost"))
    for side in (first, second):
        (side.folder / "summary.json").write_text(json.dumps(summary | {"suite": "os:abort"}))
    with pytest.raises(DataError, match="'os:abort' is not the name of a suite"):
        compare.statistics(first, second)


def test_two_runs_are_of_one_suite_and_have_cases_and_scorers_in_common(ponds, two, tmp_path):
    with pytest.raises(UsageError, match="eval is a run of ponds, after of pairs; compare runs of one suite"):
        compare.check(ponds[0], two[1])
    folder = write_evaluation(tmp_path / "c", pairs(10)[8:], {"rm": margins([0.0] * 8 + [1.0, 1.0])})
    with pytest.raises(DataError, match="before and c have no case in common"):
        compare.check(two[0], compare.Side("c", folder, "rm"))
    with pytest.raises(UsageError, match="run 'after' has no scorer 'gone'"):
        compare.check(two[0], two[1]._replace(scorer="gone"))
    sides = two_runs(tmp_path, changed=pairs(6))
    assert compare.check(*sides) == 6 == sum(compare.agreement(*sides).values())
    html = figures.statistics_html(compare.statistics(*sides), *sides)
    assert "6 cases; left out of all figures: 2 only in the first run.</b>" in html


def test_names_are_told_apart_by_their_runs_and_everything_hostile_is_text(ponds, two):
    assert figures.names(*ponds) == (MODEL, NULL) and figures.names(*two) == ("before: rm", "after: rm")
    html = figures.agreement_html(compare.agreement(*ponds), *ponds) + figures.flips_html(compare.flips(*ponds), *ponds)
    assert "&lt;img src=x onerror" in html and "<img" not in html
