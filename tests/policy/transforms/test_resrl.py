"""ResRL: what good and bad answers have in common is spared."""

import numpy as np
import pytest
import torch
from rewardlab.policy.transforms.resrl import residual_weight, resrl
from rewardlab.policy.types import Rollout


def rollout(states: torch.Tensor) -> Rollout:
    rows, width = states.shape[:2]
    response = torch.arange(width) < torch.tensor([width, width - 1] * (rows // 2))[:, None]
    made = Rollout(torch.arange(rows) // 2, response, torch.ones(rows, dtype=torch.bool))
    return made._replace(states=states)


def drawn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def by_hand_of_numpy(bad, good, rank) -> np.ndarray:
    def normal(x):
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)

    bad, good = normal(bad), normal(good)
    values, vectors = np.linalg.eigh(np.cov(good.T))
    basis = vectors[:, np.argsort(values)[::-1][:rank]]
    residual = []
    for one in bad - good.mean(0):
        rest = one - basis @ (basis.T @ one)
        residual.append((rest**2).sum() / len(one))
    first, last = np.quantile(residual, 0.2), np.quantile(residual, 0.8)
    return np.array([0.1 + 0.9 * min(max((x - first) / (last - first), 0), 1) for x in residual])


def test_weights_are_the_plain_computation_from_the_floor_to_in_full():
    bad, good = drawn(30, 8), drawn(40, 8, seed=1)
    found = residual_weight(bad, good, 3, 0.2, 0.8, 0.1)
    np.testing.assert_allclose(found.numpy(), by_hand_of_numpy(bad.numpy(), good.numpy(), 3), atol=1e-4)
    plane = torch.tensor([[1.0, -1, 0, 0, 1, -1], [1.0, 1, -1, -1, 0, 0]])
    good = drawn(50, 2) @ plane
    inside, outside = drawn(5, 2, seed=1) @ plane, torch.tensor([[0.0, 0, 1, -1, 1, -1]]).repeat(5, 1)
    found = residual_weight(torch.cat([inside, outside]), good, 2, 0.2, 0.8, 0.1)
    assert found[:5].tolist() == pytest.approx([0.1] * 5, abs=1e-3) and found[5:].tolist() == pytest.approx([1.0] * 5)


def test_good_answers_count_a_tenth_and_bad_tokens_by_their_weight():
    states, advantages = drawn(4, 5, 8), torch.tensor([1.0, -2.0, 0.0, -1.0])
    batch = rollout(states)
    found = resrl(rank=3).change({}, advantages, batch)[1]
    assert found[0].tolist() == pytest.approx([0.1] * 5) and not found[2].any()
    bad = batch.response & (advantages < 0)[:, None]
    bad[3] = False  # its prompt has no good answer
    weight = residual_weight(states[bad], states[0], 3, 0.2, 0.8, 0.1)
    torch.testing.assert_close(found[bad], -2 * weight)
    assert weight.min() == pytest.approx(0.1) and weight.max() == 1
    assert found[3, :4].tolist() == [-1.0] * 4


def test_components_and_quantiles_are_each_prompts_own():
    states, advantages = drawn(8, 5, 8), torch.tensor([1.0, -1.0, -2.0, 1.0, 2.0, -1.0, 1.0, -1.0])
    batch = rollout(states)
    together = resrl(rank=2).change({}, advantages, batch)[1]
    for number in range(4):
        rows = batch.group == number
        alone = Rollout(batch.group[rows], batch.response[rows], batch.finished[rows])._replace(states=states[rows])
        torch.testing.assert_close(together[rows], resrl(rank=2).change({}, advantages[rows], alone)[1])


def test_too_few_good_tokens_leave_bad_ones_many_are_drawn_evenly_and_refusals():
    states = drawn(2, 5, 8)
    batch = rollout(states)._replace(response=torch.arange(5) < torch.tensor([3, 5])[:, None])
    found = resrl(rank=2).change({}, torch.tensor([1.0, -1.0]), batch)[1]
    assert found[1].tolist() == [-1.0] * 5
    advantages = torch.tensor([-1.0, -2.0])
    alone = resrl().change({}, advantages, rollout(drawn(2, 3, 8)))[1]
    assert alone.tolist() == [[-1.0] * 3, [-2.0] * 3]
    assert residual_weight(torch.ones(4, 6), drawn(9, 6), 2, 0.2, 0.8, 0.1).tolist() == [1.0] * 4
    states = drawn(2, 6, 8)
    batch, advantages = rollout(states), torch.tensor([1.0, -1.0])
    found = resrl(rank=2, most=3, positive=1.0).change({}, advantages, batch)[1]
    weight = residual_weight(states[1, :5], states[0, [0, 2, 5]], 2, 0.2, 0.8, 0.1)
    torch.testing.assert_close(found[1, :5], -weight)
    assert found[0].tolist() == [1.0] * 6
    with pytest.raises(ValueError, match="0 <= low < high <= 1"):
        resrl(low=0.8, high=0.2)
    bare = Rollout(torch.tensor([0]), torch.ones(1, 2, dtype=torch.bool), torch.ones(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="no hidden states of its tokens"):
        resrl().change({}, torch.ones(1), bare)
