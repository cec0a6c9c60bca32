"""A robust centre of a step's rewards."""

import warnings
from statistics import median

import pytest
import torch
from rewardlab.policy.advantages.are import are, centre, location
from rewardlab.policy.types import Rollout


def rollout(rows: int) -> Rollout:
    return Rollout(torch.arange(rows) // 4, torch.ones(rows, 1, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def drawn(rows: int = 64) -> torch.Tensor:
    """Every eighth is far off."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, generator=generator, dtype=torch.float64)
    values[::8] += 1000 * torch.rand(rows // 8, generator=generator, dtype=torch.float64)
    return values


def by_loop(values: list[float], shape: float) -> float:
    middle = median(values)
    scale = max(1.4826 * median(abs(x - middle) for x in values), 1e-3)
    found = sum(values) / len(values)
    for stage in range(1, 9):
        alpha = 2 - (2 - shape) * stage / 8
        for _ in range(20):
            weights = [(((x - found) / scale) ** 2 / abs(alpha - 2) + 1) ** (alpha / 2 - 1) for x in values]
            found = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    return found


def test_it_is_its_plain_loop():
    values, shape = drawn(), 0.3
    expected = by_loop(values.tolist(), shape)
    assert centre(values, shape, 1e-3).item() == pytest.approx(expected)
    found = are(shape=shape)(values, rollout(64))
    torch.testing.assert_close(found, (values - expected) / (values.std() + 1e-4))


def test_outliers_do_not_move_the_centre_and_the_centre_moves_with_the_rewards():
    values = drawn(256)
    assert values.mean() > 30
    assert abs(centre(values, 0.5, 1e-3).item()) < 0.3
    assert abs(location(values, 0.5, 4, 1e-3).item()) < 0.4
    values = drawn()
    moved = location(3 * values + 7, 0.5, 2, 1e-3)
    torch.testing.assert_close(moved, 3 * location(values, 0.5, 2, 1e-3) + 7)
    values = torch.tensor([5.0, 1.0, 900.0], dtype=torch.float64)
    assert location(values, 1.0, 3, 1e-3) == location(values, 1.0, 99, 1e-3) == 5


def test_of_verdicts_it_is_the_more_frequent_one_not_the_mean_and_that_is_warned_of():
    verdicts = torch.tensor([0.0] * 11 + [1.0] * 5, dtype=torch.float64)
    with pytest.warns(UserWarning, match="of rewards with two values the centre is the more frequent one; take grpo"):
        found = are(shape=0.5)(verdicts, rollout(16))
    assert abs(found[0].item()) < 0.01 and verdicts.mean() > 0.3


def test_scores_are_not_warned_of_and_missing_ones_do_not_count():
    values = drawn(16)
    holed = torch.cat([values, values.new_tensor([torch.nan])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = are(shape=1.0)(holed, rollout(17))
    assert found[16] == 0
    torch.testing.assert_close(found[:16], are(shape=1.0)(values, rollout(16)))


@pytest.mark.parametrize("settings", [{"shape": 0.0}, {"shape": 1.0, "blocks": 0}, {"shape": 1.0, "floor": 0.0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=r"shape lies in \(0, 1\], blocks are 1 or more and floor is above 0"):
        are(**settings)
