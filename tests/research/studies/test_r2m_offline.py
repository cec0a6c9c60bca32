import json

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.step.forward import states_of
from rewardlab.research.studies._runs.proxies import LEVELS, Proxy, StartSamples, weights
from rewardlab.research.studies.r2m_offline import r2m_offline, refits
from rewardlab.research.studies.r2m_offline.pools import GROUP, KL, R2MDrift, private, private_direction, sample_pool
from rewardlab.research.studies.r2m_offline.report import first_helpful, gain
from rewardlab.research.worlds.guides import Base
from rewardlab.research.worlds.policies import untaught
from rewardlab.research.worlds.small_policies import sample_completions
from rewardlab.research.worlds.small_policies.sampling import policy_encoder
from rewardlab.rm.kinds.r2m.model import R2MHead, R2MRewardModel, linear_head
from rewardlab.rm.losses.grebt import extremes


class UntaughtProxy(Proxy):
    """A proxy with an untrained head, whose accuracy is not measured."""

    def work(self, cache):
        return weights(untaught(self.base.load(cache), self.seed))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A start policy that learned next to nothing, and a proxy that learned nothing."""
    base = StartSamples(Base(0, texts=200, steps=5))
    return R2MDrift(UntaughtProxy(base, LEVELS["70 %"]), cycles=2, asked=16), tmp_path_factory.mktemp("r2m")


@pytest.fixture(scope="module")
def pool(models):
    drift, cache = models
    writer, start = drift.policies(cache)[1], drift.proxy.base.load(cache)
    prompts = [prompt for prompt in garden.prompts(32, seed=0) for _ in range(GROUP)]
    return sample_pool(writer, start, drift.proxy.load(cache), prompts, seed=1)


def head_of(models, **settings):
    drift, cache = models
    return R2MHead(linear_head(drift.proxy.load(cache)), 64, 64, **settings)


def test_checkpoints_are_the_last_policy_where_their_kl_is_not_reached(models):
    drift, cache = models
    result = drift.result(cache)
    assert result[f"{KL} 0"] == result[f"{KL} 1"] < 3
    start, first, second = (dict(policy.named_parameters())["model.norm.weight"] for policy in drift.policies(cache))
    assert not torch.equal(start, first) and torch.equal(first, second)


def test_shuffled_states_are_those_of_the_previous_completion_of_the_group(pool):
    shuffled, mask = pool.states("shuffled", 0), pool.state_mask("shuffled")
    assert torch.equal(shuffled[1:GROUP], pool.current[: GROUP - 1])
    assert torch.equal(shuffled[GROUP], pool.current[2 * GROUP - 1])
    assert torch.equal(mask[GROUP], pool.mask[2 * GROUP - 1])


def readable(features: torch.Tensor, z: torch.Tensor) -> float:
    """Return the held-out accuracy of a least-squares classifier of z, trained on every second row."""
    columns = torch.cat([features, torch.ones(len(features), 1)], 1)
    fitted = torch.linalg.lstsq(columns[::2], z[::2, None], rcond=None, driver="gelsd").solution
    return ((columns[1::2] @ fitted)[:, 0] * z[1::2] > 0).double().mean().item()


def test_the_private_sign_is_in_the_writers_states_and_not_in_the_text(models):
    drift, cache = models
    start = drift.proxy.base.load(cache)
    prompts = [prompt for prompt in garden.prompts(128, seed=0) for _ in range(GROUP)]
    text = sample_pool(start, start, drift.proxy.load(cache), prompts, seed=1)
    signed = private(text, share=1.0, strength=2.0, seed=5)
    z = torch.sign(signed.gold - text.gold).float()
    assert abs(z.mean()) < 0.15
    # every masked position gives z exactly; the start policy and the proxy read the same text as before
    expected = (2 * z[:, None]).expand(signed.mask.shape)
    torch.testing.assert_close((signed.current @ private_direction(64))[signed.mask], expected[signed.mask])
    assert torch.equal(signed.stale, text.stale) and torch.equal(signed.tokens, text.tokens)
    mask, length = signed.mask[..., None], signed.mask.sum(1, keepdim=True)
    current, stale = ((states * mask).sum(1) / length for states in (signed.current, signed.stale))
    assert readable(current, z) == 1.0
    for blind in (stale, signed.tokens, text.gold[:, None].float()):
        assert readable(blind, z) == pytest.approx(0.5, abs=0.08)  # 512 rows, one standard error is .022


def test_rewards_are_those_of_the_reward_model(models):
    """The padded attention and the tokens of the fast body against R2MRewardModel on texts."""
    drift, cache = models
    start, body = drift.proxy.base.load(cache), drift.proxy.load(cache)
    prompts = [prompt for prompt in garden.prompts(2, seed=0) for _ in range(GROUP)]
    pool, head = sample_pool(start, start, body, prompts, seed=1), head_of(models, seed=3)
    given = refits.read_pool(pool, "own", 0)
    examples = sample_completions(start, prompts, seed=1).examples
    finished = [row for row, example in enumerate(examples) if len(example.completion.split()) < 30]
    states = states_of(start, policy_encoder(), [examples[row] for row in finished])
    expected = R2MRewardModel(body, head, omega=0.6).rewards(given.tokens[finished], states)[:, 0]
    same = [len(state) == int(pool.mask[row].sum()) for row, state in zip(finished, states, strict=True)]
    assert any(same)
    torch.testing.assert_close(refits.head_rewards(head, given)[finished][same], expected[same], atol=2e-2, rtol=2e-2)


def test_labels_agree_with_gold_with_their_probability_and_are_nested():
    generator = torch.Generator().manual_seed(0)
    rewards, gold = (torch.randn(4000, GROUP, generator=generator) for _ in range(2))
    pairs = {name: refits.label_pairs(rewards, gold, right, seed=1) for name, right in refits.LABELS.items()}
    for name, right in refits.LABELS.items():
        expected = 0.5 if right is None else right
        assert refits.label_accuracy(pairs[name], gold) == pytest.approx(expected, abs=0.04)
    wrong = [pairs[name].wins != pairs["gold labels"].wins for name in ("85 % right", "95 % right")]
    assert (wrong[0] | ~wrong[1]).all()
    assert torch.equal(pairs["own labels"].wins, extremes(rewards).wins)
    tied = refits.label_pairs(
        torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 2.0], [1.0, 3.0]]), 1.0, seed=0
    )
    assert tied.wins.isnan().tolist() == [True, False] and tied.wins[1] == 0.0


def test_one_step_moves_a_weight_by_at_most_the_papers_movement(models, pool):
    head, given = head_of(models, zero_out=True), refits.read_pool(pool, "own", 0)
    before = head.W_o.detach().clone()
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.006 * refits.initial_std(head), weight_decay=0.0)
    refits.refit(
        head, optimizer, given, extremes(refits.head_rewards(head, given).detach().unflatten(0, (-1, GROUP))), 1
    )
    assert refits.initial_std(head) == pytest.approx(0.125)
    assert 0.9 * 0.00075 < (head.W_o - before).abs().max().item() < 0.00075 * 1.001


def test_accuracy_leaves_out_golds_ties_and_counts_the_models_as_errors():
    rewards, gold = torch.zeros(1, GROUP), torch.zeros(1, GROUP)
    rewards[0, 0] = 1.0
    gold[0, :2] = torch.tensor([2.0, 1.0])
    # 0 above the seven others: right; 1 above six ties: wrong
    assert refits.pair_accuracy(rewards, gold) == pytest.approx(7 / 13) and refits.best_gold(rewards, gold) == 2.0


def test_the_label_quality_that_helps_is_the_lowest_with_all_higher_ones_helping():
    base = np.linspace(0.5, 0.6, 5)
    gains = zip(
        (name for name, right in refits.LABELS.items() if right), (0.1, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4), strict=True
    )
    accuracy = {f"{refits.GARDEN}: frozen": base} | {
        f"{refits.GARDEN}: {refits.Arm('own', name, '1 step')}": base + value + np.array([0, 0.001, -0.001, 0, 0])
        for name, value in gains
    }
    assert first_helpful(accuracy, "own", "1 step") == "75 % right"
    assert gain(accuracy, refits.Arm("own", "gold labels", "1 step")).value == pytest.approx(0.4)


def test_a_job_measures_every_arm_at_both_checkpoints(models):
    drift, cache = models
    arms = tuple(arm for arm in refits.ARMS if arm.size != "10 steps" and arm.labels in ("", "gold labels"))
    result = refits.R2MRefits(drift, prompts=2, asked=GROUP, unseen=2, arms=arms).work(cache)
    assert result[refits.ACCURACY].shape == result[refits.BEST].shape == (len(arms), 2)
    assert np.isfinite(result[refits.ACCURACY]).all()


@pytest.mark.slow
def test_the_study_runs_on_a_part(tmp_path):
    study = r2m_offline(tmp_path, workers=1, rows=16)
    assert "A dry run" in study.text and {*study.figures} == {"effects", "labels"}
    assert len(json.loads(json.dumps(study.facts))["values"]["pair accuracy"]["garden: frozen"]) == 2
