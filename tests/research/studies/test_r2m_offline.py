"""research/studies/r2m_offline"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.training.forward import states_of
from rewardlab.research.studies._design import paired_differences, read_claims
from rewardlab.research.studies._runs.proxies import LEVELS, Proxy, StartSamples, weights
from rewardlab.research.studies.r2m_offline import SETTINGS, Plan, r2m_offline
from rewardlab.research.studies.r2m_offline.pools import GROUP, KL, R2MDrift, private, private_direction, sample_pool
from rewardlab.research.studies.r2m_offline.refits import (
    ACCURACY,
    ARMS,
    BEST,
    GARDEN,
    LABELS,
    SIZES,
    Arm,
    R2MRefits,
    best_gold,
    head_rewards,
    initial_std,
    label_accuracy,
    label_pairs,
    pair_accuracy,
    read_pool,
    refit,
)
from rewardlab.research.studies.r2m_offline.report import first_helpful, gain
from rewardlab.research.worlds.guides import Base
from rewardlab.research.worlds.policies import untaught
from rewardlab.research.worlds.small_policies import sample_completions
from rewardlab.research.worlds.small_policies.sampling import policy_encoder
from rewardlab.rm.losses.grebt import extremes
from rewardlab.rm.models.r2m import R2MHead, R2MRewardModel, linear_head, reward_tokens


class UntaughtProxy(Proxy):
    """A proxy with an untrained head, whose accuracy is not measured."""

    def work(self, cache):
        return weights(untaught(self.base.load(cache), self.seed))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A start policy that learned next to nothing, and a proxy that learned nothing."""
    cache = tmp_path_factory.mktemp("r2m")
    drift = R2MDrift(UntaughtProxy(StartSamples(Base(0, texts=200, steps=5)), LEVELS["70 %"]), cycles=2, asked=16)
    return drift, cache


@pytest.fixture(scope="module")
def pool(models):
    drift, cache = models
    writer, start = drift.policies(cache)[1], drift.proxy.base.load(cache)
    prompts = [prompt for prompt in garden.prompts(32, seed=0) for _ in range(GROUP)]
    return sample_pool(writer, start, drift.proxy.load(cache), prompts, seed=1)


def head_of(models, **settings):
    drift, cache = models
    return R2MHead(linear_head(drift.proxy.load(cache)), 64, 64, **settings)


# ---- pools ----


def test_checkpoints_are_the_last_policy_where_their_kl_is_not_reached(models):
    drift, cache = models
    result = drift.result(cache)
    assert result[f"{KL} 0"] == result[f"{KL} 1"] < 3
    start, first, second = drift.policies(cache)
    weights = [dict(policy.named_parameters())["model.norm.weight"] for policy in (start, first, second)]
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[1], weights[2])


def test_a_checkpoint_is_taken_as_soon_as_its_kl_is_reached(models):
    drift, cache = models
    result = replace(drift, kls=(-1.0,)).work(cache)
    assert torch.equal(torch.from_numpy(result["0 model.norm.weight"]), drift.proxy.base.load(cache).model.norm.weight)


def test_shuffled_states_are_those_of_the_previous_completion_of_the_group(pool):
    shuffled, mask = pool.states("shuffled", 0), pool.state_mask("shuffled")
    assert torch.equal(shuffled[1:GROUP], pool.current[: GROUP - 1])
    assert torch.equal(shuffled[GROUP], pool.current[2 * GROUP - 1])
    assert torch.equal(mask[GROUP], pool.mask[2 * GROUP - 1])


def test_noise_has_the_mean_and_the_deviation_of_every_dimension(pool):
    noise = pool.states("noise", 3)[pool.mask]
    states = pool.current[pool.mask]
    error = states.std(0) / len(states) ** 0.5
    assert ((noise.mean(0) - states.mean(0)).abs() < 5 * error).all()
    torch.testing.assert_close(noise.std(0), states.std(0), rtol=0.1, atol=0)


def readable(features: torch.Tensor, z: torch.Tensor) -> float:
    """Return the held-out accuracy of a least-squares classifier of z, trained on every second row."""
    columns = torch.cat([features, torch.ones(len(features), 1)], 1)
    weights = torch.linalg.lstsq(columns[::2], z[::2, None], rcond=None, driver="gelsd").solution
    return ((columns[1::2] @ weights)[:, 0] * z[1::2] > 0).double().mean().item()


