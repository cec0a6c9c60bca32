"""apps/commands/rl/composition.py: from settings to an algorithm."""

from types import SimpleNamespace

import pytest
from rewardlab.apps.commands.rl.composition import _check_shared_prompts, build_algorithm
from rewardlab.apps.commands.rl.settings import RlConfig
from rewardlab.rm.errors import UsageError


def test_a_missing_reward_does_what_was_set_and_estimators_of_certain_rewards_need_them_all():
    for settings, rule in (
        ({}, "group"),
        ({"on_missing": "sum"}, "sum"),
        ({"advantage": "gdpo"}, "group"),
        ({"advantage": "gdpo", "on_missing": "strict"}, "strict"),
        ({"advantage": "laser(reference=-2)"}, "strict"),
    ):
        assert build_algorithm(RlConfig(**settings), ["right", "said"]).on_missing == rule, settings


def test_a_sum_for_an_estimator_that_needs_all_rewards_is_refused():
    config = RlConfig(advantage="laser(reference=-2)", on_missing="sum")
    with pytest.raises(UsageError, match=r"--advantage laser\(reference=-2\) needs all rewards of a completion"):
        build_algorithm(config, ["right", "said"])


def test_a_reward_that_compares_answers_needs_all_of_a_prompt_in_one_process():
    def check(names, **sizes):
        shape = {"num_generations": 8, "per_device_train_batch_size": 4, "steps_per_generation": 1, "world_size": 2}
        _check_shared_prompts(names, SimpleNamespace(**shape | sizes))  # type: ignore[arg-type]

    check(["judge"], steps_per_generation=2)
    check(["judge"], world_size=1)
    check([])
    with pytest.raises(UsageError, match="^'judge' compares the 8 answers to a prompt, and each process rates 4 answ"):
        check(["judge"])
