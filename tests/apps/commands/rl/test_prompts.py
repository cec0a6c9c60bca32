"""Prompts of policy training from rows of every form."""

import json

from rewardlab.apps.commands.rl.prompts import load_prompts
from rewardlab.apps.commands.rl.settings import RlConfig

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}]


def test_messages_that_are_stored_as_json_text_reach_rewards_as_messages(tmp_path):
    data = tmp_path / "prompts.jsonl"
    prompts = (MESSAGES, json.dumps(MESSAGES), "Why?")
    data.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    listed, stored, text = load_prompts(RlConfig(data=[str(data)]), "data").rows
    assert stored == listed and stored.prompt == tuple(MESSAGES) and not stored.as_text and text.as_text
