import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.research.studies._design import paired_differences, read_claims
from rewardlab.research.studies.wmss import ARMS, FIRST_ROUND, METRICS, Plan, values_of
from rewardlab.research.studies.wmss.runs import COOLED, Arm, Demonstrations, WeakDrivenArm, mixed_losses
from rewardlab.research.worlds.small_policies.supervised import rows_of_examples
from rewardlab.research.worlds.small_policies.trunk import completion_logits, layout_of
from rewardlab.rm.types import prompt_text
from torch.nn.functional import cross_entropy


@pytest.fixture(scope="module")
def models():
    return [causal_lm(tokenizer(), seed=seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def rows():
    return rows_of_examples(garden.supervised_examples(20, 0))


def test_every_arm_mixes_in_the_logits_of_its_weak_model(models, rows):
    layout = layout_of(rows)
    strong, weak = (completion_logits(model, layout).detach() for model in models)
    for name in ("previous", "start", "own"):
        mixed = mixed_losses(name, {name: models[1]})(strong, layout)
        expected = cross_entropy((strong + weak) / 2, layout.targets, reduction="none")
        torch.testing.assert_close(mixed, expected)
    scaled = mixed_losses("constant", {})(strong, layout)
    torch.testing.assert_close(scaled, cross_entropy(strong / 2, layout.targets, reduction="none"))


def test_random_weights_are_the_weights_in_another_order(models, rows):
    weights, shuffled, uniform = (
        WeakDrivenArm(Plan((0,)).saturated(0), Arm(sampling=sampling)).probabilities(*models, rows, 0)
        for sampling in ("entropy", "shuffled", "uniform")
    )
    assert not torch.equal(weights, shuffled)
    torch.testing.assert_close(weights.sort().values, shuffled.sort().values)
    torch.testing.assert_close(uniform, torch.full((20,), 0.05))
    assert weights.sum().item() == pytest.approx(1)


def test_better_data_are_the_best_of_the_same_drafts():
    best, better, test = (
        Demonstrations(texts, drafts).examples(3, split)
        for texts, drafts, split in ((1200, 1, "train"), (300, 4, "train"), (300, 4, "test"))
    )
    golds = [garden.gold().rate(examples)[:, 0].mean() for examples in (best, better)]
    assert golds[1] > golds[0] + 0.5
    assert {(prompt_text(each.prompt), each.completion) for each in better} <= {
        (prompt_text(each.prompt), each.completion) for each in best
    }
    prompts = [{prompt_text(example.prompt) for example in examples} for examples in (better, test)]
    assert prompts[0] and prompts[1] and not prompts[0] & prompts[1]


def test_values_are_those_of_the_last_round_and_of_the_first():
    run = {name: np.array([1.0, 2.0, 3.0]) for name in METRICS} | {COOLED: np.array(9.0)}
    values = values_of({arm: [run, run] for arm in ARMS})
    assert values["gold (standard deviations)"]["WMSS"].tolist() == [3.0, 3.0]
    assert values["gold (standard deviations)"]["cross-entropy at temperature λ"].tolist() == [9.0, 9.0]
    assert values[FIRST_ROUND]["WMSS"].tolist() == [1.0, 1.0]
    assert paired_differences(read_claims("wmss"), values)["wmss_beats_cooler_sampling"].tolist() == [-6.0, -6.0]
