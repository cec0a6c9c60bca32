"""NSR, ACE, HA-DW and the entropy mask: how much good and bad completions, and which of their tokens, count."""

import json
import math
from statistics import stdev

import pytest
import torch
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.advantages.fixed_baseline import fixed_baseline
from rewardlab.policy.transforms.ace import ace
from rewardlab.policy.transforms.entropy_mask import entropy_mask
from rewardlab.policy.transforms.ha_dw import ha_dw
from rewardlab.policy.transforms.nsr import nsr
from rewardlab.policy.types import Rollout, Transform


def column(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rollout(lengths, width: int, size: int, **fields) -> Rollout:
    """Completions of `lengths` tokens, `size` to a prompt."""
    response = torch.arange(width) < torch.tensor(lengths)[:, None]
    ones = torch.ones(len(lengths), dtype=torch.bool)
    return Rollout(torch.arange(len(lengths)) // size, response, ones)._replace(**fields)


def changed(transform: Transform, advantages: torch.Tensor, batch: Rollout) -> torch.Tensor:
    return transform.change(transform.start, advantages, batch)[1]


def test_good_completions_count_a_tenth_and_bad_ones_in_full():
    batch = rollout([2, 2, 2], 2, 2)
    assert changed(nsr(), column(2.0, -3.0, 0.0), batch).tolist() == pytest.approx([0.2, -3.0, 0.0])
    assert changed(nsr(positive=1.0), column(2.0, -3.0, 0.0), batch).tolist() == [2.0, -3.0, 0.0]
    tokens = column([2.0, -1.0], [-3.0, 0.0], [4.0, 4.0])
    assert changed(nsr(positive=0.0), tokens, batch).tolist() == [[0, -1], [-3, 0], [0, 0]]
    # what all got wrong is pushed down under a fixed baseline, as published
    all_wrong = fixed_baseline()(torch.tensor([-1.0, -1.0, 1.0]), batch)
    assert changed(nsr(), all_wrong, batch).tolist() == pytest.approx([-1.0, -1.0, 0.1])
    with pytest.raises(ValueError, match="must be at least 0, got -1"):
        nsr(positive=-1.0)


def compared(logprobs, base, lengths) -> Rollout:
    return rollout(lengths, len(logprobs[0]), len(lengths), logprobs=column(*logprobs), base=column(*base))


def test_confident_errors_count_more_by_hand():
    """c = 1 a token of the two: 1 + 2 log(1 + e); the sum is c = 2. What stands behind a completion is none of it."""
    batch, advantages = compared([[-1.0, -1.0, 5.0]] * 2, [[-2.0, -2.0, -9.0]] * 2, (2, 2)), column(-1.0, 1.0)
    assert changed(ace(alpha=2.0), advantages, batch).tolist() == pytest.approx([-(1 + 2 * math.log(1 + math.e)), 1.0])
    of_sums = changed(ace(alpha=2.0, of_tokens=False), advantages, batch).tolist()
    assert of_sums == pytest.approx([-(1 + 2 * math.log(1 + math.exp(2))), 1.0])
    empty = changed(ace(alpha=2.0), advantages, compared([[-1.0]] * 2, [[-2.0]] * 2, (0, 0))).tolist()
    assert empty == pytest.approx([-(1 + 2 * math.log(2)), 1.0])


def test_only_negatives_grow_by_alpha_and_the_mean_does_not_grow_with_length():
    batch = compared([[-1.0] * 200] * 2, [[-1.5] * 200] * 2, (2, 200))
    assert changed(ace(alpha=1.0), column(-1.0, -1.0), batch).unique().numel() == 1
    short, long = changed(ace(alpha=1.0, of_tokens=False), column(-1.0, -1.0), batch).tolist()
    assert long < -100 and short > -3
    batch, advantages = compared([[-1.0], [-3.0], [-2.0]], [[-2.0], [-1.0], [-2.0]], (1, 1, 1)), column([-1], [-2], [3])
    assert torch.equal(changed(ace(alpha=0.0), advantages, batch), advantages)
    found = changed(ace(alpha=1.5), advantages, batch)
    assert found[0] < -1 and found[1] < -2 and found[2] == 3
    with pytest.raises(ValueError, match="alpha must be 0 or more, got -1"):
        ace(alpha=-1.0)
    with pytest.raises(ValueError, match="no log-probabilities of its tokens under the reference policy"):
        changed(ace(alpha=1.0), advantages, batch._replace(base=None))


def masked(advantages, entropy, lengths, **settings) -> torch.Tensor:
    batch = rollout(lengths, entropy.shape[1], 2, entropy=entropy)
    return changed(entropy_mask(**settings), advantages, batch)


def test_the_tokens_of_the_highest_entropy_are_kept_by_hand():
    entropy = column([0.1, 0.9, 0.3, 9.0], [0.5, 0.2, 9.0, 9.0])
    # five tokens of the answers; 40 % are 0.9 and 0.5; what stands outside them is not looked at
    assert masked(column(2.0, -1.0), entropy, (3, 2), share=0.4).tolist() == [[0, 2, 0, 0], [-1, 0, 0, 0]]
    # a group of equal rewards takes no place, however undecided: the mask is about the other tokens
    found = masked(column(0.0, 1.0), column([5.0, 5.0], [1.0, 2.0]), (2, 2), share=0.5)
    assert found.tolist() == [[0, 0], [0, 1]]
    # 0.07 * 100 is 7.000000000000001 in floating point: 7 of 100 tokens, not 8
    assert masked(torch.ones(1), torch.arange(100.0).view(1, 100), (100,), share=0.07).sum() == 7
    advantages = column([1.0, -2, 3, 1], [4, 5, 6, 1])
    assert torch.equal(masked(advantages, entropy, (4, 4), share=1.0), advantages)
    assert not masked(column(0.0, 0.0), entropy, (3, 3)).any()
    with pytest.raises(ValueError, match=r"share must be in \(0, 1\], got 0.0"):
        entropy_mask(share=0.0)
    with pytest.raises(ValueError, match="the rollout has no entropies"):
        changed(entropy_mask(), torch.ones(1), rollout([2], 2, 1))


def rated(rewards: torch.Tensor) -> Rollout:
    return rollout([2] * len(rewards), 2, 4, total=rewards)


def test_weights_by_difficulty_are_their_plain_loop_over_steps():
    draw = torch.rand(7, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lam, eta, window, anchors = 1.3, 0.5, 3, []
    made = ha_dw(lam=lam, eta=eta, window=window)
    state = made.start
    for rewards in (draw < torch.tensor([0.2] * 4 + [0.7] * 4)).double():
        advantages = dr_grpo()(rewards, rated(rewards))
        state, found = made.change(state, advantages, rated(rewards))
        accuracy = sum(rewards.tolist()) / 8
        anchor = anchors[-1] if anchors else accuracy
        for i, a in enumerate(advantages.tolist()):
            gap = sum(rewards[4 * (i // 4) : 4 * (i // 4) + 4].tolist()) / 4 - anchor
            sign = (a > 0) - (a < 0)
            assert found[i].item() == pytest.approx(a * lam * math.exp(-sign * gap))
        spread = stdev(anchors[-window:]) if len(anchors) > 1 else 1.0
        anchors.append((1 - eta * spread) * anchor + eta * spread * accuracy)
        assert state["anchors"] == pytest.approx(anchors[-window:]) and json.loads(json.dumps(state)) == state


def test_weights_by_difficulty_by_hand_and_their_refusals():
    # one right of four where the policy is expected to get half: its advantage grows by e^0.25, the wrong ones' shrink
    rewards, start = column(1.0, 0, 0, 0), {"anchors": [0.5]}
    found = ha_dw().change(start, dr_grpo()(rewards, rated(rewards)), rated(rewards))[1]
    assert found.tolist() == pytest.approx([0.75 * math.exp(0.25)] + [-0.25 * math.exp(-0.25)] * 3)
    even = rated(column(1.0, 0, 1, 0))  # no gap is a factor alone
    found = ha_dw(lam=1.3).change(start, torch.tensor([1.0, -1, 2, -3]), even)[1]
    assert found.tolist() == pytest.approx([1.3, -1.3, 2.6, -3.9])
    holed = rated(column(1.0, 0, math.nan, 0))
    advantages = dr_grpo()(holed.total, holed)
    of_tokens = ha_dw().change(start, advantages[:, None].expand(4, 2), holed)[1]
    of_completions = ha_dw().change(start, advantages, holed)[1]
    assert torch.equal(of_tokens, of_completions[:, None].expand(4, 2)) and of_completions[2] == 0
    state, same = ha_dw().change(start, torch.zeros(4), rated(torch.full((4,), math.nan)))
    assert state == start and not same.any()
    with pytest.raises(ValueError, match="lam must be above 0"):
        ha_dw(lam=0.0)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got -1 to 1; remove ha_dw"):
        changed(ha_dw(), torch.zeros(2), rated(column(1.0, -1.0)))
    with pytest.raises(ValueError, match="the rollout has no rewards"):
        changed(ha_dw(), torch.ones(1), rated(column(1.0))._replace(total=None))
