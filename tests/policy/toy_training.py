"""Short runs of the trainer on the toy policy; apart from conftest.py, as the environment of vLLM has no TRL."""

from pathlib import Path
from typing import Any

from datasets import Dataset
from rewardlab.benchmarks import garden
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step.algorithm import Algorithm
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.rm.registry import load

from tests.conftest import SMALL_RUN

OF_TRAINERS = ("critic", "replay", "peft_config", "reference", "callbacks", "eval_dataset", "rollout_func")


def prompts(number: int = 40) -> Dataset:
    return Dataset.from_list([{"prompt": [dict(turn) for turn in prompt]} for prompt in garden.prompts(number, 0)])


def algorithm(advantage: Any = "grpo", loss: Any = "ppo", aggregation: str = "token_mean", **changes: Any) -> Algorithm:
    """An algorithm of formulas, by their names or as they are."""
    if isinstance(advantage, str):
        advantage = load("policy.advantages", advantage)()
    rule = load("policy.losses", loss)() if isinstance(loss, str) else loss
    return Algorithm(advantage, rule, load("policy.aggregations", aggregation)(), **changes)


def trainer(
    policy: Any, words: Any, folder: Path, formulas: Algorithm, sources: Any = None, data: Any = None,
    kind: type[PolicyTrainer] = PolicyTrainer, **changes: Any,
) -> PolicyTrainer:  # fmt: skip
    """A trainer on the gold reward unless others are named; the run folder is `run` in `folder`."""
    extras = {name: changes.pop(name) for name in OF_TRAINERS if name in changes}
    settings = PolicyArguments(**SMALL_RUN | {"output_dir": str(folder / "run")} | changes)
    sources = sources or RewardSources({"gold": garden.gold()})
    return kind(policy, sources, formulas, settings, data or prompts(), tokenizer=words, **extras)


def logged(trainer: PolicyTrainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]
