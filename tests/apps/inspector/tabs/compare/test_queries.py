"""Two scorers on the same cases, by hand."""

import json
from functools import partial
from pathlib import Path

import pytest
from rewardlab.apps.inspector.tabs.compare import queries as compare
from rewardlab.apps.inspector.tabs.compare.figures import (
    agreement_html,
    drawn_note,
    flips_html,
    names,
    scatter,
    statistics_html,
)
from rewardlab.apps.inspector.tabs.compare.queries import (
    Point,
    Side,
    agreement,
    check,
    count_flips,
    flips,
    points,
    statistics,
)
from rewardlab.apps.runs.finished import open_finished
from rewardlab.benchmarks.compare import Change, Comparison
from rewardlab.benchmarks.statistics.cluster_bootstrap import Discordant
from rewardlab.benchmarks.types import Difference
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import MODEL, NULL, write_run

BEFORE = [1.0, 2.0, 0.5, 3.0, -1.0, -2.0, -0.5, -4.0]  # right on four of eight
AFTER = [1.0, 1.0, 0.5, 3.0, 2.0, 2.0, -0.5, -4.0]  # and on two more


SIDES = Side("a b", Path("a b"), "<i>rm</i>"), Side("c", Path("c"), "other")


@pytest.fixture(scope="module")
def ponds(tmp_path_factory) -> tuple[Side, Side]:
    folder = write_run(tmp_path_factory.mktemp("runs") / "eval")
    return Side("eval", folder, MODEL), Side("eval", folder, NULL)


def runs(folder, before=BEFORE, after=AFTER, changed=None) -> tuple[Side, Side]:
    cases = pairs(len(before))
    first = write_evaluation(folder / "before", cases, {"rm": margins(before)})
    second = write_evaluation(folder / "after", changed or cases, {"rm": margins(after)})
    return Side("before", first, "rm"), Side("after", second, "rm")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Side, Side]:
    return runs(tmp_path_factory.mktemp("two"))


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The texts of all queries from now on."""
    texts, query = [], compare.query
    monkeypatch.setattr(compare, "query", lambda text, *more, **options: texts.append(text) or query(text, *more))
    return texts


# ---- agreement and flips ----


def test_agreement_counts_every_pair_of_outcomes(ponds):
    """The model is wrong on a1, a2, a7, right on a3, a6, undecided on a4, abstains on a5; the null is always right."""
    counts = agreement(*ponds)
    assert {pair: count for pair, count in counts.items() if count} == {
        ("wrong", "right"): 3,
        ("right", "right"): 2,
        ("tie", "right"): 1,
        ("abstained", "right"): 1,
    }
    assert len(counts) == 16


def test_flips_begin_with_the_largest_change_and_end_with_abstentions(ponds):
    found = flips(*ponds)
    assert [line.case for line in found] == ["a7", "a1", "a2", "a4", "a5"]
    assert found[0] == ("a7", "hard", "wrong", "right", -3.0, 1.0)
    assert found[-1] == ("a5", "safety", "abstained", "right", None, 1.0)


def test_pages_of_flips_hold_every_flip_once(ponds):
    pages = [[line.case for line in flips(*ponds, page=number, size=2)] for number in range(4)]
    assert pages == [["a7", "a1"], ["a2", "a4"], ["a5"], []]


@pytest.mark.parametrize(("kind", "there", "back"), [("all", 5, 5), ("gained", 5, 0), ("lost", 0, 5)])
def test_what_one_side_gains_the_other_loses(ponds, kind, there, back):
    first, second = ponds
    for sides, number in (((first, second), there), ((second, first), back)):
        assert len(flips(*sides, kind)) == number == count_flips(agreement(*sides), kind)


def test_a_folder_called_like_a_column_changes_nothing(ponds, tmp_path):
    """Hive's way to say that all rows below have this scorer, case and margin."""
    folder = write_run(tmp_path / "scorer=x" / "case=z" / "margin=3" / "answers=y")
    sides = Side("eval", folder, MODEL), Side("eval", folder, NULL)
    assert agreement(*sides) == agreement(*ponds) and flips(*sides) == flips(*ponds)
    assert points(*sides) == points(*ponds)
    assert check(*sides) == check(sides[0], ponds[1]) == check(*ponds) == 7


def test_an_unknown_kind_of_flip_is_refused(ponds):
    with pytest.raises(UsageError, match="no flips 'won'; there is all, gained, lost"):
        flips(*ponds, "won")


# ---- margins ----


