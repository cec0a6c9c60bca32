"""The settings of `rewardlab rl`, in addition to TRL's in `policy/training/arguments.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from ....rm.registry.settings import (
    ABOVE_0,
    ABOVE_0_OR_INF,
    AT_LEAST_0,
    AT_LEAST_1,
    DTYPES,
    FINITE,
    RANK,
    SHARE,
    SHARE_BELOW_1,
    Settings,
    setting,
)


@dataclass
class PolicySettings(Settings):
    """Settings of a policy's weights and of its run folder, for all trainings of policies."""

    chat_template: str | None = setting(None, "Chat template of the policy: Jinja file, or plain.", group="Model")
    dtype: str = setting("float32", "Precision of the weights.", choices=DTYPES)
    lora: bool = setting(False, "Train low-rank adapters instead of all weights.")
    lora_r: int = setting(16, "Rank of the adapters.", range=RANK)
    lora_alpha: int = setting(32, "Scale of the adapters is alpha / r.", range=ABOVE_0)
    lora_dropout: float = setting(
        0.0, "Dropout before the adapters; needs --disable_dropout False.", range=SHARE_BELOW_1
    )
    lora_target_modules: list[str] = setting(["all-linear"], "Layers that get adapters.")
    processes: int = setting(1, "Number of processes started by torchrun.", group="Run", range=AT_LEAST_1)
    resume: bool = setting(False, "Continue a run that was cut off.")
    overwrite: bool = setting(False, "Replace the run folder.")


@dataclass
class RlConfig(PolicySettings):
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
    watch: list[str] = setting([], "Rewards in the same form that are only logged.")
    weight: list[str] = setting([], "Weights of rewards as NAME=number; 1 for the others.")
    advantage: str = setting("grpo", "Advantage estimator.", group="Algorithm", registry="policy.advantages")
    loss: str = setting("ppo", "Policy loss, such as ppo(epsilon=0.1).", registry="policy.losses")
    aggregation: str = setting("token_mean", "Mean of token losses.", registry="policy.aggregations")
    reward_transform: list[str] = setting(
        [], "Transforms of rewards in order, such as gate(reward=rm, by=form, threshold=0.5)."
    )
    advantage_transform: list[str] = setting([], "Transforms of advantages in order, such as entropy_mask.")
    scheduler: str | None = setting(
        None, "Schedule that weights the completions in training.", registry="policy.schedulers"
    )
    replay: str | None = setting(
        None, "Replay of earlier completions; requires --num_iterations 2 or more.", registry="policy.replays"
    )
    curriculum: str | None = setting(
        None, "Choice of prompts by the learning signal of their category.", registry="policy.curricula"
    )
    category: str | None = setting(None, "Column with the category of each prompt.")
    kl: float = setting(
        0.0,
        "Coefficient of the KL divergence to the reference policy.",
        group="Reference policy and KL",
        range=AT_LEAST_0,
    )
    kl_place: str = setting("loss", "Where the KL penalty is applied.", choices=("loss", "token", "completion"))
    kl_kind: str | None = setting(
        None, "Estimator of the KL; k3 in the loss and k1 elsewhere by default.", choices=("k1", "k2", "k3", "forward")
    )
    kl_corrected: bool = setting(True, "Multiply the KL term by the importance ratio of each token, as TRL does.")
    entropy: float = setting(0.0, "Coefficient of the policy's entropy.", range=FINITE)
    critic: bool = setting(False, "Train a critic; required by gae.", group="Critic")
    critic_learning_rate: float = setting(1e-3, "Learning rate of the critic.", range=ABOVE_0)
    critic_hidden: int = setting(0, "Width of the critic's hidden layer; 0 for a linear critic.", range=AT_LEAST_0)
    critic_passes: int = setting(
        1, "Optimizer steps of the critic on the completions of each policy step.", range=AT_LEAST_1, advanced=True
    )
    critic_lam: float = setting(0.95, "λ of the critic's λ-return targets.", range=SHARE)
    critic_clip: float = setting(math.inf, "Clip range of value predictions.", range=ABOVE_0_OR_INF, advanced=True)
    reference: str | None = setting(
        None, "Reference policy: path or Hub id; by default the start policy.", group="Reference policy and KL"
    )
    soup: str | None = setting(None, "Average the reference policy with this model.")
    soup_share: float = setting(0.5, "Weight of the soup model in the average, in [0, 1].", range=SHARE)
    max_prompt_length: int | None = setting(
        None,
        "Longest prompt in tokens; longer ones are dropped and counted.",
        group="Prompts and completions",
        range=AT_LEAST_1,
    )
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that has no prompt.")
    on_fault: Literal["stop", "skip"] = setting(
        "stop", "What to do if a reward function raises an error or returns infinity; skip makes the reward missing."
    )
    on_missing: Literal["group", "strict", "sum"] = setting(
        "group",
        "Total where one of several rewards is missing: the sum of those that its group has (group), none (strict), or "
        "the sum of the others (sum).",
    )
    rollout_server: str | None = setting(
        None, "Address of a server that generates completions, such as vLLM; or a list."
    )
    scaffold: str | None = setting(None, "Rubric hints in the prompt of some completions.", registry="policy.scaffolds")
    rollouts: str | None = setting(
        None, "Completions by search, as sage(r=2), or by vLLM in a process of its own, as vllm(every=8)."
    )
    exchange: str | None = setting(None, "Folder through which agents exchange completions.", group="Several agents")
    agent: int = setting(0, "Index of this run's agent, from 0.", range=AT_LEAST_0)
    agents: int = setting(1, "Number of agents.", range=AT_LEAST_1)
    exchange_timeout: float = setting(
        1800.0, "Seconds to wait for another agent's completions of a step.", range=AT_LEAST_0, advanced=True
    )
