"""A short training run on completions of a server."""

import copy

import pytest
from datasets import Dataset
from peft import LoraConfig
from rewardlab.benchmarks import garden
from rewardlab.policy.composition.algorithm import Algorithm
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.rm.registry import load

from tests.conftest import SMALL_RUN


@pytest.fixture
def train_written_by(base, words, tmp_path):
    """A short run whose answers a rollout function writes, on the gold reward."""

    def run(rollouts, *, policy=None, evaluates=False, lora=False, **settings):
        data = Dataset.from_list([{"prompt": [dict(turn) for turn in one]} for one in garden.prompts(16, 0)])
        formulas = (load("policy.advantages", "grpo")(), load("policy.losses", "ppo")())
        args = PolicyArguments(**SMALL_RUN | {"output_dir": str(tmp_path), "num_generations_eval": 4} | settings)
        trainer = PolicyTrainer(
            policy or copy.deepcopy(base),
            RewardSources({"gold": garden.gold()}),
            Algorithm(*formulas, load("policy.aggregations", "token_mean")()),
            args,
            data,
            tokenizer=words,
            eval_dataset=data if evaluates else None,
            rollout_func=rollouts,
            peft_config=LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM") if lora else None,
        )
        trainer.train()
        return trainer

    return run
