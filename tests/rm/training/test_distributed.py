import torch
from rewardlab.rm.training import distributed
from torch import nn


def test_a_process_without_a_gradient_adds_nothing_and_gets_that_of_the_others(monkeypatch):
    """Another process has a gradient of the first parameter, and neither has one of the second."""
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))
    others = iter([torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])])  # which gradients it has, and the one of them
    monkeypatch.setattr(distributed, "reduce", lambda tensor, how: tensor + next(others))
    distributed.reduce_gradients([first, second], "sum")
    assert first.grad is not None and first.grad.tolist() == [3.0, 4.0] and second.grad is None
