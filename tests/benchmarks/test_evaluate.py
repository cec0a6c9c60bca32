import json

import numpy as np
import pytest
from rewardlab.benchmarks.baselines import Baseline, all_baselines, longest, random_guess, shortest, tfidf
from rewardlab.benchmarks.evaluate import RANDOM_ALIKE, evaluate, rotated_credits
from rewardlab.benchmarks.report import figure, markdown
from rewardlab.benchmarks.scorers import short_names
from rewardlab.benchmarks.statistics.cluster_bootstrap import cell_sums, cluster_draws, share_interval, weighted_mean
from rewardlab.benchmarks.suites.pairs import as_cases, pairs
from rewardlab.benchmarks.suites.rewardbench import SECTIONS, SIZES, rewardbench, section_scores
from rewardlab.benchmarks.suites.rewardbench2 import rewardbench2
from rewardlab.judges.kinds.reward_model import RewardScorer
from rewardlab.judges.types import Case, Judgment, strictly_best
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import PreferencePair, user_turn

from tests.benchmarks.published import published_cells


def case(name: str, best: int = 0, subset: str = "", cluster: str = "", answers=("aa", "b")) -> Case:
    return Case(name, user_turn(name), answers, (best,), subset, cluster or name)


def stored(name: str, scores: list, role: str = "model"):
    """A scorer with the scores given, or an abstention where there is None."""

    def judge(cases):
        return [
            Judgment(c.id, abstained="no verdict") if s is None else Judgment(c.id, scores=s)
            for c, s in zip(cases, scores, strict=True)
        ]

    scorer = Baseline(name, judge)
    scorer.role = role
    return scorer


def test_a_judgment_has_scores_or_a_reason_and_a_case_names_an_answer_that_it_has():
    for both_or_none in ({"scores": (1.0,), "abstained": "why"}, {}):
        with pytest.raises(ValueError, match="either scores or a reason"):
            Judgment("a", **both_or_none)
    with pytest.raises(ValueError, match="finite"):
        Judgment("a", scores=(float("nan"), 1.0))
    with pytest.raises(ValueError, match="is not within answers 0 to 1"):
        case("a", best=2)


def test_a_tie_is_wrong_and_the_best_must_be_strictly_above():
    assert strictly_best(case("a"), (1.0, 0.5)) == 1
    assert strictly_best(case("a"), (1.0, 1.0)) == 0
    assert strictly_best(case("a", best=1), (1.0, 2.0)) == 1
    assert strictly_best(Case("a", user_turn("a"), ("x", "y", "z"), (0, 1)), (3.0, 1.0, 2.0)) == 0


def test_abstentions_are_counted_and_bounded_and_never_scored():
    cases = [case(str(i)) for i in range(10)]
    scores = [(1.0, 0.0)] * 6 + [(0.0, 1.0)] + [(1.0, 1.0)] + [None] * 2
    report = evaluate(pairs(), cases, [stored("model", scores)]).report
    row = report.rows[0]
    assert (row.scored, row.ties, row.unscored) == (8, 1, 2)
    assert row.overall.value == pytest.approx(6 / 8)
    # 6 of 10 if both were wrong, 8 of 10 if both were right
    assert "2 of 10 cases unscored" in report.findings[0] and "overall would be 60.0 and 80.0" in report.findings[0]


def test_a_repeated_case_is_an_error_and_any_difference_of_prompts_makes_two_clusters():
    with pytest.raises(DataError, match="case id 'a' occurs twice"):
        evaluate(pairs(), [case("a"), case("a")], [longest()])
    assert evaluate(pairs(), [case("a"), case("a\0")], [longest()], samples=2).report.clusters == 2


