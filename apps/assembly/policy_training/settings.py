"""The settings of `rewardlab rl`, in addition to TRL's in `policy/training/arguments.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from ....policy.step.settings import AlgorithmSettings, ModelSettings, ReferenceSettings
from ....rm.registry.settings import (
    ABOVE_0,
    ABOVE_0_OR_INF,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    Settings,
    setting,
)


@dataclass
class PolicySettings(ModelSettings):
    """Settings of a policy's weights and run folder, shared by all kinds of policy training."""

    processes: int = setting(1, "Number of processes started by torchrun.", group="Run", range=AT_LEAST_1)
    resume: bool = setting(False, "Continue a run that was cut off.")
    overwrite: bool = setting(False, "Replace the run folder.")


@dataclass
class RolloutSettings(Settings):
    """Settings of rollouts and their use: prompts, generation of completions, replay, curriculum and critic."""

    replay: str | None = setting(
        None,
        "Replay of earlier completions; requires --num_iterations 2 or more.",
        group="Algorithm",
        registry="policy.replays",
    )
    curriculum: str | None = setting(
        None, "Choice of prompts by the learning signal of their category.", registry="policy.curricula"
    )
    category: str | None = setting(None, "Column with the category of each prompt.")
    critic: bool = setting(False, "Train a critic; required by gae.", group="Critic")
    critic_learning_rate: float = setting(1e-3, "Learning rate of the critic.", range=ABOVE_0, requires="critic")
    critic_hidden: int = setting(
        0, "Width of the critic's hidden layer; 0 for a linear critic.", range=AT_LEAST_0, requires="critic"
    )
    critic_passes: int = setting(
        1,
        "Optimizer steps of the critic on the completions of each policy step.",
        range=AT_LEAST_1,
        advanced=True,
        requires="critic",
    )
    critic_lam: float = setting(0.95, "λ of the critic's λ-return targets.", range=SHARE, requires="critic")
    critic_clip: float = setting(
        math.inf, "Clip range of value predictions.", range=ABOVE_0_OR_INF, advanced=True, requires="critic"
    )
    max_prompt_length: int | None = setting(
        None,
        "Maximum length of a prompt in tokens; longer prompts are dropped and counted.",
        group="Prompts and completions",
        range=AT_LEAST_1,
    )
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that has no prompt.")
    on_fault: Literal["stop", "skip"] = setting(
        "stop", "What to do if a reward function raises an error or returns infinity; skip makes the reward missing."
    )
    rollout_server: str | None = setting(
        None, "Address of a server that generates completions, such as vLLM; or a list of addresses."
    )
    scaffold: str | None = setting(None, "Rubric hints in the prompt of some completions.", registry="policy.scaffolds")
    rollouts: str | None = setting(
        None, "How completions are generated: by search, such as sage(r=2), or by a vLLM process: vllm(every=8)."
    )
    exchange: str | None = setting(None, "Folder through which agents exchange completions.", group="Several agents")
    agent: int = setting(0, "Index of this run's agent, from 0.", range=AT_LEAST_0)
    exchange_timeout: float = setting(
        1800.0,
        "Seconds to wait for another agent's completions of a step.",
        range=AT_LEAST_0,
        requires="exchange",
        advanced=True,
    )


@dataclass
class RlConfig(PolicySettings, RolloutSettings, ReferenceSettings, AlgorithmSettings):
    """Settings of policy training: policy, prompts, rewards and algorithm."""

    required = ("model", "data", "reward")
    model: str = setting("", "Policy to start from: path or Hub id of a language model.", group="Data and output")
    data: list[str] = setting(
        [], "Prompt files, preference files, .txt with a prompt per line, or hub-id[@revision][:split]."
    )
    eval_data: list[str] = setting([], "Prompts for evaluation, every eval_steps and at the end.")
    output: str = setting("", "Run folder; the trained policy is in policy/.")
    reward: list[str] = setting(
        [],
        "Rewards as NAME=SOURCE: a model, file.py:function, package.module:function or r2m(model=runs/rm).",
        group="Rewards",
    )
    watch: list[str] = setting([], "Rewards that are only logged, written as for --reward.")
