"""GiGPO with the text so far as the state."""

import math

import pytest
import torch
from rewardlab.policy.advantages.gigpo import gigpo
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.types import Rollout

NAN = math.nan


def rollout(texts: list[str], group: list[int], prompt: int = 1) -> Rollout:
    """A letter is a token; one position of prompt stands before."""
    width = prompt + max(map(len, texts))
    rows = ["x" * prompt + text.ljust(width - prompt, ".") for text in texts]
    tokens = torch.tensor([[ord(letter) for letter in row] for row in rows])
    place, lengths = torch.arange(width), torch.tensor([len(text) for text in texts])
    response = (place >= prompt) & (place < prompt + lengths[:, None])
    return Rollout(torch.tensor(group), response, torch.ones(len(texts), dtype=torch.bool), tokens=tokens)


def test_by_hand_and_rewards_of_tokens_are_returns_from_there_on():
    # "a" is shared by the first two: there their rewards 1 and 0 meet, z = ±0.7071; all three share the beginning
    rewards, batch = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64), rollout(["ab", "ac", "b"], [0] * 3)
    found, root = gigpo(epsilon=0.0)(rewards, batch), math.sqrt(0.5)
    assert found[0, 1:].tolist() == pytest.approx([1 + 1, 1 + root])
    assert found[1, 1:].tolist() == pytest.approx([-1 - 1, -1 - root])
    assert found[2, 1:].tolist() == pytest.approx([0, 0], abs=1e-12)
    # at ω = 1/2 and γ = 1/2 the first tokens' returns are 1/2, 0 and 1/2: z = 0.57735, -1.1547 and 0.57735
    found = gigpo(omega=0.5, gamma=0.5, epsilon=0.0)(rewards, batch)
    third = math.sqrt(1 / 3)
    assert found[0, 1:].tolist() == pytest.approx([1 + third / 2, 1 + root / 2])
    assert found[2, 1].item() == pytest.approx(third / 2) and not found[~batch.response].any()
    with pytest.raises(ValueError, match="the rollout has no tokens"):
        gigpo()(rewards, batch._replace(tokens=None))
    batch = rollout(["ab", "ac"], [0, 0])
    rewards = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    # returns at the first token 2 and 1, at the second 0 and 1; in all 2 and 1
    root = math.sqrt(0.5)
    assert gigpo(epsilon=0.0)(rewards, batch)[:, 1:].tolist() == [
        pytest.approx([2 * root, 0], abs=1e-12),
        pytest.approx([-2 * root, 0], abs=1e-12),
    ]


def test_its_limits_are_grpo_once_and_twice():
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.0], dtype=torch.float64)
    parted = rollout(["ax", "bx", "cx", "dx"], [0] * 4)
    plain = grpo()(rewards, parted)
    torch.testing.assert_close(gigpo(omega=0.0)(rewards, parted)[:, 1], plain)
    torch.testing.assert_close(gigpo()(rewards, parted)[:, 2], plain)  # nobody shares what follows the first token
    alike = rollout(["xx"] * 4, [0] * 4)
    torch.testing.assert_close(gigpo()(rewards, alike)[:, 1:], 2 * plain[:, None].expand(4, 2))


def test_a_tool_that_answers_differently_ends_a_shared_state():
    """The policy's tokens "a", "b" are alike; the tool's token between them is one of two in the first two texts."""
    batch = rollout(["a1b", "a2b", "a1c"], [0] * 3)
    batch.response[:, 2] = False
    found, root = gigpo(epsilon=0.0)(torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64), batch), math.sqrt(0.5)
    assert found[:, 1].tolist() == pytest.approx([2, -2, 0]) and not found[:, 2].any()
    # the first and the third meet again behind the tool's "1": z = ±0.7071
    assert found[:, 3].tolist() == pytest.approx([1 + root, -1, -root])
