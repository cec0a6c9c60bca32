from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.types import Cycle, Rollout
from rewardlab.research.studies._design import paired_differences, read_claims
from rewardlab.research.studies.r2m_online import GOLD_AT_KL, LABELS, Plan, runs, values_of
from rewardlab.research.studies.r2m_online.report import curves_figure
from rewardlab.rm.types import Example

N = 8
PLAN = Plan.short(0, 8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("r2m_online")


def run_of(arm: str):
    return PLAN.runs(0)[f"{runs.LEVEL_75}: {arm}"]


def source_of(arm: str, cache, **changes):
    run = replace(run_of(arm), **changes)
    return run.source(run.proxy.base.load(cache), run.proxy.load(cache))


def examples() -> list[Example]:
    prompt = garden.questions()[0]
    return [Example(prompt, draft.completion) for draft in garden.supervised_examples(N, seed=3)]


def states(seed: int) -> list[torch.Tensor]:
    return [*torch.randn(N, 5, 64, generator=torch.Generator().manual_seed(seed)).bfloat16()]


def learn(source, given: list[Example], seed: int = 1, groups: int = 1) -> None:
    group, mask = torch.arange(N) // (N // groups), torch.ones(N, 3, dtype=torch.bool)
    zeros = torch.zeros(N, 3)
    source.learn(Cycle(given, Rollout(group, mask, mask[:, 0]), torch.zeros(N), states(seed), zeros))


def test_with_a_learning_rate_of_0_r2m_orders_completions_as_the_frozen_proxy_does(cache):
    given = examples()
    still, moved, frozen = (
        source_of(runs.R2M, cache, head_rate=0.0, rounds=1),
        source_of(runs.R2M, cache, rounds=1),
        source_of(runs.FROZEN, cache),
    )
    for source in (still, moved, frozen):
        source.rate(given, states(0))
        learn(source, given)
    expected, after = frozen.rate(given, states(2)), still.rate(given, states(2))
    np.testing.assert_allclose(after, 0.6 * expected, rtol=1e-5)  # ω = 0.6 and W_o = 0: the scale alone
    assert not np.allclose(moved.rate(given, states(2)), 0.6 * expected, rtol=1e-3)


def test_label_accuracy_is_the_share_of_extreme_pairs_in_the_order_of_gold(cache, monkeypatch):
    given = examples()
    frozen = source_of(runs.FROZEN, cache)
    rewards = torch.from_numpy(frozen.rate(given, states(0))[:, 0])
    best, worst = rewards[:4].argmax(), rewards[:4].argmin()
    gold = np.zeros((N, 1))
    gold[best] = 1.0  # the first group's label is right
    gold[4 + int(rewards[4:].argmin())] = 1.0  # the second group's is wrong
    monkeypatch.setattr(garden, "gold", lambda: SimpleNamespace(rate=lambda examples: gold))
    learn(frozen, given, groups=2)
    assert frozen.label_accuracy == [0.5]
    assert best != worst


def test_gold_labels_are_right_and_random_ones_are_coins(cache):
    result = run_of(runs.GOLD).result(cache)
    assert result["label_accuracy"].tolist() == [1.0, 1.0]
    labels = [runs.random_labeller(0)([], ("", "")) for _ in range(3)]
    assert labels[0] == labels[1] == labels[2]  # a seed determines them
    label = runs.random_labeller(1)
    assert np.mean([label([], ("", "")) for _ in range(1000)]) == pytest.approx(0.5, abs=0.05)


def test_the_reading_is_linear_between_the_last_policies_and_never_beyond_them():
    below, above = {"kl": 5.0, "gold": 1.0}, {"kl": 7.0, "gold": 3.0}
    assert runs.read_at([below, above], 5.5) == (5.5, 1.5)
    assert runs.read_at([above, below], 5.5) == (5.5, 1.5)
    assert runs.read_at([below, above], 9.0) == (7.0, 3.0)
    assert runs.read_at([below, above], 4.0) == (5.0, 1.0)


def made_up(gold: float, accuracy: list[float]) -> dict[str, np.ndarray]:
    curves = {"step": np.array([0, 2]), "kl": np.array([0.0, 6.5]), "gold": np.array([0.0, gold])}
    return curves | {"read_gold": np.array(gold), "read_kl": np.array(6.0), "label_accuracy": np.array(accuracy)}


def test_values_are_gold_at_the_reading_and_mean_label_accuracy_by_proxy_and_for_both():
    names = Plan((0,)).runs(0)
    results = {name: [made_up(1.0 + index, [1.0, 0.5]), made_up(0.0, [1.0])] for index, name in enumerate(names)}
    values = values_of(results)
    assert values[GOLD_AT_KL][f"{runs.LEVEL_75}: {runs.FROZEN}"].tolist() == [1.0, 0.0]
    other = 1.0 + [*names].index(f"{runs.LEVEL_85}: {runs.FROZEN}")
    assert values[GOLD_AT_KL][f"both: {runs.FROZEN}"].tolist() == [(1.0 + other) / 2, 0.0]
    assert values[LABELS][f"both: {runs.R2M}"].tolist() == [0.75, 1.0]
    assert len(paired_differences(read_claims("r2m_online"), values)) == len(read_claims("r2m_online"))
    gold, labels = curves_figure(results).axes[:2]
    assert len(gold.get_lines()) == len(labels.get_lines()) == len(runs.ARMS)
