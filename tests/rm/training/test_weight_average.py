import pytest
import torch
from rewardlab.rm.errors import UsageError
from rewardlab.rm.training.weight_average import WeightAverage
from torch import nn


def stepped(average: WeightAverage, model: nn.Module, values, steps=8):
    for step, value in enumerate(values, start=1):
        nn.init.constant_(model.weight, value)
        average.update(step, steps)


def one_weight() -> nn.Linear:
    return nn.Linear(1, 1, bias=False)


def test_the_average_by_hand():
    """The first 2 of 8 steps do not count: 3 of step 2; .5 * 3 + .5 * 5 = 4; .5 * 4 + .5 * 1 = 2.5."""
    model = one_weight()
    average = WeightAverage(model, decay=0.5, start=0.25)
    stepped(average, model, [100.0, 3.0, 5.0, 1.0])
    with average.applied():
        assert model.weight.item() == 2.5
    assert model.weight.item() == 1.0
    average.apply()
    assert model.weight.item() == 2.5
    with average.applied():  # once applied for good there is nothing to exchange
        assert model.weight.item() == 2.5


def test_the_average_of_bfloat16_weights_moves_by_steps_below_their_rounding(tmp_path):
    """1 + 0.999^1000 = 1.3677 after 1,000 steps of weight 1, though a step of 0.001 is less than bfloat16's 2^-7."""
    model = one_weight().to(torch.bfloat16)
    average = WeightAverage(model, decay=0.999, start=0.0)
    stepped(average, model, [2.0, *[1.0] * 500], steps=1001)
    average.save(tmp_path)
    average = WeightAverage(model, decay=0.999, start=0.0)
    average.load(tmp_path)
    for _ in range(500):
        with average.applied():
            pass  # an evaluation does not round the average
        average.update(1001, 1001)
    assert model.weight.item() == 1.0
    average.apply()
    assert model.weight.item() == pytest.approx(1 + 0.999**1000, abs=2**-8)


def test_before_its_start_and_of_frozen_weights_there_is_no_average():
    model = one_weight()
    average = WeightAverage(model, decay=0.5, start=0.5)
    stepped(average, model, [100.0, 3.0, 5.0])
    average.apply()
    assert model.weight.item() == 5.0
    model = nn.Sequential(one_weight(), one_weight())
    model[0].weight.requires_grad_(False)
    assert [*WeightAverage(model, decay=0.9).weights] == ["1.weight"]
    for decay, start in [(1.0, 0.0), (0.0, 0.0), (0.5, 1.0), (0.5, -0.1)]:
        with pytest.raises(UsageError, match="decay in"):
            WeightAverage(nn.Linear(1, 1), decay, start)
        assert torch.is_grad_enabled(), start