def test_bounds_follow_the_authors_way_of_adding_up_and_a_section_rests_on_its_own_prompts():
    # Chat (100 cases, all right) and Safety (weights 100 to 300 by size): half of Safety's cases unscored
    cases = [case(f"c{i}", subset="alpacaeval-easy") for i in range(100)]
    cases += [case(f"s{i}", subset="refusals-dangerous") for i in range(100)]
    scores = [(1.0, 0.0)] * 100 + [(1.0, 0.0)] * 50 + [None] * 50
    report = evaluate(rewardbench(), cases, [stored("model", scores)], samples=50).report
    assert "50 of 200 cases unscored" in report.findings[0] and "overall would be 75.0 and 100.0" in report.findings[0]
    chat, safety = report.rows[0].sections["Chat"], report.rows[0].sections["Safety"]
    # Wilson for 100 of 100 and for the 50 of 50 that were scored: 1 / (1 + z²/n)
    assert chat.low == pytest.approx(1 / (1 + 1.959964**2 / 100), abs=1e-6)
    assert safety.low == pytest.approx(1 / (1 + 1.959964**2 / 50), abs=1e-6)


def test_pairs_without_a_preference_are_left_out_and_losing_ones_turned():
    made = [
        PreferencePair("a", user_turn("x"), "c", "r", "s"),
        PreferencePair("a", user_turn("x"), "c", "r", "s", {"overall": 0.0}),
        PreferencePair("b", user_turn("x"), "c", "r", "s", {"overall": 0.5}),
        PreferencePair("c", user_turn("x"), "c", "r", "s", {"helpful": 1.0}),
    ]
    cases, undecided = as_cases(made)
    assert [(c.id, c.best) for c in cases] == [("s/a", (0,)), ("s/a#2", (1,))] and undecided == 2
    assert [c.id for c in as_cases(made, "helpful")[0]] == ["s/c"]


def test_sections_by_hand_weigh_subsets_by_size_but_for_maths():
    # Safety of three subsets: (100 * 1 + 154 * 0.5 + 136 * 0) / 390
    scores = section_scores(
        published_cells({"refusals-dangerous": 1.0, "xstest-should-refuse": 0.5, "donotanswer": 0.0})
    )
    assert scores["Safety"] == pytest.approx(177 / 390)
    assert "Chat" not in scores and scores["overall"] == pytest.approx(177 / 390)
    assert sum(SIZES.values()) == 2985 and len(SIZES) == 23
    assert sum(SECTIONS["Reasoning"].values()) == 2 * 984


PUBLISHED = {
    "RM-R1-Qwen2.5-Instruct-32B.subsets.json": (95.25, 83.11, 91.89, 95.21),
    "beaver-7b-v1.0-cost.readme_example.json": (60.89, 44.96, 72.16, 46.68),
    "GPM-Gemma-2-9B.json": (93.58, 87.72, 92.30, 95.71),
    "GPM-Gemma-2-2B.json": (81.84, 72.81, 87.97, 84.42),
    "Better-PairRM.json": (95.53, 39.25, 82.03, 49.83),
}


def test_published_section_scores_follow_from_published_subsets(shared_data):
    for file in PUBLISHED:
        values = json.loads((shared_data / "known_answers" / "rewardbench_v1" / file).read_text())
        values = values.get("subsets", values)
        found = section_scores(published_cells({name: value for name, value in values.items() if name in SIZES}))
        for section, expected in zip(SECTIONS, PUBLISHED[file], strict=True):
            assert 100 * found[section] == pytest.approx(expected, abs=0.0051), file
    folder = shared_data / "known_answers" / "rewardbench_v1"
    subsets = json.loads((folder / "RM-R1-Qwen2.5-Instruct-32B.subsets.json").read_text())
    published = json.loads((folder / "RM-R1-Qwen2.5-Instruct-32B.sections.json").read_text())
    found = section_scores(published_cells({name: value for name, value in subsets.items() if name in SIZES}))
    for section in SECTIONS:
        assert found[section] == pytest.approx(published[section], abs=1e-4)
    assert found["overall"] == pytest.approx(published["avg_Result_each_section"], abs=1e-4)


def test_a_report_adds_up_as_the_official_formula(shared_data):
    suite = rewardbench()
    cases, notes = suite.cases([str(shared_data / "rewardbench_v1" / "filtered-00000-of-00001.parquet")])
    assert len(cases) == 2985 and all(note.startswith("Ignored columns") for note in notes)
    row = evaluate(suite, cases[::8], [longest()], samples=20).report.rows[0]
    expected = section_scores(published_cells({name: interval.value for name, interval in row.subsets.items()}))
    assert row.overall.value == pytest.approx(expected["overall"], abs=1e-12)
    assert {name: i.value for name, i in row.sections.items()} == pytest.approx(
        {name: expected[name] for name in SECTIONS}, abs=1e-12
    )