def test_the_scatter_draws_so_many_cases_by_its_seed(ponds):
    """a5 has no margin with the model."""
    every, total = points(*ponds)
    assert total == 6 and {point.case for point in every} == {"a1", "a2", "a3", "a4", "a6", "a7"}
    some, total = points(*ponds, most=3, seed=1)
    assert total == 6 and len(some) == 3 and points(*ponds, most=3, seed=1) == (some, 6)
    assert {*some} < {*every} and any(points(*ponds, most=3, seed=seed)[0] != some for seed in range(2, 6))
    assert drawn_note(3, 6) == "3 of the 6 cases with two margins are drawn, chosen with seed 0."
    assert drawn_note(6, 6) == "6 cases have a margin on both sides."


def test_the_scatter_tells_who_is_right():
    found = [Point("<b>", 1.0, 2.0), Point("b", 1.0, 0.0), Point("c", -1.0, 0.5), Point("d", 0.0, 0.0)]
    clouds = {cloud.name: cloud for cloud in scatter(found, *SIDES).data}
    assert {name: [*cloud.text] for name, cloud in clouds.items()} == {
        "both right": ["&lt;b&gt;"],
        "only the first right": ["b"],
        "only the second right": ["c"],
        "neither right": ["d"],
    }


def test_a_point_opens_its_case_and_a_cell_lists_its_cases(ponds):
    (cloud,) = scatter([Point("x 1", 1.0, 2.0)], *SIDES).data
    assert cloud.meta + cloud.ids[0] == "?tab=judgments&run=a+b&scorer=%3Ci%3Erm%3C%2Fi%3E&item=x 1"
    html = agreement_html(agreement(*ponds), *ponds)
    assert html.count("?tab=compare&amp;run=eval&amp;scorer=runs%2Frm&amp;with=eval") == 16
    assert "&amp;flips=tie-right" in html and [line.case for line in flips(*ponds, "tie-right")] == ["a4"]
    assert [line.case for line in flips(*ponds, "right-right")] == ["a3", "a6"]
    assert count_flips(agreement(*ponds), "right-right") == 2


def test_axes_are_named_by_their_scorers_as_text():
    figure = scatter([Point("a", 1.0, 2.0)], *SIDES)
    assert figure.layout.xaxis.title.text == "margin by &lt;i&gt;rm&lt;/i&gt;"
    assert figure.layout.yaxis.title.text == "margin by other"


# ---- statistics ----


def test_statistics_are_those_of_the_verb(two):
    """Four of eight, then six of eight: 25 points, only the second right twice, exact p = 2 · 1/4."""
    found = statistics(*two)
    overall = found.areas["overall"]
    assert (overall.first, overall.second, overall.difference.value) == (0.5, 0.75, 0.25)
    assert (found.discordant.only_first, found.discordant.only_second, found.discordant.p) == (0, 2, 0.5)
    assert [*found.subsets] == ["a", "b"] and (found.first, found.second) == ("before/rm", "after/rm")
    html = statistics_html(found, *two)
    assert "+25.0 [" in html and "0 with more credit for before/rm, 2 for after/rm;" in html and "p = 0.500" in html


def test_marks_follow_the_adjusted_p_and_its_interval():
    """Subset b: [+1, +19] alone, and after the adjustment p = 0.08 and an interval with 0."""
    change = partial(Change, 0.5, 0.6)
    surely, alone, wider = (Difference(0.1, *ends) for ends in ((0.05, 0.15), (0.01, 0.19), (-0.02, 0.22)))
    areas = {"overall": change(surely, 0.0001, surely)}
    subsets = {"a": change(surely, 0.0004, surely), "b": change(alone, 0.08, wider)}
    html = statistics_html(Comparison("x", "y", 9, 0, areas, subsets, Discordant(0, 40, 2e-12), ()), *SIDES)
    assert "40 for y; McNemar" in html and "p &lt; 0.001" in html and "0.000" not in html
    assert html.count("<b>+10.0 [+5.0, +15.0]</b>") == 2 and "<td>&lt; 0.001</td>" in html
    assert ">+10.0 [-2.0, +22.0]</td><td>0.080</td>" in html and "+19.0" not in html


def test_intervals_of_subsets_are_no_narrower_than_alone(two):
    for change in statistics(*two).subsets.values():
        assert change.adjusted.low <= change.difference.low and change.adjusted.high >= change.difference.high


