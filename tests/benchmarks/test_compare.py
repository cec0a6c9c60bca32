"""Paired comparison of two scorers: areas, their p-values, and what the verdict follows from."""

import json
import math
from dataclasses import replace

import pytest
from rewardlab.apps.runs.run_folder import to_json_types
from rewardlab.benchmarks.compare import ScorerComparison, broken_rules, cases_text, compare, markdown, verdict
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.benchmarks.suites.rewardbench2 import rewardbench2
from rewardlab.benchmarks.suites.rm_bench import rm_bench
from rewardlab.benchmarks.types import Suite
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def compared(
    wrong: dict[str, int], silent: str = "", size: int = 30, samples: int = 1000, suite: Suite | None = None
) -> ScorerComparison:
    """Compare a scorer that is right everywhere with one that has `wrong` cases in each subset, or abstains."""
    names = [(subset, i) for subset in wrong for i in range(size)]
    cases = [Case(f"{s}/{i}", user_turn(f"{s} {i}"), ("good", "bad"), (0,), s, f"{s} {i}") for s, i in names]
    before = [Judgment(case.id, scores=(1.0, 0.0)) for case in cases]
    after = [
        Judgment(case.id, abstained="too long")
        if subset == silent
        else Judgment(case.id, scores=(0.0, 1.0) if i < wrong[subset] else (1.0, 0.0))
        for case, (subset, i) in zip(cases, names, strict=True)
    ]
    return compare(suite or pairs(), cases, ("before", before), ("after", after), samples=samples)


def test_a_subset_without_a_common_case_has_no_p_and_does_not_count_for_the_adjustment():
    # 12 of 30 lost: p is 2 Φ(-√12) = 0.0005, and twice that among the subsets that are compared
    found = compared({"a": 12, "b": 0, "c": 0}, silent="c")
    silent = found.subsets["c"]
    assert all(map(math.isnan, (silent.first, silent.second, silent.p, *silent.difference, *silent.adjusted)))
    assert not silent.significant and found.subsets["a"].significant
    assert 0.0006 < found.subsets["a"].p < 0.002 and found.subsets["b"].p == 1
    assert "| c | – | – | – | – |" in markdown(found) and "nan" not in markdown(found)
    assert to_json_types(silent.__dict__)["p"] is None and json.dumps(to_json_types(silent.__dict__), allow_nan=False)


@pytest.mark.parametrize("subsets", [49, pytest.param(98, marks=pytest.mark.slow)])
def test_each_of_many_subsets_may_be_significant(subsets):
    # right in all of 14 prompts before, in none after: p is 2 Φ(-√14) = 0.00018, and 98 times that is 0.018
    found = compared({f"s{index}": 14 for index in range(subsets)}, size=14, samples=20)
    assert all(change.significant and change.adjusted.real for change in found.subsets.values())


def test_a_report_says_which_cases_are_left_out_and_which_p_decides():
    found = replace(compared({"a": 12, "b": 0}, silent="b"), only_first=3, only_second=1200)
    text = markdown(found)
    assert cases_text(found) == (
        "30 cases; left out of all figures: 30 without a score by after, 3 only in the first run, "
        "1,200 only in the second run."
    )
    assert cases_text(compared({"a": 0})) == "30 cases." and cases_text(found) in text
    assert "Item by item: 12 with more credit for before, 0 for after" in text
    assert (
        "McNemar's exact test of these counts has p < 0.001" in text and "The verdict instead weighs sections" in text
    )


def test_an_interval_excludes_0_where_p_is_below_5_per_cent():
    for lost in range(10):
        change = compared({"a": lost}, size=40).areas["overall"]
        assert change.significant == (change.p < 0.05) == change.difference.real, lost
        assert change.significant == (lost > 5)  # p is at least 2^(1 - lost): 1/16, 1/32
    for samples in [20, 200]:
        found = compared({"a": 30}, samples=samples)
        p_value = pytest.approx(4.32e-8, rel=0.01)  # 2 Φ(-√30): every prompt changed alike
        assert found.areas["overall"].p == p_value, samples
        better = "before is significantly better than after (+100.0 [+100.0, +100.0] points, p < 0.001)."
        assert verdict(found) == better, samples
    # six of thirty lost: p is 2 / 2⁶ of the sign test, below 5 % alone and above it among three
    for change in compared({"a": 6, "b": 6, "c": 6}).subsets.values():
        assert change.p == 3 * 2 / 64 and not change.significant
        assert change.difference.real and change.adjusted.high == 0