def test_other_data_are_not_taken_for_rewardbench_and_a_part_is_told(tmp_path):
    rows = [{"id": i, "prompt": f"p{i}", "chosen": "a", "rejected": "b", "subset": "hep-go"} for i in range(3)]
    path = tmp_path / "part.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    cases, notes = rewardbench().cases([str(path)])
    assert len(cases) == 3 and "hep-go 3 of 164" in notes[0]
    path.write_text(json.dumps(rows[0] | {"subset": "my-own"}))
    with pytest.raises(DataError, match="'my-own' is not one of RewardBench's 23.*--benchmark pairs"):
        rewardbench().cases([str(path)])


def test_length_nulls_by_hand():
    cases = [
        case("a", answers=("long answer", "x")),
        case("b", answers=("x", "long answer")),
        case("c", answers=("xx", "yy")),
    ]
    rows = {row.scorer: row for row in evaluate(pairs(), cases, [longest(), shortest()]).report.rows}
    assert rows["longest"].overall.value == rows["shortest"].overall.value == pytest.approx(1 / 3)
    assert rows["longest"].ties == 1


def test_the_random_null_depends_on_the_item_alone():
    cases = [case(str(i)) for i in range(800)]
    forward, backward = random_guess()(cases), random_guess()(cases[::-1])[::-1]
    assert [j.scores for j in forward] == [j.scores for j in backward]
    right = np.mean([j.scores[0] > j.scores[1] for j in forward])
    assert right == pytest.approx(0.5, abs=0.05)
    assert random_guess(1)(cases)[0].scores != forward[0].scores


def test_the_word_null_finds_words_that_give_the_benchmark_away_and_never_sees_its_own_prompt():
    random = np.random.default_rng(0)
    answers = [("sorry, I cannot " + "x" * random.integers(9), "sure " + "x" * random.integers(9)) for _ in range(60)]
    cases = [case(str(i), answers=pair) for i, pair in enumerate(answers)]
    assert evaluate(pairs(), cases, [tfidf()]).report.rows[0].overall.value == 1.0
    one_prompt = [Case(str(i), user_turn("same"), pair, (0,), "", "same") for i, pair in enumerate(answers)]
    assert evaluate(pairs(), one_prompt, [tfidf()]).report.rows[0].unscored == 60
    letters = [case(str(i), answers=("A", "B")) for i in range(20)]
    assert "share no word" in tfidf()(letters)[0].abstained


def test_cluster_means_and_weights_by_hand():
    draws = cluster_draws(np.array(["a", "a", "b", "c"]), samples=3)
    values, groups = np.array([[1.0, 9.0], [0.0, 7.0], [1.0, np.nan], [np.nan, 5.0]]), np.array([0, 0, 1, 1])
    observed, sampled = cell_sums(values, groups, ["g", "h"], ["x", "y"], draws)
    assert [observed.mean([name]) for name in "gh"] == [0.5, 1.0] and observed.mean() == pytest.approx(2 / 3)
    assert observed.mean(measure="y") == 7.0 and observed.mean(["h"], "y") == 5.0
    assert observed.mean_of({"g": 1.0, "h": 3.0}) == pytest.approx(0.875)
    assert sampled.total.shape == (3, 2, 2)
    for sample, counts in enumerate(draws.counts):  # the first column is x in g: clusters a, b, c drawn so often
        assert sampled.total[sample].tolist() == [[counts[0], 16 * counts[0]], [counts[1], 5 * counts[2]]]
    assert weighted_mean(np.array([np.nan, 0.2]), np.array([5.0, 1.0])) == pytest.approx(0.2)


