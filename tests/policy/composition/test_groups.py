"""policy/composition/groups.py"""

import torch
from rewardlab.policy.composition.algorithm import Algorithm
from rewardlab.policy.composition.groups import as_float, masked_advantages
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.registry import load


def test_advantages_of_integer_rewards_are_not_truncated():
    verdicts = torch.tensor([1, 0, 1])
    found = masked_advantages(torch.tensor([0.25, -0.5, 9.0]), torch.tensor([True, True, False]), verdicts)
    assert found.tolist() == [0.25, -0.5, 0] and as_float(verdicts).dtype == torch.float64
    assert masked_advantages(found, torch.tensor([True, True, False]), verdicts.bfloat16()).dtype == torch.bfloat16


def test_integer_rewards_go_through_an_algorithm_as_numbers():
    rollout = Rollout(torch.tensor([0, 0, 0]), torch.ones(3, 2, dtype=torch.bool), torch.ones(3, dtype=torch.bool))
    formulas = load("policy.losses", "ppo")(), load("policy.aggregations", "token_mean")()
    rewards = Rewards(torch.tensor([[1], [0], [0]]), ("right",))
    scored = Algorithm(load("policy.advantages", "dr_grpo")(), *formulas, shares={"right": 1.0})(rewards, rollout)
    torch.testing.assert_close(scored.advantages["estimate"], torch.tensor([2.0, -1, -1], dtype=torch.float64) / 3)
    apart = Algorithm(load("policy.advantages", "gdpo")(), *formulas, apart=True)(rewards, rollout)
    assert apart.advantages["estimate"][0] > 1
