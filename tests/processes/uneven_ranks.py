"""Trainings whose ranks hold completions of other lengths, or of which one rank has no reward at all.

`uneven_ranks.py POLICY OUTPUT`, run alone or by torchrun, writes what rank 0 computed to the JSON file OUTPUT.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from rewardlab.benchmarks import garden
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.rewards.step_rewards import StepReward
from rewardlab.policy.step.algorithm import Algorithm
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.policy.training.critic import CriticArguments
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.rm.registry import load
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = 8
SETTINGS = {
    "use_cpu": True, "gradient_accumulation_steps": 1, "num_generations": 4, "learning_rate": 1e-3,
    "adam_epsilon": 1e-4, "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True,
}  # fmt: skip


class TwoSteps:
    """Rewards of 0.7 and 0.2 for the halves of a completion, and none for the completion itself."""

    contract = garden.gold().contract

    def rate(self, examples):
        return np.zeros((len(examples), 1))

    def step_rewards(self, examples):
        ends = [len(example.completion) for example in examples]
        return [[StepReward(end // 2, 0.7), StepReward(end, 0.2)] for end in ends]


def fixed_completions(prompts, trainer):
    """Completions of 8 tokens in the first half of the global batch and of 4 in the second."""
    first = trainer.accelerator.process_index * len(prompts)
    rows = range(first, first + len(prompts))
    completions = [list(range(10 + row, 18 + row))[: 8 if row < ROWS // 2 else 4] for row in rows]
    return {"prompt_ids": trainer._tokenize_prompts(list(prompts))[0], "completion_ids": completions, "logprobs": None}


class Recorded(Algorithm):
    """An algorithm that keeps what it computed last."""

    def __call__(self, rewards, rollout, **options):
        self.scored = super().__call__(rewards, rollout, **options)
        return self.scored


def trained(folder: Path, source, advantage: str, steps: int, transforms=None, critic=None) -> PolicyTrainer:
    """A finished run on `fixed_completions`, whose batch is shared by all processes."""
    formulas = (load("policy.advantages", advantage)(), load("policy.losses", "ppo")())
    algorithm = Recorded(*formulas, load("policy.aggregations", "token_mean")(), reward_transforms=transforms or {})
    with tempfile.TemporaryDirectory() as output:
        size = {"per_device_train_batch_size": ROWS // PartialState().num_processes}
        args = PolicyArguments(**SETTINGS, **size, output_dir=output, max_steps=steps)
        trainer = PolicyTrainer(
            AutoModelForCausalLM.from_pretrained(folder).float(),
            RewardSources({"gold": source}),
            algorithm,
            args,
            Dataset.from_list([{"prompt": [dict(turn) for turn in prompt]} for prompt in garden.prompts(8, 0)]),
            tokenizer=AutoTokenizer.from_pretrained(folder),
            critic=critic,
            rollout_func=fixed_completions,
        )
        trainer.train()
    return trainer


def long_ones(examples):
    """The length of completions of 8 tokens; no reward for the others, which are all of the last process's rows."""
    lengths = [len(example.completion.split()) for example in examples]
    return [None if length < 6 else float(length) for length in lengths]


if __name__ == "__main__":
    policy, output = map(Path, sys.argv[1:])
    PartialState(cpu=True)
    transforms = {"clip": load("policy.transforms", "clip")(eta=0.5), "delta": load("policy.transforms", "delta")()}
    of_steps = trained(policy, TwoSteps(), "reinforce_pp", 1, transforms)
    with_critic = trained(policy, long_ones, "gae", 2, critic=CriticArguments(learning_rate=1e-2))
    if of_steps.accelerator.is_main_process:
        found = {
            "earned": of_steps.algorithm.scored.earned.tolist(),
            "missing": with_critic.algorithm.scored.total.isnan().tolist(),
            "critic": with_critic.learner.critic.head.weight[0].tolist(),
            "policy": next(with_critic.model.parameters()).detach().flatten()[:1000].tolist(),
        }
        output.write_text(json.dumps(found))
