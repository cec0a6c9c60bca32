"""From the settings of `rewardlab rl` to an algorithm, prompts and a policy."""

import json
from types import SimpleNamespace

import pytest
from rewardlab.apps.assembly.policy_training.settings import RlConfig
from rewardlab.policy.step.composition import build_algorithm
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.policy.training.models import open_language_model
from rewardlab.policy.training.prompts import load_prompts
from rewardlab.rm.errors import UsageError

from tests.apps.commands.conftest import save_policy


def test_a_missing_reward_does_what_was_set_and_estimators_of_certain_rewards_need_them_all():
    for settings, rule in (
        ({}, "group"),
        ({"on_missing": "sum"}, "sum"),
        ({"advantage": "gdpo"}, "group"),
        ({"advantage": "gdpo", "on_missing": "strict"}, "strict"),
        ({"advantage": "laser(reference=-2)"}, "strict"),
    ):
        assert build_algorithm(RlConfig(**settings), ["right", "said"]).on_missing == rule, settings
    config = RlConfig(advantage="laser(reference=-2)", on_missing="sum")
    with pytest.raises(UsageError, match=r"--advantage laser\(reference=-2\) needs all rewards of a completion"):
        build_algorithm(config, ["right", "said"])


def test_a_reward_that_compares_answers_needs_all_of_a_prompt_in_one_process():
    def check(names, **sizes):
        shape = {"num_generations": 8, "per_device_train_batch_size": 4, "steps_per_generation": 1, "world_size": 2}
        PolicyArguments.check_shared_prompts(SimpleNamespace(**shape | sizes), names)  # type: ignore[arg-type]

    check(["judge"], steps_per_generation=2)
    check(["judge"], world_size=1)
    check([])
    with pytest.raises(UsageError, match="^'judge' compares the 8 completions of a prompt, but each rank rates 4;"):
        check(["judge"])


def test_the_policy_is_loaded_with_the_named_attention(tmp_path):
    save_policy(tmp_path / "start")
    arguments = PolicyArguments(output_dir=str(tmp_path), use_cpu=True, attn_implementation="eager")
    policy = open_language_model(str(tmp_path / "start"), RlConfig(), arguments)
    assert policy.model.config._attn_implementation == "eager"


def test_messages_that_are_stored_as_json_text_reach_rewards_as_messages(tmp_path):
    data = tmp_path / "prompts.jsonl"
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}]
    prompts = (messages, json.dumps(messages), "Why?")
    data.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    listed, stored, text = load_prompts([str(data)]).rows
    assert stored == listed and stored.prompt == tuple(messages) and not stored.as_text and text.as_text
