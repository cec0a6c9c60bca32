"""The settings of `rewardlab rl`, in addition to TRL's in `policy/training/arguments.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from ....rm.settings import (
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
class RlConfig(Settings):
    """Settings of policy training: policy, prompts, rewards and algorithm."""

    required = ("model", "data", "reward")
    model: str = setting(
        "Policy to start from: path or Hub id of a language model.", group="Data and output", default=""
    )
    data: list[str] = setting(
        "Prompt files, preference files, .txt with a prompt per line, or hub-id[@revision][:split].",
        default_factory=list,
    )
    eval_data: list[str] = setting("Prompts for evaluation, every eval_steps and at the end.", default_factory=list)
    output: str = setting("Run folder; the trained policy is in policy/.", default="")
    reward: list[str] = setting(
        "Rewards as NAME=SOURCE: a model, file.py:function, package.module:function or r2m(model=runs/rm).",
        group="Rewards",
        default_factory=list,
    )
    watch: list[str] = setting("Rewards in the same form that are only logged.", default_factory=list)
    weight: list[str] = setting("Weights of rewards as NAME=number; 1 for the others.", default_factory=list)
    advantage: str = setting("Advantage estimator.", group="Algorithm", registry="policy.advantages", default="grpo")
    loss: str = setting("Policy loss, such as ppo(epsilon=0.1).", registry="policy.losses", default="ppo")
    aggregation: str = setting("Mean of token losses.", registry="policy.aggregations", default="token_mean")
    reward_transform: list[str] = setting(
        "Transforms of rewards in order, such as gate(reward=rm, by=form, threshold=0.5).", default_factory=list
    )
    advantage_transform: list[str] = setting(
        "Transforms of advantages in order, such as entropy_mask.", default_factory=list
    )
    scheduler: str | None = setting("Weights of completions in training.", registry="policy.schedulers", default=None)
    replay: str | None = setting(
        "Replay of earlier completions; requires --num_iterations 2 or more.", registry="policy.replays", default=None
    )
    curriculum: str | None = setting(
        "Choice of prompts by the learning signal of their category.", registry="policy.curricula", default=None
    )
    category: str | None = setting("Column with the category of each prompt.", default=None)
    kl: float = setting(
        "Coefficient of the KL divergence to the reference policy.",
        group="Reference policy and KL",
        range=AT_LEAST_0,
        default=0.0,
    )
    kl_place: str = setting("Where the KL penalty is applied.", choices=("loss", "token", "completion"), default="loss")
    kl_kind: str | None = setting(
        "Estimator of the KL; k3 in the loss and k1 elsewhere by default.",
        choices=("k1", "k2", "k3", "forward"),
        default=None,
    )
    kl_corrected: bool = setting("Multiply the KL in the loss by the token ratio, as TRL does.", default=True)
    entropy: float = setting("Coefficient of the policy's entropy.", range=FINITE, default=0.0)
    critic: bool = setting("Train a critic; required by gae.", group="Critic", default=False)
    critic_learning_rate: float = setting("Learning rate of the critic.", range=ABOVE_0, default=1e-3)
    critic_hidden: int = setting(
        "Width of the critic's hidden layer; 0 for a linear critic.", range=AT_LEAST_0, default=0
    )
    critic_passes: int = setting(
        "Optimizer steps of the critic on the completions of each policy step.",
        range=AT_LEAST_1,
        advanced=True,
        default=1,
    )
    critic_lam: float = setting("λ of the critic's λ-return targets.", range=SHARE, default=0.95)
    critic_clip: float = setting(
        "Clip range of value predictions.", range=ABOVE_0_OR_INF, advanced=True, default=math.inf
    )
    reference: str | None = setting(
        "Reference policy: path or Hub id; by default the start policy.", group="Reference policy and KL", default=None
    )
    soup: str | None = setting("Average the reference policy with this model.", default=None)
    soup_share: float = setting("Weight of the soup model in the average, in [0, 1].", range=SHARE, default=0.5)
    max_prompt_length: int | None = setting(
        "Longest prompt in tokens; longer ones are dropped and counted.",
        group="Prompts and completions",
        range=AT_LEAST_1,
        default=None,
    )
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that has no prompt.", default="refuse")
    on_fault: Literal["stop", "skip"] = setting(
        "Effect of a reward that raises or is infinite; skip makes it missing.", default="stop"
    )
    on_missing: Literal["group", "strict", "sum"] = setting(
        "Total where one of several rewards is missing: the sum of those that its group has (group), none (strict), or "
        "the sum of the others (sum).",
        default="group",
    )
    rollout_server: str | None = setting(
        "Address of a server that generates completions, such as vLLM; or a list.", default=None
    )
    scaffold: str | None = setting(
        "Rubric hints in the prompt of some completions.", registry="policy.scaffolds", default=None
    )
    rollouts: str | None = setting(
        "Completions by search, as sage(r=2), or by vLLM in a process of its own, as vllm(every=8).", default=None
    )
    exchange: str | None = setting(
        "Folder through which agents exchange completions.", group="Several agents", default=None
    )
    agent: int = setting("Index of this run's agent, from 0.", range=AT_LEAST_0, default=0)
    agents: int = setting("Number of agents.", range=AT_LEAST_1, default=1)
    exchange_timeout: float = setting(
        "Seconds to wait for another agent's completions of a step.", range=AT_LEAST_0, advanced=True, default=1800.0
    )
    chat_template: str | None = setting(
        "Chat template of the policy: Jinja file, or plain.", group="Model", default=None
    )
    dtype: str = setting("Precision of the weights.", choices=DTYPES, default="float32")
    lora: bool = setting("Train low-rank adapters instead of all weights.", default=False)
    lora_r: int = setting("Rank of the adapters.", range=RANK, default=16)
    lora_alpha: int = setting("Scale of the adapters is alpha / r.", range=ABOVE_0, default=32)
    lora_dropout: float = setting(
        "Dropout before the adapters; needs --disable_dropout False.", range=SHARE_BELOW_1, default=0.0
    )
    lora_target_modules: list[str] = setting("Layers that get adapters.", default_factory=lambda: ["all-linear"])
    processes: int = setting("Number of processes started by torchrun.", group="Run", range=AT_LEAST_1, default=1)
    resume: bool = setting("Continue a run that was cut off.", default=False)
    overwrite: bool = setting("Replace the run folder.", default=False)