def test_a_perfect_score_is_not_a_certainty_and_nothing_has_no_interval():
    # Wilson for 20 of 20: 1 / (1 + z²/20), z = 1.96
    low, high = share_interval(1.0, np.ones(10), 20)
    assert high == 1.0 and low == pytest.approx(1 / (1 + 1.959964**2 / 20), abs=1e-6)
    low, high = share_interval(0.0, np.zeros(10), 20)
    assert low == 0.0 and high == pytest.approx(1 - 1 / (1 + 1.959964**2 / 20), abs=1e-6)
    low, high = share_interval(0.5, np.full(10, 0.5), 20)  # one of two right at every prompt
    assert 0.5 - low == pytest.approx(high - 0.5) and high - low > 0.1
    assert np.isnan(share_interval(np.nan, np.full(10, np.nan), 0)).all()
    low, high = share_interval(1.005, np.array([1.0, 1.01]), 51)  # Ties of RewardBench 2 go up to 1.01
    assert low < 1 and high == 1.005


def test_the_interval_is_wilsons_with_as_many_items_as_the_variance_shows():
    # 0.8 with a standard deviation of 0.1 over 16 clusters, by a bootstrap whose variance lacks 16 / 15:
    # n = 0.16 / (0.01 · 16/15) = 15 items, t = 2.13145 (15 degrees of freedom), t²/n = 0.302872
    centre, half = 0.8 + 0.151436, 2.13145 * np.sqrt(0.16 / 15 + 0.302872 / 60)
    low, high = share_interval(0.8, np.array([0.7, 0.9]), 16)
    assert (low, high) == pytest.approx(((centre - half) / 1.302872, (centre + half) / 1.302872), abs=1e-5)


def test_the_interval_of_sections_of_unequal_size_is_not_that_of_their_prompts():
    """A small section without an error is not certain: its own interval counts for half of the overall figure."""
    subsets = ["Factuality"] * 10 + ["Math"] * 150
    cases = [case(str(i), subset=subset) for i, subset in enumerate(subsets)]
    right = stored("model", [(1.0, 0.0) if i % 4 or i < 10 else (0.0, 1.0) for i in range(160)])
    row = evaluate(rewardbench2(), cases, [right]).report.rows[0]
    small, large = row.subsets["Factuality"], row.subsets["Math"]
    assert small.value == 1.0 and row.overall.value == pytest.approx((small.value + large.value) / 2)
    below = np.hypot(small.value - small.low, large.value - large.low) / 2
    assert row.overall.value - row.overall.low == pytest.approx(below, rel=0.03)
    assert row.overall.high - row.overall.value == pytest.approx((large.high - large.value) / 2, rel=0.03)


def test_differences_are_paired():
    # right wherever the null is right, and in 30 more cases of 200: the difference is sure, though intervals overlap
    null = [(1.0, 0.0)] * 100 + [(0.0, 1.0)] * 100
    model = [(1.0, 0.0)] * 115 + [(0.0, 1.0)] * 85
    cases = [case(str(i)) for i in range(200)]
    report = evaluate(pairs(), cases, [stored("model", model), stored("null", null, "baseline")]).report
    rows = {row.scorer: row for row in report.rows}
    assert rows["model"].overall.low < rows["null"].overall.high
    difference = rows["model"].minus_baseline["null"]["overall"]
    assert difference.value == pytest.approx(0.075) and difference.low > 0 and difference.real


def test_a_difference_of_a_few_prompts_is_not_significant():
    for changed, real in [(3, False), (5, False), (6, True)]:
        cases = [case(str(i)) for i in range(changed)]
        scorers = [stored("model", [(1.0, 0.0)] * changed), stored("null", [(0.0, 1.0)] * changed, "baseline")]
        report = evaluate(pairs(), cases, scorers).report
        difference = report.rows[0].minus_baseline["null"]["overall"]
        assert difference == (1.0, 1.0 if real else 0.0, 1.0) and difference.real == real
        assert any("model is significantly better" in sentence for sentence in report.findings) == real


def test_the_report_is_the_same_to_the_last_byte_and_has_every_row():
    cases = [case(str(i), answers=("x" * i, "y" * 5), subset="a|b") for i in range(1, 20)]
    first, second = (evaluate(pairs(), cases, all_baselines()).report for _ in range(2))
    assert first == second and markdown(first) == markdown(second)
    text = markdown(first)
    assert "a\\|b" in text and all(row.scorer in text for row in first.rows)
    assert len(figure(first).axes) == 1


