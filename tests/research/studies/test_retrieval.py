import json
import math

import numpy as np
import pytest
from rewardlab.judges.retrieval.sources import example_text
from rewardlab.judges.types import Case
from rewardlab.research.studies.retrieval import retrieval
from rewardlab.research.studies.retrieval.checks import NONE, ChecksArm, learned_checks
from rewardlab.research.studies.retrieval.encoders import FACETS, Training
from rewardlab.research.studies.retrieval.health import FILE, THEMES, _prompt, read_prompts, split, training_pairs
from rewardlab.research.studies.retrieval.metrics import mean_reciprocal_rank, precision_at, ranks, recall_at
from rewardlab.rm.types import user_turn

BRIEF = Training(steps=1, batch=4, hidden=16, width=4, max_length=32)


def example(better: str, other: str, number: int = 1) -> str:
    return example_text(Case("e", user_turn("Help me."), (better, other)), number)


def test_a_check_is_learned_where_it_separates_the_better_answers_twice():
    sourced, bare = "Source: the county handbook.", "Water helps the roots."
    assert learned_checks(example(sourced, bare)) == []
    twice = "\n\n".join([example(sourced, bare, 1), example(sourced, f"{bare} Rain.", 2)])
    assert learned_checks(twice) == ["source"]
    against = "\n\n".join([twice, example(bare, sourced, 3)])
    assert learned_checks(against) == [] and learned_checks(against, least=1) == ["source"]
    # what must not be there is learned from the answers that have it
    hedged = "\n\n".join(example(bare, "Perhaps it will work.", number) for number in (1, 2))
    assert learned_checks(hedged) == ["hedging"] and learned_checks("") == []


@pytest.mark.parametrize("arm", [FACETS, "TF-IDF", "random", "oracle", NONE])
def test_an_arm_of_the_world_is_measured(arm, tmp_path):
    result = ChecksArm(arm, 0, BRIEF, collection=40, cases=24).work(tmp_path)
    assert {*result} == {"rubrics", "examples", "shared demands"}
    assert all(0 <= value <= 1 for value in result.values())
    assert arm != "oracle" or result["shared demands"] == 1


def test_a_rubric_has_no_criterion_of_the_theme():
    criteria = [
        {"criterion": "Names the dose.", "points": 5, "tags": ["level:example", "axis:accuracy"]},
        {"criterion": "Hedges.", "points": 5, "tags": ["level:cluster", "cluster:hedging_no-uncertainty_hedges"]},
    ]
    prompt = _prompt({"prompt": [{"role": "user", "content": "How much?"}], "rubrics": criteria})
    assert prompt == ("user: How much?", "Names the dose.", "hedging")
    assert _prompt({"prompt": "x", "rubrics": criteria[:1]}).theme == ""


def test_the_shared_prompts_have_one_theme_at_most_and_splits_do_not_overlap(shared_data):
    prompts = read_prompts(str(shared_data / FILE))
    assert len(prompts) == 482 and {prompt.theme for prompt in prompts} == {"", *THEMES}
    train, held_out = split(prompts, 0, 100)
    assert len(train) == 382 and len(held_out) == 100 and not {*train} & {*held_out}
    questions, cases = training_pairs(train, 0)
    known = {prompt.text for prompt in held_out} | {prompt.rubric for prompt in held_out}
    texts = {text for pair in (*questions, *cases) for text in (pair.first, pair.second)}
    assert not known & texts
    assert sum(prompt.theme == "" for prompt in prompts) == 116


@pytest.mark.slow
def test_the_study_runs_on_a_part(shared_data, tmp_path):
    study = retrieval(shared_data, tmp_path, workers=1, rows=48)
    assert "2 seeds are counted" in study.text and {*study.figures} == {"effects"}
    facts = json.loads(json.dumps(study.facts))
    assert len(facts["values"]["recall@10"]["facets"]) == 2


def test_metrics_by_hand():
    scores = np.array([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.3, 0.2, 0.1]])
    rank = ranks(scores, np.array([0, 1, 2]))
    assert rank.tolist() == [1, 2, 3]  # the tie of the second counts against it
    assert recall_at(rank, 1) == pytest.approx(1 / 3) and recall_at(rank, 2) == pytest.approx(2 / 3)
    assert mean_reciprocal_rank(rank) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_neighbours_of_the_same_group_by_hand():
    groups = ["x", "x", "y", "", "y"]
    scores = np.array(
        [
            [9.0, 0.2, 0.1, 8.0, 0.0],  # its nearest other with a group is the second text: right
            [0.2, 9.0, 0.3, 8.0, 0.1],  # the third: wrong
            [0.1, 0.3, 9.0, 8.0, 0.2],  # the second: wrong
            [8.0, 8.0, 8.0, 9.0, 8.0],  # has no group: not asked
            [0.0, 0.1, 0.2, 8.0, 9.0],  # the third: right
        ]
    )
    assert precision_at(scores, groups, 1) == pytest.approx(0.5)
    assert precision_at(scores, groups, 3) == pytest.approx(1 / 3)
    # each of the four has one other of its group among three others; none is its own neighbour
    assert precision_at(scores, groups, 4) == precision_at(scores, groups, 9) == pytest.approx(1 / 3)
    assert precision_at(np.eye(3), ["a", "b", "c"], 5) == 0.0
    assert math.isnan(precision_at(np.eye(2), ["a", ""], 1))