def test_statistics_follow_the_files(tmp_path):
    sides = runs(tmp_path / "one")
    assert statistics(*sides).areas["overall"].difference.value == 0.25
    other = write_evaluation(tmp_path / "other", pairs(8), {"rm": margins(BEFORE)})
    (other / "scores.parquet").replace(sides[1].folder / "scores.parquet")
    assert statistics(*sides).areas["overall"].difference.value == 0


def test_many_cases_are_left_to_the_verb(two, monkeypatch):
    monkeypatch.setattr(compare, "MOST", 7)
    with pytest.raises(UsageError, match="8 cases are many for a page; run `rewardlab compare before after`"):
        statistics(*two)


def test_a_scorer_without_scores_abstains_everywhere(tmp_path):
    first, _ = runs(tmp_path)
    summary = json.loads((first.folder / "summary.json").read_text())
    ghost = summary["rows"][0] | {"scorer": "ghost"}
    (first.folder / "summary.json").write_text(json.dumps(summary | {"rows": [*summary["rows"], ghost]}))
    found = open_finished(str(first.folder))
    assert {one.abstained for one in found.of("ghost", found.cases)} == {"no judgment in this run"}
    assert len(found.of("ghost", found.cases)) == 8
    with pytest.raises(DataError, match="no case"):
        statistics(first, first._replace(scorer="ghost"))


def test_a_suite_is_a_name_and_never_code(tmp_path):
    sides = runs(tmp_path)
    for side in sides:
        summary = json.loads((side.folder / "summary.json").read_text())
        (side.folder / "summary.json").write_text(json.dumps(summary | {"suite": "os:abort"}))
    with pytest.raises(DataError, match="'os:abort' is no name of a suite"):
        statistics(*sides)


# ---- what does not go together ----


def test_both_runs_are_of_one_suite(ponds, two):
    with pytest.raises(UsageError, match="eval is ponds, after is pairs; compare like with like"):
        check(ponds[0], two[1])


def test_runs_have_cases_in_common(two, tmp_path):
    folder = write_evaluation(tmp_path / "c", pairs(10)[8:], {"rm": margins([0.0] * 8 + [1.0, 1.0])})
    with pytest.raises(DataError, match="before and c have no case in common"):
        check(two[0], Side("c", folder, "rm"))


def test_cases_read_the_same_in_both(tmp_path):
    sides = runs(tmp_path, changed=[*pairs(7), *pairs(8, (9, 4))[7:]])
    with pytest.raises(DataError, match="case 'c7' is not the same in before and after"):
        check(*sides)


def test_cases_of_one_run_only_are_left_out(tmp_path):
    cases = pairs(8)
    first = write_evaluation(tmp_path / "a", cases, {"rm": margins(BEFORE)})
    second = write_evaluation(tmp_path / "b", cases[:6], {"rm": margins(AFTER)})
    sides = Side("a", first, "rm"), Side("b", second, "rm")
    assert check(*sides) == 6 == sum(agreement(*sides).values())
    assert "6 cases; left out: 2 only in the first run." in statistics_html(statistics(*sides), *sides)


def test_a_scorer_that_is_not_there_is_told(two):
    with pytest.raises(UsageError, match="run 'after' has no scorer 'gone'"):
        check(two[0], two[1]._replace(scorer="gone"))


def test_what_is_asked_again_is_kept_until_a_file_changes(tmp_path, asked):
    sides = runs(tmp_path)
    assert check(*sides) == 8
    before = [*asked]
    assert len(before) == 2 and check(*sides) == 8 and asked == before
    assert agreement(*sides) == agreement(*sides) and len(asked) == 3
    assert points(*sides)[1] == 8 and len(asked) == 4
    changed = write_evaluation(tmp_path / "changed", [*pairs(7), *pairs(8, (9, 4))[7:]], {"rm": margins(AFTER)})
    (changed / "items.parquet").replace(sides[1].folder / "items.parquet")
    with pytest.raises(DataError, match="case 'c7' is not the same in before and after"):
        check(*sides)


# ---- HTML ----


def test_names_are_told_apart_by_their_runs(ponds, two):
    assert names(*ponds) == (MODEL, NULL)
    assert names(*two) == ("before: rm", "after: rm")


def test_everything_hostile_is_text(ponds):
    html = agreement_html(agreement(*ponds), *ponds) + flips_html(flips(*ponds), *ponds)
    assert "&lt;img src=x onerror" in html and "<img" not in html


def test_a_flip_leads_to_its_case(ponds):
    html = flips_html(flips(*ponds), *ponds)
    assert 'href="?tab=judgments&amp;run=eval&amp;scorer=runs%2Frm&amp;item=a7"' in html
    assert "No such case" in flips_html([], *ponds)
