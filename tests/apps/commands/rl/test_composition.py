"""apps/commands/rl/composition.py: from settings to an algorithm."""

import pytest
from rewardlab.apps.commands.rl.composition import build_algorithm
from rewardlab.apps.commands.rl.settings import RlConfig
from rewardlab.rm.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({}, "group"),
        ({"on_missing": "sum"}, "sum"),
        ({"advantage": "gdpo"}, "group"),
        ({"advantage": "gdpo", "on_missing": "strict"}, "strict"),
        ({"advantage": "laser(reference=-2)"}, "strict"),
    ],
)
def test_a_missing_reward_does_what_was_set_and_estimators_of_certain_rewards_need_them_all(settings, rule):
    assert build_algorithm(RlConfig(**settings), ["right", "said"]).on_missing == rule


def test_a_sum_for_an_estimator_that_needs_all_rewards_is_refused():
    config = RlConfig(advantage="laser(reference=-2)", on_missing="sum")
    with pytest.raises(UsageError, match=r"--advantage laser\(reference=-2\) needs all rewards of a completion"):
        build_algorithm(config, ["right", "said"])
