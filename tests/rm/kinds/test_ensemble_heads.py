import math

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import pairs
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.ensemble.combination import MemberRule
from rewardlab.rm.kinds.multi_head.model import MultiHeadRewardModel
from rewardlab.rm.kinds.multi_head.uncertain_heads import Gaussians, HeadFit, Heads, fit_heads, sampled_loss
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.types import OVERALL, Example, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit
from torch import tensor

WORDS = tokenizer()


def gaussians(means, deviations):
    return Gaussians(tensor([means]), tensor([deviations]))


def test_the_loss_of_samples_by_hand():
    # one pair, two heads; samples: chosen 1 + 0.5 · 2 = 2 and 0 - 1 · 1 = -1, rejected 0 + 1 · 1 = 1 and 1 + 0 = 1
    first, second = gaussians([1.0, 0.0], [0.5, 1.0]), gaussians([0.0, 1.0], [1.0, 2.0])
    noise = tensor([[[2.0, -1.0]], [[1.0, 0.0]]])
    target = tensor([[[3.0, 3.0]], [[1.0, 0.0]]])
    found = sampled_loss("regression", first, second, noise, target, tensor([[1.0, 1.0]]))
    assert found.tolist() == [[(1 + 0) / 2, (16 + 1) / 2]]
    found = sampled_loss("bradley_terry", first, second, noise, target, tensor([[1.0, 0.0]]))
    # gaps 1 and -2, the second label says that the rejected one is better
    assert found[0].tolist() == pytest.approx([math.log(1 + math.exp(-1)), math.log(1 + math.exp(-2))])


def test_heads_in_units_of_the_target():
    heads = Heads(1, 2)
    weights = {
        "mean.weight": tensor([[1.0], [-1.0]]), "mean.bias": tensor([0.0, 0.5]),
        "uncertainty.weight": torch.zeros(2, 1), "uncertainty.bias": torch.zeros(2), "center": tensor([2.0]),
        "scale": tensor([4.0]), "target_center": tensor(10.0), "target_scale": tensor(3.0),
    }  # fmt: skip
    heads.load_state_dict(weights)
    # z = (4 - 2) / 4 = 0.5: 10 + 3 · 0.5 and 10 + 3 · (0.5 - 0.5); softplus(0) = ln 2
    said = heads(tensor([[4.0]]))
    assert said.means.tolist() == [[11.5, 10.0]]
    assert said.deviations[0].tolist() == pytest.approx([3 * (math.log(2) + 1e-4)] * 2)
    own = heads.each(tensor([[[4.0], [2.0]]]))
    assert own.means.tolist() == [[11.5, 11.5]], "every head reads its own answer"


def tokens_of(n: int, seed: int) -> torch.Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


DIRECTION = torch.arange(6.0)


@pytest.mark.parametrize("form", ["regression", "bradley_terry"])
def test_heads_follow_the_target_and_differ_where_nothing_was_seen(form):
    chosen, rejected = tokens_of(200, 0), tokens_of(200, 1)
    chosen[:, :3], rejected[:, :3] = 0, 0  # directions that training never shows
    target = torch.stack([chosen @ DIRECTION, rejected @ DIRECTION])
    wins = torch.sigmoid(target[0] - target[1])
    heads = fit_heads(chosen, rejected, target, wins, HeadFit(form=form, steps=400))
    fresh = tokens_of(100, 2)
    fresh[:, :3] = 0
    known = heads(fresh).means
    order = [np.corrcoef(one, fresh @ DIRECTION)[0, 1] for one in known.T]
    assert min(order) > 0.95, order
    fresh[:, :3] = 3 * tokens_of(100, 3)[:, :3]
    assert heads(fresh).means.std(1).mean() > 2 * known.std(1).mean()


def test_a_fit_depends_on_its_seed_only_and_what_cannot_be_fitted_is_refused():
    given = tokens_of(20, 0), tokens_of(20, 1), tokens_of(20, 2)[:, :2].T, torch.ones(20)
    one, again, other = (fit_heads(*given, HeadFit(steps=5, seed=seed)).mean.weight for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
    for wrong, sentence in [
        ({"form": "mse"}, "one of regression, bradley_terry, got 'mse'"),
        ({"heads": 1}, "heads must be >= 2, .* got 1"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            HeadFit(**wrong)


def body_of(objectives=("reward",)):
    return scalar_from_config(
        small_config(WORDS, hidden=32, layers=1), WORDS, max_length=64, objectives=objectives, seed=0
    )


TAUGHT = pairs(300, 0)
SAID = [example for pair in pairs(20, 1, split="test") for example in pair.examples]


@pytest.fixture(scope="module")
def trained():
    body = body_of()
    rows = encode_pairs(body.encoder, TAUGHT, OVERALL).rows
    fit(body, ScalarTask(bradley_terry()), rows, Fit(steps=40, learning_rate=5e-3, batch=16, seed=0))
    return body


@pytest.fixture(scope="module")
def model(trained):
    rule = MemberRule("brme", {"share": 0.5})
    return MultiHeadRewardModel.on(trained, TAUGHT, OVERALL, rule, HeadFit(heads=3, steps=200))


def test_the_rule_reads_the_heads_deviations_and_pessimism_is_below_the_mean(model):
    said = model.member_rewards(SAID)
    nominal = said.rewards[said.deviations[..., 0].argmin(0), range(len(SAID)), 0]
    expected = 0.5 * nominal + 0.5 * said.rewards.min(0)[:, 0]
    assert model.rate(SAID)[:, 0] == pytest.approx(expected) and (said.deviations > 0).all()
    for rule in [MemberRule("min"), MemberRule("softmin", {"beta": 2.0}), MemberRule("mean_std", {"weight": 1.0})]:
        plain = MultiHeadRewardModel(model.body, model.heads, MemberRule("mean"))
        assert (MultiHeadRewardModel(model.body, model.heads, rule).rate(SAID) < plain.rate(SAID)).all()


def test_it_is_one_number_in_every_way(model):
    examples = [*SAID[:10], Example(user_turn("tell me about bees"), " ".join(["honey"] * 90))]
    told = list(parity(model, examples, own_variants(model)))
    assert len(told) >= 2 and all(one.passed for one in told), told


def test_a_saved_model_gives_the_same_rewards(model, tmp_path):
    model.save(tmp_path / "rm")
    write_golden(model, SAID[:8], tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"))
    assert again.contract == model.contract and again.contract.kind == "multi_head"
    assert again.rate(SAID).tolist() == model.rate(SAID).tolist()
    assert again.rate([]).shape == (0, 1)
    file = tmp_path / "rm" / "multi_head.json"
    file.write_text(file.read_text().replace("0.5", "0.9"))
    with pytest.raises(DataError, match="heads or rule have changed since"):
        load_reward_model(str(tmp_path / "rm"))
    file.unlink()
    with pytest.raises(DataError, match="not the heads of a reward model"):
        load_reward_model(str(tmp_path / "rm"))


def test_heads_need_one_reward_and_labels(trained):
    with pytest.raises(UsageError, match="this model has helpful, harmless"):
        MultiHeadRewardModel.on(body_of(("helpful", "harmless")), TAUGHT, OVERALL, MemberRule(), HeadFit())
    with pytest.raises(DataError, match="none of 300 pairs has a label for 'honest'"):
        MultiHeadRewardModel.on(trained, TAUGHT, "honest", MemberRule(), HeadFit())
