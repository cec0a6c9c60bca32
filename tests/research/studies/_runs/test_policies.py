"""On a part, that everything runs and adds up."""

import json

import numpy as np
import pytest
from rewardlab.benchmarks import garden
from rewardlab.research.studies._runs.policies import logprobs, split_prompts
from rewardlab.research.studies.overoptimisation import GOOD_ARMS, Results, criteria, overoptimisation
from rewardlab.research.worlds import policies
from rewardlab.research.worlds.guides import Base
from rewardlab.rm.types import prompt_text


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return Base(0, texts=500, steps=40).load(tmp_path_factory.mktemp("cache"))


def test_prompts_that_are_asked_are_not_trained_on_but_their_questions_are():
    seen, unseen = split_prompts()
    assert (len(seen), len(unseen)) == (144, 48)
    assert not {*map(prompt_text, seen)} & {*map(prompt_text, unseen)}
    assert {garden.topic_of(prompt_text(one)) for one in unseen} == {*garden.TOPICS}


def test_the_start_policys_log_probabilities_are_those_it_was_sampled_by(start):
    asked = garden.prompts(12, seed=0)
    said = policies.answered(start, asked, seed=0)
    sums = [one.base.sum() for one in said]
    np.testing.assert_allclose(logprobs(start, asked, said), sums, atol=1e-3)


@pytest.mark.long
def test_the_study_runs_on_a_part_and_finds_its_results_again(tmp_path):
    told = []
    found = overoptimisation(tmp_path, workers=1, rows=8, log=told.append)
    again = overoptimisation(tmp_path, workers=1, rows=8, log=told.append)
    assert found.text == again.text
    assert "2 of 2 results are in the cache" in told
    records = found.facts["records"]
    runs = {(one["arm"], one["seed"]) for one in records}
    assert len(runs) == 2 * (4 + 1 + 2 + 1) - 2  # best-of-n bears one name in both figures
    assert all(one["kl"] == pytest.approx(0, abs=1e-3) for one in records if one["step"] == 0)
    assert len(json.loads(json.dumps(found.facts))["must_hold"]) == 8


def test_a_claim_holds_only_as_it_was_made():
    """Made-up runs: gold rises by half a deviation at KL 5, in every seed a little differently."""
    rows = [
        {"arm": arm, "seed": seed, "step": step, "kl": 5.0 * step, "gold": (0.5 + 0.01 * seed) * step, "proxy": step}
        | {"gold_std": 1.0, "proxy_std": 1.0}
        for arm in GOOD_ARMS
        for seed in range(3)
        for step in (0, 1)
    ]
    weak = [
        {"arm": "GRPO, weak proxy, no KL", "seed": seed, "step": step, "kl": step, "gold": gold, "proxy": step}
        | {"gold_std": 1.0, "proxy_std": 1.0}
        for seed in range(3)
        for step, gold in enumerate([0.0, 1.0 + 0.1 * seed, 0.2])
    ]
    critic = [
        {"explained_variance_first": np.array(0.4 + 0.01 * n), "explained_variance_of_others": np.array(0.3)}
        for n in range(3)
    ]
    accuracies = {"weak": {"accuracy on held-out pairs": [0.65, 0.66, 0.71]}}
    found = [one.holds for one in criteria(Results(None, rows, weak, {"critic": critic}, accuracies))]
    assert found == [True, True, True, True, False, True, True, True]
    far = [one | {"kl": 3 * one["kl"]} for one in rows]
    assert not any(one.holds for one in criteria(Results(None, far, weak, {"critic": critic}, accuracies))[:4])
