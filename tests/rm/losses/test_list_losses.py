import math
from itertools import pairwise

import pytest
import torch
from rewardlab.rm.errors import UsageError
from rewardlab.rm.losses._list_loss import named_list_loss
from rewardlab.rm.losses._pair_batch import PairBatch
from rewardlab.rm.losses._pair_losses import named_pair_loss
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.losses.listwise_cross_entropy import listwise_cross_entropy
from rewardlab.rm.losses.plackett_luce import plackett_luce
from torch import tensor

NAN = math.nan
LOSSES = {
    "full": plackett_luce(),
    "top": plackett_luce(top=1),
    "two": plackett_luce(top=2),
    "listnet": listwise_cross_entropy(temperature=0.7),
}


def value(loss, rewards, scores) -> float:
    return loss(tensor([rewards], dtype=torch.float64), tensor([scores], dtype=torch.float64)).item()


def test_a_ranking_is_a_product_of_choices_by_hand():
    # exp(r) = 2, 1, 4, ranked third, first, second: first 1 of 7, then 4 of 6, then 2 of 2
    rewards, scores = [math.log(2), 0.0, math.log(4)], [-2.0, 0.0, -1.0]
    assert value(plackett_luce(), rewards, scores) == pytest.approx(math.log(7 / 1) + math.log(6 / 4))
    assert value(plackett_luce(top=1), rewards, scores) == pytest.approx(math.log(7))
    assert value(plackett_luce(top=2), rewards, scores) == value(plackett_luce(), rewards, scores)


def test_tied_completions_share_one_choice():
    # the tied ones weigh 2 and 4 of 7, with half of the choice each; then 1 of 1
    rewards, scores = [math.log(2), 0.0, math.log(4)], [5.0, 1.0, 5.0]
    expected = (math.log(7 / 2) + math.log(7 / 4)) / 2
    assert value(plackett_luce(), rewards, scores) == pytest.approx(expected)
    assert value(plackett_luce(top=1), rewards, scores) == pytest.approx(expected)
    # a tie of the last two is a choice, too
    assert value(plackett_luce(), rewards, [1.0, 1.0, 9.0]) == pytest.approx(
        math.log(7 / 4) + (math.log(3 / 2) + math.log(3 / 1)) / 2
    )
    assert value(plackett_luce(), [3.0, 3.0], [0.0, 0.0]) == pytest.approx(math.log(2))


def test_the_scores_are_logits_of_the_cross_entropy_by_hand():
    # p = 3/4 and 1/4; softmax(r) = 1/3 and 2/3
    assert value(listwise_cross_entropy(), [0.0, math.log(2)], [math.log(3), 0.0]) == pytest.approx(
        0.75 * math.log(3) + 0.25 * math.log(1.5)
    )
    assert value(listwise_cross_entropy(temperature=2.0), [0.0, 1.0], [2.0, 4.0]) == value(
        listwise_cross_entropy(), [0.0, 1.0], [1.0, 2.0]
    )
    assert value(listwise_cross_entropy(temperature=1e-3), [0.3, 1, -2], [0.0, 2, 1]) == pytest.approx(
        value(plackett_luce(top=1), [0.3, 1, -2], [0.0, 2, 1])
    )


@pytest.mark.parametrize(("scores", "wins"), [([2.0, 1.0], 1.0), ([-3.0, -1.0], 0.0), ([4.0, 4.0], 0.5)])
def test_two_completions_are_a_bradley_terry_pair(scores, wins):
    rewards = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = bradley_terry()(PairBatch(rewards[:, 0], rewards[:, 1], torch.full((6,), wins, dtype=torch.float64)))
    stated = tensor([scores], dtype=torch.float64).expand(6, 2)
    for loss in (plackett_luce(), plackett_luce(top=1)):
        torch.testing.assert_close(loss(rewards, stated), expected)
    soft = torch.sigmoid(stated[:, 0] - stated[:, 1])
    of_soft = bradley_terry()(PairBatch(rewards[:, 0], rewards[:, 1], soft))
    torch.testing.assert_close(listwise_cross_entropy()(rewards, stated), of_soft)


@pytest.mark.parametrize("name", LOSSES)
def test_missing_completions_order_and_a_common_offset_change_nothing(name):
    loss = LOSSES[name]
    rewards, scores = [0.3, -1.0, 2.0, 0.5], [1.0, 3.0, 1.0, 2.0]
    expected = value(loss, rewards, scores)
    assert value(loss, [*rewards, 7.0, NAN], [*scores, NAN, NAN]) == pytest.approx(expected)
    assert value(loss, rewards[::-1], scores[::-1]) == pytest.approx(expected)
    assert value(loss, [r + 10 for r in rewards], scores) == pytest.approx(expected)
    if name != "listnet":
        assert value(loss, rewards, [s**3 for s in scores]) == pytest.approx(expected), "the order alone matters"


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences_and_extremes_finite(name):
    rewards = tensor([[0.3, -1, 2, 9], [1, 0.5, 0, -1]], dtype=torch.float64, requires_grad=True)
    scores = tensor([[1.0, 1, 0, NAN], [3, 2, 2, 1]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda r: LOSSES[name](r, scores), (rewards,))
    extreme = tensor([[1e4, -1e4, 0.0, NAN]], requires_grad=True)
    loss = LOSSES[name](extreme, tensor([[0.0, 1, 1, NAN]]))
    loss.sum().backward()
    assert loss.isfinite().all() and extreme.grad is not None and extreme.grad.isfinite().all()
    assert extreme.grad[0, 3] == 0


def test_the_loss_falls_as_the_order_improves():
    scores = [2.0, 1.0, 0.0]
    orders = [[-1.0, 0.0, 1.0], [0.0, -1.0, 1.0], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0]]
    values = [value(plackett_luce(), rewards, scores) for rewards in orders]
    assert all(worse > better for worse, better in pairwise(values))


def test_settings_are_checked_and_kinds_of_pairs_refuse_a_loss_of_lists():
    with pytest.raises(UsageError, match="top must be a number of completions, or 0 for all, got -1"):
        plackett_luce(top=-1)
    with pytest.raises(UsageError, match="temperature must be above 0, got 0"):
        listwise_cross_entropy(temperature=0.0)
    assert named_list_loss("plackett_luce(top=1)") and named_list_loss("bradley_terry") is None
    own = named_list_loss(f"{__file__}:mean_reward")
    assert own and own(tensor([[1.0, 2.0]]), tensor([[0.0, 1.0]])).tolist() == [1.5]
    for text in ("plackett_luce", f"{__file__}:mean_reward"):
        with pytest.raises(UsageError, match="is not a loss of pairs"):
            named_pair_loss(text)


def mean_reward(rewards, scores):
    return rewards.mean(1)
