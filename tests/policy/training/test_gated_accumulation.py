"""Gated reward accumulation (G-RA) is the gate, and then the sum of the rewards."""

import torch
from rewardlab.policy.composition.chain import weighted_sum
from rewardlab.policy.transforms.gate import gate
from rewardlab.policy.types import Rewards, Rollout


def test_immediate_rewards_add_up_only_where_the_long_term_reward_is_high_enough():
    draw = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rollout = Rollout(torch.arange(30) // 5, torch.ones(30, 2, dtype=torch.bool), torch.ones(30, dtype=torch.bool))
    made = gate(reward="step", by="outcome", threshold=0.6)
    found = made.change({}, Rewards(draw, ("outcome", "step")), rollout)[1]
    expected = [long + (now if long >= 0.6 else 0.0) for long, now in draw.tolist()]
    torch.testing.assert_close(weighted_sum(found.values, [1.0, 1.0]).tolist(), expected)
