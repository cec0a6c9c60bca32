import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rewardlab.rm.losses._pair_batch import PairBatch
from rewardlab.rm.losses.bradley_terry import bradley_terry
from torch import tensor

numbers = st.floats(-20, 20)


def value(loss, chosen, rejected, wins=1.0, **more) -> float:
    values = {"chosen": chosen, "rejected": rejected, "wins": wins} | more
    return loss(PairBatch(**{name: tensor([one]) for name, one in values.items()})).item()


def test_losses_by_hand_and_the_best_gap_for_a_soft_label_is_its_log_odds():
    loss = bradley_terry()
    assert value(loss, 1.5, 1.5) == pytest.approx(math.log(2))
    # Δ = 3 - 1 = 2: -log σ(2) = log(1 + e^-2); with a margin 2 - 1.5 = 0.5
    assert value(loss, 3.0, 1.0) == pytest.approx(math.log(1 + math.exp(-2)))
    assert value(loss, 3.0, 1.0, margin=1.5) == pytest.approx(math.log(1 + math.exp(-0.5)))
    # p = 0.75, Δ = 1: 0.75 log(1 + e^-1) + 0.25 log(1 + e)
    expected = 0.75 * math.log(1 + math.exp(-1)) + 0.25 * math.log(1 + math.exp(1))
    assert value(loss, 1.0, 0.0, wins=0.75) == pytest.approx(expected)
    # c (2 + 1)² = 0.09 on top of log(1 + e^-1)
    assert value(bradley_terry(center=0.01), 2.0, 1.0) == pytest.approx(0.09 + math.log(1 + math.exp(-1)), rel=1e-6)
    gap = torch.tensor([math.log(0.8 / 0.2)], requires_grad=True)
    bradley_terry()(PairBatch(gap, torch.zeros(1), tensor([0.8]))).sum().backward()
    assert gap.grad.item() == pytest.approx(0, abs=1e-6)


@given(numbers, numbers, st.floats(0, 1), st.floats(0, 3))
def test_exchanging_the_answers_and_the_label_changes_nothing(a, b, p, m):
    loss = bradley_terry(center=0.1)
    a, b, p, m = (torch.tensor([x], dtype=torch.float64) for x in (a, b, p, m))
    assert torch.allclose(loss(PairBatch(a, b, p, m)), loss(PairBatch(b, a, 1 - p, m)))
