import numpy as np
import pytest
from rewardlab.judges.cdrrm.generator import generate, rule_with
from rewardlab.judges.cdrrm.synthesise import Sides, sides, synthesise
from rewardlab.research.studies.cdrrm import cdrrm
from rewardlab.research.studies.cdrrm.arms import BLIND, OTHER_PROMPT, Asked, Corpus, Judged, Simulated
from rewardlab.research.studies.cdrrm.claims import share
from rewardlab.research.studies.cdrrm.learnt_rubrics import LearntGenerator, as_shown
from rewardlab.research.studies.cdrrm.measures import length_slope, measures
from rewardlab.tests.stand_ins.simulated_judge import SimulatedJudge, rubric_of
from rewardlab.tests.stand_ins.simulated_teacher import SimulatedTeacher
from rewardlab.tests.stand_ins.verifiable_prompts import null_pairs, pairs

NULLS = 2000


def missed_check(pair):
    """The rubric of one rule that an oracle would write."""
    return rubric_of([pair.subset])


@pytest.fixture(scope="module")
def learnt() -> LearntGenerator:
    """Trained on 400 oracle rubrics, both orders."""
    made = pairs(400, 5)
    shown = [each for one in map(sides, made) for each in (one, one.swapped())]
    return LearntGenerator([as_shown(one) for one in shown], [missed_check(one) for one in made for _ in range(2)])


@pytest.fixture(scope="module")
def leaky(tmp_path_factory) -> LearntGenerator:
    """Trained as the released code does: the preferred answer is always A, and the teacher finds reasons for A."""
    return Corpus(5, 400, filtered=False, leaky=True).learnt(tmp_path_factory.mktemp("leaky"), 400)


def share_of(judge, shown, rubrics, both_orders=True):
    rulings = rule_with(judge, shown, rubrics)
    labels = ["AB".index(one.preferred) for one in shown]
    won = [
        [np.nan if place is None else float(place == label) for place in (one.first, one.second)]
        for one, label in zip(rulings, labels, strict=True)
    ]
    return share([np.array(won)[:, : 1 + both_orders]])


@pytest.mark.parametrize("pipeline", ["contrast", "learnt"])
def test_the_label_of_a_null_pair_is_recovered_by_chance_alone(pipeline, learnt):
    shown = [sides(one) for one in null_pairs(NULLS, 0)]
    if pipeline == "contrast":
        rubrics = [one.rubric for one in synthesise(SimulatedTeacher(), shown)]
    else:
        rubrics = generate(learnt, shown)
    found = share_of(SimulatedJudge(), shown, rubrics)
    assert found.low <= 0.5 <= found.high
    assert found.high - found.low < 0.05


def test_a_winner_that_is_always_a_is_detected_and_the_leak_lies_in_the_slots_not_in_the_pairs(leaky):
    always_a = [Sides(one.prompt, one.chosen, one.rejected, "A") for one in null_pairs(NULLS, 0)]
    by_turns = [sides(one) for one in null_pairs(NULLS, 0)]
    leak, none = (
        share_of(SimulatedJudge(BLIND), shown, generate(leaky, shown), both_orders=False)
        for shown in (always_a, by_turns)
    )
    assert leak.low > 0.5 and none.low <= 0.5 <= none.high


def test_another_prompts_rubric_is_worth_a_coin(tmp_path):
    """Chance is ½: the judge has no taste of its own, and the rubric demands nothing that the prompt does."""
    asked = Asked(seed=0, items=80)
    own, foreign = (
        Judged(Simulated(arm, asked), asked, BLIND).result(tmp_path)["won"] for arm in ("contrast", OTHER_PROMPT)
    )
    by_prompt = foreign.reshape(80, -1).mean(1)
    half = 1.96 * by_prompt.std(ddof=1) / 80**0.5  # nine comparisons of one prompt are not independent
    assert abs(by_prompt.mean() - 0.5) < half
    assert own.mean() > 0.75


def test_levels_slots_and_orders_by_hand():
    won = np.zeros((9, 2))
    won[[1, 2]] = 1.0, 0.0  # hard: two of three cells, in one order
    won[[0, 4, 8]] = 1.0  # normal: all
    won[3] = np.nan  # easy: one cell unread, the other two lost
    slot = np.full((9, 2), 0.0)
    slot[[0, 4], 0] = 1.0
    found = measures(won, slot, np.zeros(9), rules=2.0, without=0.25)
    assert found.hard == pytest.approx(2 / 6) and found.normal == 1.0 and found.easy == 0.0
    assert found.accuracy == pytest.approx((2 / 6 + 1) / 3)
    assert found.both_hard == 0.0 and found.coverage == pytest.approx(16 / 18)
    assert found.consistent == pytest.approx(6 / 8) and found.first_slot == pytest.approx(2 / 6)
    assert (found.rules, found.without) == (2.0, 0.25)


def test_the_slope_is_the_log_odds_of_a_doubling():
    # at Δ = 1 three of four are won, at Δ = -1 one of four: odds 3 and 1/3, slope ln 3
    won = np.array([1, 1, 1, 0, 1, 0, 0, 0], float)[:, None]
    found = length_slope(won, np.array([1.0] * 4 + [-1.0] * 4))
    assert found == pytest.approx(np.log(3), abs=0.02)
    assert np.isnan(length_slope(np.ones((4, 1)), np.arange(4.0)))


@pytest.mark.slow
def test_a_short_run_tells_every_part_and_is_found_again(tmp_path):
    study = cdrrm(tmp_path, workers=1, rows=6, log=lambda _: None)
    for title in ("middle point", "sweep over", "taken away", "Leaks", "The filter", "Limits", "simulated"):
        assert title in study.text
    claims = study.facts["claims"]
    assert {one["claim"][0] for one in claims} == {*"1234567"}
    assert all(isinstance(one["holds"], bool) for one in claims)
    assert "accuracy" in study.figures
    again: list[str] = []
    assert cdrrm(tmp_path, workers=1, rows=6, log=again.append).text == study.text
    assert not any(": " in line for line in again)  # nothing is done anew
