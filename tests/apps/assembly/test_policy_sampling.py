import math
from dataclasses import replace

import pytest
import torch
from rewardlab.apps.assembly.policy_sampling import Sample, SampledCompletion
from rewardlab.policy.training.prompts import PromptRow
from rewardlab.policy.types import Rewards
from rewardlab.rm.types import user_turn

NAN = math.nan
DONE = [SampledCompletion("a", "eos", 1), SampledCompletion("b", "eos", 1)]
VALUES = torch.tensor([[2.0], [4.0]]).double()


def row(**columns) -> PromptRow:
    return PromptRow(user_turn("?"), True, columns)


def test_the_spread_is_that_of_the_members_of_a_single_ensemble():
    members = torch.tensor([[[1.0, 3.0]], [[4.0, 4.0]]]).double()
    sample = Sample([row()], DONE, Rewards(VALUES, ("rm",), members=members), ["rm"])
    assert sample.total.tolist() == [[2.0, 4.0]] and sample.spread is not None
    assert sample.spread.tolist() == [1.0, 0.0]
    assert Sample([row()], DONE, Rewards(VALUES, ("rm",)), ["rm"]).spread is None


def test_the_spread_does_not_depend_on_a_watched_ensemble_of_more_members():
    members = torch.tensor([[[1.0, 3.0, NAN], [7.0, 8.0, 9.0]], [[4.0, 4.0, NAN], [7.0, 8.0, 9.0]]]).double()
    rewards = Rewards(torch.cat([VALUES, VALUES], 1), ("rm", "watched"), members=members)
    sample = Sample([row()], DONE, rewards, ["rm"])
    assert sample.spread is not None and sample.spread.tolist() == [1.0, 0.0]
    assert sample.parts is not None and sample.parts.tolist() == [[[1.0, 3.0], [4.0, 4.0]]]
    members[:, 0] = NAN  # a single model beside a watched ensemble
    assert Sample([row()], DONE, replace(rewards, members=members), ["rm"]).spread is None


def test_several_rewards_are_averaged_without_those_that_are_only_watched():
    values = torch.tensor([[1.0, 3.0, 9.0], [math.nan, 1.0, 9.0]]).double()
    sample = Sample([row()], DONE, Rewards(values, ("a", "b", "watched")), ["a", "b"])
    assert sample.total[0] == pytest.approx([2.0, math.nan], nan_ok=True)
    assert sample.spread == pytest.approx([1.0, math.nan], nan_ok=True)


def test_ids_are_those_of_the_data_if_all_are_stated_and_differ():
    rewards = Rewards(VALUES, ("rm",))
    for rows, ids in (
        ([row(id="x"), row(id=7)], ["x", "7"]),
        ([row(id="x"), row(id="x")], ["0", "1"]),
        ([row(id="x"), row()], ["0", "1"]),
        ([row()], ["0"]),
    ):
        assert Sample(rows, DONE, rewards, ["rm"]).ids() == ids