def test_the_private_sign_is_in_the_writers_states_and_not_in_the_text(models):
    drift, cache = models
    start = drift.proxy.base.load(cache)
    prompts = [prompt for prompt in garden.prompts(128, seed=0) for _ in range(GROUP)]
    text = sample_pool(start, start, drift.proxy.load(cache), prompts, seed=1)
    signed = private(text, share=1.0, strength=2.0, seed=5)
    z = torch.sign(signed.gold - text.gold).float()
    assert abs(z.mean()) < 0.15
    # every masked position gives z exactly, and nothing else of the writer's states has changed
    u = private_direction(64)
    expected = (2 * z[:, None]).expand(signed.mask.shape)
    torch.testing.assert_close((signed.current @ u)[signed.mask], expected[signed.mask])
    rest = [states - (states @ u)[..., None] * u for states in (signed.current, text.current)]
    torch.testing.assert_close(*rest, atol=1e-4, rtol=0)
    # what the start policy and the proxy read of the text is the same, and does not predict z
    assert torch.equal(signed.stale, text.stale)
    assert torch.equal(signed.tokens, text.tokens)
    mask, length = signed.mask[..., None], signed.mask.sum(1, keepdim=True)
    means = [(states * mask).sum(1) / length for states in (signed.current, signed.stale)]
    assert readable(means[0], z) == 1.0
    for blind in (means[1], signed.tokens, text.gold[:, None].float()):
        assert readable(blind, z) == pytest.approx(0.5, abs=0.08)  # 512 rows, one standard error is .022


# ---- refits ----


def test_rewards_are_those_of_the_reward_model(models):
    """The padded attention and the tokens of the fast body against R2MRewardModel on texts."""
    drift, cache = models
    start, body = drift.proxy.base.load(cache), drift.proxy.load(cache)
    prompts = [prompt for prompt in garden.prompts(2, seed=0) for _ in range(GROUP)]
    pool = sample_pool(start, start, body, prompts, seed=1)
    head = head_of(models, seed=3)
    given = read_pool(pool, "own", 0)
    examples = sample_completions(start, prompts, seed=1).examples
    torch.testing.assert_close(given.tokens, reward_tokens(body, examples).detach(), atol=1e-4, rtol=1e-4)
    finished = [
        row for row, example in enumerate(examples) if len(example.completion.split()) < 30 and pool.mask[row].any()
    ]
    states = states_of(start, policy_encoder(), [examples[row] for row in finished])
    model = R2MRewardModel(body, head, omega=0.6)
    expected = model.rewards(given.tokens[finished], states)[:, 0]
    same = [len(state) == int(pool.mask[row].sum()) for row, state in zip(finished, states, strict=True)]
    assert any(same)
    torch.testing.assert_close(head_rewards(head, given)[finished][same], expected[same], atol=2e-2, rtol=2e-2)


def test_without_states_the_reward_is_the_proxys(models, pool):
    head = head_of(models)
    scores = pool.tokens @ head.score.weight[0]
    torch.testing.assert_close(head_rewards(head, read_pool(pool, "head only", 0)), scores)


def test_an_attention_from_zero_keeps_the_order(models, pool):
    head = head_of(models, zero_out=True)
    frozen, given = (head_rewards(head, read_pool(pool, states, 0)) for states in ("frozen", "own"))
    torch.testing.assert_close(given, 0.6 * frozen)


def test_labels_agree_with_gold_with_their_probability_and_are_nested():
    generator = torch.Generator().manual_seed(0)
    rewards, gold = (torch.randn(4000, GROUP, generator=generator) for _ in range(2))
    pairs = {name: label_pairs(rewards, gold, right, seed=1) for name, right in LABELS.items()}
    for name, right in LABELS.items():
        expected = 0.5 if right is None else right
        assert label_accuracy(pairs[name], gold) == pytest.approx(expected, abs=0.04)
    assert pairs["gold labels"].wins.mean() == pytest.approx(0.5, abs=0.04)
    wrong = [pairs[name].wins != pairs["gold labels"].wins for name in ("85 % right", "95 % right")]
    assert (wrong[0] | ~wrong[1]).all()
    assert torch.equal(pairs["own labels"].wins, extremes(rewards).wins)