def test_a_mean_over_subsets_may_be_significant_though_one_of_them_did_not_change():
    for lost in [5, 6]:
        change = compared({"Factuality": lost, "Math": 0}, size=6, suite=rewardbench2()).areas["overall"]
        assert change.difference.value == pytest.approx(-lost / 12) and change.significant == (lost == 6)
        assert change.p == 2.0 ** (1 - lost)


def test_a_section_may_be_significant_though_no_case_earned_more_or_less():
    """A right response beats wrong ones that are as plain or plainer before, and as fancy or fancier after."""
    cases = [Case(f"chat/{i}", user_turn(str(i)), tuple("abcdef"), (0, 1, 2), "chat") for i in range(6)]
    judged = [[Judgment(case.id, scores=given) for case in cases] for given in ((1, 2, 3, 0, 1, 2), (3, 2, 1, 2, 1, 0))]
    found = compare(rm_bench(), cases, ("before", judged[0]), ("after", judged[1]))
    assert not found.flips and found.areas["overall"].difference.value == 0 and found.areas["overall"].p == 1
    assert found.areas["hard"].difference.value == 1 and found.areas["hard"].p == 2**-5
    assert found.areas["hard"].significant and found.areas["easy"].significant


def test_the_items_that_are_needed_depend_on_the_weights_of_sections():
    """Of 200 items three of the section Math are lost, or three of eight beside it."""

    def needed(**sizes: int) -> int | None:
        names = [(subset, i) for subset, size in sizes.items() for i in range(size)]
        cases = [Case(f"{s}/{i}", user_turn(f"{s} {i}"), ("good", "bad"), (0,), s) for s, i in names]
        before = [Judgment(case.id, (1.0, 0.5)) for case in cases]
        after = [Judgment(case.id, (float(index >= 3), 0.5)) for index, case in enumerate(cases)]
        comparison = compare(rewardbench2(), cases, ("before", before), ("after", after))
        assert f"takes about {comparison.needed:,} items" in verdict(comparison)
        return comparison.needed

    # δ = s = 0.015: (1.959964 √0.015 + 0.841621 √(0.015 - 0.000225))² / 0.000225 = 522, as the samples vary
    assert needed(Math=200) == pytest.approx(522, rel=0.1)
    # δ = 3 / 16, and Var + δ² / C = 3 / 16² in all: 200 · 0.0117 = 2.34 takes the place of s
    assert needed(Factuality=8, Math=192) == pytest.approx(200 * 2.8016**2 / 3, rel=0.25)
    assert compared({"a": 0}).needed is None


def test_without_an_overall_figure_the_verdict_says_so():
    found = compared({"Factuality": 6, "Math": 0}, silent="Math", suite=rewardbench2())
    assert math.isnan(found.areas["overall"].p) and found.areas["Factuality"].significant
    assert verdict(found).startswith("after and before cannot be compared overall") and "nan" not in markdown(found)


def test_a_rule_for_the_cases_that_name_no_subset_is_checked():
    cases = [Case(str(i), user_turn(str(i)), ("good", "bad")) for i in range(8)]
    before = [Judgment(case.id, (1.0, 0.0)) for case in cases]
    after = [Judgment(cases[0].id, abstained="too long"), *before[1:]]
    found = compare(pairs(), cases, ("before", before), ("after", after))
    assert found.unscored == {"overall": 1, "subset:all": 1}
    assert "all: after abstained from 1 of the cases" in broken_rules([{"area": "all", "max_drop": 0.1}], found)[0]
    assert not broken_rules([{"area": "all", "max_drop": 0.1, "max_unscored": 1}], found)
