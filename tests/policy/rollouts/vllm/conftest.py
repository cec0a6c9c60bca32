"""A short training run on completions of a server."""

import pytest
from peft import LoraConfig

from tests.policy.toy_training import prompts


@pytest.fixture
def train_written_by(make_trainer):
    """A short run whose answers a rollout function writes, on the gold reward."""

    def run(rollouts, *, policy=None, evaluates=False, lora=False, **settings):
        data = prompts(16)
        trainer = make_trainer(
            model=policy, data=data, rollout_func=rollouts, eval_dataset=data if evaluates else None,
            peft_config=LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM") if lora else None,
            **{"num_generations_eval": 4} | settings,
        )  # fmt: skip
        trainer.train()
        return trainer

    return run