def test_gold_ties_have_no_label():
    pairs = label_pairs(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 2.0], [1.0, 3.0]]), 1.0, seed=0)
    assert pairs.wins.isnan().tolist() == [True, False]
    assert pairs.wins[1] == 0.0


def test_one_step_moves_a_weight_by_at_most_the_papers_movement(models, pool):
    head, given = head_of(models, zero_out=True), read_pool(pool, "own", 0)
    before = head.W_o.detach().clone()
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.006 * initial_std(head), weight_decay=0.0)
    refit(head, optimizer, given, extremes(head_rewards(head, given).detach().unflatten(0, (-1, GROUP))), 1)
    moved = (head.W_o - before).abs().max().item()
    assert initial_std(head) == pytest.approx(0.125)
    assert 0.9 * 0.00075 < moved < 0.00075 * 1.001


def test_a_refit_on_labels_of_the_private_sign_learns_it(models, pool):
    signed = private(pool, share=10.0, strength=2.0, seed=5)
    gold = signed.gold.unflatten(0, (-1, GROUP))
    accuracies = {}
    for states in ("own", "stale"):
        head, given = head_of(models, zero_out=True), read_pool(signed, states, 0)
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.02, weight_decay=0.0)
        rewards = head_rewards(head, given).detach().unflatten(0, (-1, GROUP))
        refit(head, optimizer, given, label_pairs(rewards, gold, 1.0, seed=0), 40)
        accuracies[states] = pair_accuracy(head_rewards(head, given).detach().unflatten(0, (-1, GROUP)), gold)
    assert accuracies["own"] > accuracies["stale"] + 0.05


# ---- measures ----


def test_accuracy_leaves_out_golds_ties_and_counts_the_models_as_errors():
    rewards = torch.zeros(1, GROUP)
    rewards[0, 0] = 1.0
    gold = torch.zeros(1, GROUP)
    gold[0, :2] = torch.tensor([2.0, 1.0])
    # 0 above the seven others: right; 1 above six ties: wrong
    assert pair_accuracy(rewards, gold) == pytest.approx(7 / 13)
    assert best_gold(rewards, gold) == 2.0


def test_the_label_quality_that_helps_is_the_lowest_with_all_higher_ones_helping():
    base = np.linspace(0.5, 0.6, 5)
    gains = dict(
        zip((name for name, right in LABELS.items() if right), (0.1, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4), strict=True)
    )
    accuracy = {f"{GARDEN}: frozen": base} | {
        f"{GARDEN}: {Arm('own', name, '1 step')}": base + value + np.array([0, 0.001, -0.001, 0, 0])
        for name, value in gains.items()
    }
    assert first_helpful(accuracy, "own", "1 step") == "75 % right"
    assert gain(accuracy, Arm("own", "gold labels", "1 step")).value == pytest.approx(0.4)


# ---- the study ----


def test_every_claim_is_about_a_metric_and_arms_of_the_study():
    arms = [f"{name}: {arm}" for name, changes in SETTINGS.items() for arm in changes.get("arms", ARMS)]
    results = {
        metric: dict.fromkeys(arms, np.zeros(2))
        for metric in ("pair accuracy", "gold of best of 8 (standard deviations)")
    }
    claims = read_claims("r2m_offline")
    assert len(paired_differences(claims, results)) == len(claims)
    assert {claim.family for claim in claims} == {"primary", "secondary", "controls"}


def test_the_full_plan_measures_enough_completions():
    assert Plan().completions >= 4096
    assert len(Plan().seeds) >= 20


def test_a_job_measures_every_arm_at_both_checkpoints(models):
    drift, cache = models
    arms = tuple(arm for arm in ARMS if arm.size != "10 steps" and arm.labels in ("", "gold labels"))
    result = R2MRefits(drift, prompts=2, asked=GROUP, unseen=2, arms=arms).work(cache)
    assert result[ACCURACY].shape == result[BEST].shape == (len(arms), 2)
    assert np.isfinite(result[ACCURACY]).all()


@pytest.mark.slow
def test_the_study_runs_on_a_part(tmp_path):
    study = r2m_offline(tmp_path, workers=1, rows=16)
    assert "A dry run" in study.text
    assert {*study.figures} == {"effects", "labels"}
    facts = json.loads(json.dumps(study.facts))
    assert len(facts["values"]["pair accuracy"]["garden: frozen"]) == 2
    assert {*SIZES} == {"1 step", "10 steps"}
