"""apps/commands/rl/run.py: language models as they are loaded for training."""

from rewardlab.apps.commands.rl.run import open_language_model
from rewardlab.apps.commands.rl.settings import RlConfig
from rewardlab.benchmarks.garden import models
from rewardlab.policy.training.arguments import PolicyArguments


def test_the_policy_is_loaded_with_the_named_attention(tmp_path):
    words = models.tokenizer()
    for part in (models.causal_lm(words), words):
        part.save_pretrained(tmp_path / "start")
    arguments = PolicyArguments(output_dir=str(tmp_path), use_cpu=True, attn_implementation="eager")
    policy = open_language_model(str(tmp_path / "start"), RlConfig(), arguments)
    assert policy.model.config._attn_implementation == "eager"
