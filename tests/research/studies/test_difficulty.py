from itertools import product

import numpy as np
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.transforms.ha_dw import ha_dw
from rewardlab.policy.types import Rollout
from rewardlab.research.studies._design import paired_differences, read_claims
from rewardlab.research.studies.difficulty import Results, runs
from rewardlab.research.studies.difficulty.bias import METHODS, expected_advantages
from rewardlab.research.studies.difficulty.prompts import HARD, PassBars, band_of, verdicts
from rewardlab.research.studies.difficulty.runs import ARMS, VerdictRun, shuffled_ha_dw
from rewardlab.research.worlds.guides import Base
from rewardlab.rm.types import Example

P = np.array([0.05, 0.3, 0.8])


def rollout(rewards: torch.Tensor, group: int) -> Rollout:
    mask = torch.ones(len(rewards), 1, dtype=torch.bool)
    return Rollout(torch.arange(len(rewards)) // group, mask, mask[:, 0], total=rewards)


def test_dr_grpo_has_the_exact_advantages_times_a_constant_over_all_groups_and_not_over_mixed_ones():
    for size in (2, 4, 8):
        expected = expected_advantages(dr_grpo(), size, P)
        np.testing.assert_allclose(expected.right, (1 - 1 / size) * (1 - P))
        np.testing.assert_allclose(expected.wrong, -(1 - 1 / size) * P)
        assert expected.right_mixed[0] < 1 - P[0] and expected.right_mixed[2] > 1 - P[2]


def test_the_weight_is_that_of_the_exact_gradient():
    """All groups of three of a policy over three texts, of which the first is right: E[1/3 Σ A ∇ log π] = w(p) ∇p."""
    probability = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    scores = torch.eye(3, dtype=torch.float64) - probability  # ∇ log π of each text by the logits
    exact = probability[0] * scores[0]
    texts = torch.tensor([*product(range(3), repeat=3)])
    rewards = (texts == 0).double().flatten()
    for estimator, anchor in METHODS.values():
        advantages = estimator(rewards, rollout(rewards, 3))
        if anchor is not None:
            advantages = ha_dw().change({"anchors": [anchor]}, advantages, rollout(rewards, 3))[1]
        by_group = (advantages.view(27, 3, 1) * scores[texts]).mean(1)
        gradient = (probability[texts].prod(1)[:, None] * by_group).sum(0)
        weight = expected_advantages(estimator, 3, [0.2], anchor).weight[0]
        torch.testing.assert_close(gradient, weight * exact)


def test_a_verdict_is_right_where_gold_reaches_the_question_s_bar():
    first, second = garden.questions()[0], garden.questions()[4]
    examples = [Example(first, "roses petals"), Example(first, "roses"), Example(second, "roses")]
    bars = np.full(48, 1.2)
    bars[1] = 0.6
    assert verdicts(examples, bars).tolist() == [1.0, 0.0, 1.0]  # 0.6 of gold for each word of the topic


def test_shuffled_weights_are_those_of_ha_dw_in_another_order():
    rewards = torch.tensor([1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0], dtype=torch.float64)
    advantages = grpo()(rewards, rollout(rewards, 4))
    state, weighted = ha_dw().change({"anchors": [0.2]}, advantages, rollout(rewards, 4))
    after, shuffled = shuffled_ha_dw(3).change({"anchors": [0.2], "calls": 0}, advantages, rollout(rewards, 4))
    later = shuffled_ha_dw(3).change(after | {"anchors": [0.2]}, advantages, rollout(rewards, 4))[1]
    weights = [(values / advantages)[:8] for values in (weighted, shuffled, later)]
    assert after == {**state, "calls": 1} and not shuffled[8:].any()
    for drawn in weights[1:]:
        assert not torch.equal(drawn, weights[0])
        torch.testing.assert_close(drawn.sort().values, weights[0].sort().values)
    assert not torch.equal(weights[1], weights[2])


def test_values_are_those_of_the_end_and_half_of_the_cycles_is_an_arm_of_grpo():
    run = {"rates": np.array([[0.1, 0.2, 0.3, 0.4, 0.25], [0.2, 0.4, 0.5, 0.6, 0.45]])}
    values = Results([{"start": run["rates"][0] / 2}] * 2, {name: [run, run] for name in ARMS}).values()
    assert values[HARD]["GRPO, G = 4"].tolist() == [0.4, 0.4]
    assert values[HARD]["half of the cycles, G = 4"].tolist() == [0.2, 0.2]
    differences = paired_differences(read_claims("difficulty"), values)
    np.testing.assert_allclose(differences["more_cycles_help_8"], [0.2, 0.2])
    np.testing.assert_allclose(differences["training_helps_8"], [0.3, 0.3])


def test_a_run_is_measured_halfway_and_trains_on_its_prompts_only(tmp_path, monkeypatch):
    bars = PassBars(Base(0, steps=1, texts=64), samples=1, completions=6)
    asked = []
    monkeypatch.setattr(runs, "verdicts", lambda examples, bars: asked.extend(examples) or verdicts(examples, bars))
    sizes = {"batch": 16, "completions": 6}
    plain = VerdictRun(bars, ARMS["GRPO, G = 4"], cycles=2, **sizes).work(tmp_path)
    assert {band_of(example.prompt) for example in asked} & {HARD, "below .05"}
    asked.clear()
    easier = VerdictRun(bars, ARMS["GRPO without hard prompts, G = 4"], cycles=1, **sizes).work(tmp_path)
    assert len(asked) == 16 and {band_of(example.prompt) for example in asked} <= {"middle", "above .3"}
    weighted = VerdictRun(bars, ARMS["HA-DW, G = 4"], cycles=1, **sizes).work(tmp_path)
    assert plain["cycle"].tolist() == [1, 2] and easier["cycle"].tolist() == [1]
    assert np.isnan(plain["anchor"]).all() and weighted["anchor"][0] == weighted["right"][0]
