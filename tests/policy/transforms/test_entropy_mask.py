"""The tokens of the highest entropy."""

import pytest
import torch
from rewardlab.policy.transforms.entropy_mask import entropy_mask
from rewardlab.policy.types import Rollout


def rollout(entropy: torch.Tensor, lengths) -> Rollout:
    rows, width = entropy.shape
    response = torch.arange(width) < torch.tensor(lengths)[:, None]
    made = Rollout(torch.arange(rows) // 2, response, torch.ones(rows, dtype=torch.bool))
    return made._replace(entropy=entropy)


def changed(advantages, entropy, lengths, **settings) -> torch.Tensor:
    return entropy_mask(**settings).change({}, advantages, rollout(entropy, lengths))[1]


def test_by_hand():
    entropy = torch.tensor([[0.1, 0.9, 0.3, 9.0], [0.5, 0.2, 9.0, 9.0]], dtype=torch.float64)
    # five tokens of the answers; 40 % are 0.9 and 0.5; what stands outside them is not looked at
    found = changed(torch.tensor([2.0, -1.0], dtype=torch.float64), entropy, (3, 2), share=0.4)
    assert found.tolist() == [[0, 2, 0, 0], [-1, 0, 0, 0]]


def test_tokens_without_an_advantage_do_not_take_a_place():
    """Group of equal rewards: however undecided, the mask is about the other tokens."""
    entropy = torch.tensor([[5.0, 5.0], [1.0, 2.0]], dtype=torch.float64)
    found = changed(torch.tensor([0.0, 1.0], dtype=torch.float64), entropy, (2, 2), share=0.5)
    assert found.tolist() == [[0, 0], [0, 1]]


def test_all_of_them_is_no_mask_and_nothing_to_mask_is_no_trouble():
    entropy = torch.rand(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    advantages = torch.tensor([[1.0, -2, 3], [4, 5, 6]], dtype=torch.float64)
    assert torch.equal(changed(advantages, entropy, (3, 3), share=1.0), advantages)
    assert not changed(torch.zeros(2, dtype=torch.float64), entropy, (3, 3)).any()


def test_refusals():
    with pytest.raises(ValueError, match=r"share lies in \(0, 1\], got 0.0"):
        entropy_mask(share=0.0)
    bare = Rollout(torch.tensor([0]), torch.ones(1, 2, dtype=torch.bool), torch.ones(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="the rollout has no entropies"):
        entropy_mask().change({}, torch.ones(1), bare)