def test_scorers_are_called_by_the_last_part_of_their_path_where_it_is_theirs_alone():
    class Model:
        contract = ScoringContract(kind="x")

    scorers = [RewardScorer(name, Model()) for name in ("a/rm", "b/rm", "org/other", "pkg.mod:gold", "a/rm,b/other")]
    short_names(scorers)
    assert [scorer.name for scorer in scorers] == ["a/rm", "b/rm", "other", "gold", "rm,other"]
    with pytest.raises(UsageError, match="two scorers are called 'longest'"):
        evaluate(pairs(), [case("a")], [longest(), longest()])


class AskedTwice:
    """A judge of two responses that is asked in both orders, each time for the slot of the better one."""

    name, role, contract = "stub", "model", ""

    def __init__(self, slot):
        self.slot = slot

    def __call__(self, cases):
        return [self._judged(case) for case in cases]

    def _judged(self, case):
        better = [self.slot(case.answers), 1 - self.slot(case.answers[::-1])]
        return Judgment(case.id, scores=tuple(float(better.count(i)) for i in (0, 1)), orders=((0, 1), (1, 0)))


def test_a_judges_chance_has_its_ties_and_abstentions():
    cases = [case(str(i)) for i in range(5)]  # the first of two responses is right
    judgments = [Judgment(str(i), scores=scores) for i, scores in enumerate([(2, 0), (1, 1), (1, 1), (0, 2)])]
    credits = rotated_credits(pairs(), cases, [*judgments, Judgment("4", abstained="no verdict")])
    assert np.array_equal(credits[:, 0], [0.5, 0, 0, 0.5, np.nan], equal_nan=True)
    three = Case("t", user_turn("t"), ("a", "b", "c"), (1,))
    assert rotated_credits(pairs(), [three], [Judgment("t", scores=(0, 2, 1))])[0, 0] == pytest.approx(1 / 3)


def findings_about(judge: AskedTwice, cases: list[Case]) -> str:
    report = evaluate(pairs(), cases, [judge, random_guess()], samples=200).report
    row = report.rows[0]
    assert row.minus_baseline[RANDOM_ALIKE]["overall"].value == pytest.approx(
        row.overall.value - (row.scored - row.ties) / (2 * row.scored)
    )
    return next(finding for finding in report.findings if finding.startswith("overall: stub"))


def test_a_judge_is_compared_with_chance_asked_the_same_way():
    """A judge that answers at random in both orders is right in a quarter of the cases: flips are ties, and wrong."""
    random = np.random.default_rng(0)
    cases = [case(str(i), answers=(f"good {i}", f"bad {i}")) for i in range(400)]
    coins = AskedTwice(lambda answers: random.integers(2))
    finding = findings_about(coins, cases)
    assert f"not significantly different from {RANDOM_ALIKE}" in finding and " random (" not in finding
    first_place = AskedTwice(lambda answers: 0)
    assert f"not significantly different from {RANDOM_ALIKE} (+0.0 [+0.0, +0.0])" in findings_about(first_place, cases)
    sound = AskedTwice(lambda answers: int(answers[1].startswith("good")))
    finding = findings_about(sound, cases)
    assert finding.index("significantly better than") < finding.index(RANDOM_ALIKE) and "worse" not in finding
    inverted = AskedTwice(lambda answers: int(answers[1].startswith("bad")))
    finding = findings_about(inverted, cases)
    assert finding.index("significantly worse than") < finding.index(RANDOM_ALIKE)


def test_the_style_table_is_left_out_only_if_nobody_scored():
    for silent in [0, 1, 2]:
        cases = [case(f"c{i}", answers=("long text", "b" * i)) for i in range(1, 5)]
        models = [stored(name, [None if i < silent else (1.0, 0.0)] * 4) for i, name in enumerate(("a", "b"))]
        text = markdown(evaluate(pairs(), cases, models, samples=20).report)
        assert ("## Style" in text) == (silent < 2) and ("| a | – | 0 | – | – | – |" in text) == (silent == 1)
