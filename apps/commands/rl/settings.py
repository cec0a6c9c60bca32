"""The settings of `rewardlab rl`, in addition to TRL's in `policy/training/arguments.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from ...settings.fields import as_list, given, one_of, setting


@dataclass
class RlConfig:
    """Settings of policy training: policy, prompts, rewards and algorithm."""

    model: str = setting("Policy to start from: path or Hub id of a language model.", default="")
    data: list[str] = setting(
        "Files of prompts: rows with a prompt as text or messages, preference files, a .txt with one prompt per line, "
        "or hub-id[@revision][:split].",
        default_factory=list,
    )
    eval_data: list[str] = setting(
        "Prompts for evaluation, in the same formats; evaluated every eval_steps and at the end.", default_factory=list
    )
    output: str = setting("Run folder; the trained policy is in policy/.", default="")
    reward: list[str] = setting(
        "Rewards as NAME=SOURCE, or SOURCE alone: a reward model's folder or Hub id, or package.module:factory of a "
        "model or function, or one of apps/rewards with arguments, such as 'r2m(model=runs/rm)'. A model of several "
        "objectives has a component NAME.OBJECTIVE for each.",
        default_factory=list,
    )
    watch: list[str] = setting("Rewards, in the same form, that are logged and not trained on.", default_factory=list)
    weight: list[str] = setting(
        "Weights of rewards as NAME=number; by default 1, and 0 for a reward that only a transform uses.",
        default_factory=list,
    )
    advantage: str = setting(
        "Advantage estimator of policy/advantages, or package.module:factory; with arguments as in "
        "'gae(gamma=1.0, lam=0.95)'. The same forms hold for loss, aggregation, transforms, scheduler, replay and "
        "curriculum.",
        default="grpo",
    )
    loss: str = setting("Policy loss (a clip rule or a sequence-level loss): one of policy/losses.", default="ppo")
    aggregation: str = setting("Aggregation of per-token losses: one of policy/aggregations.", default="token_mean")
    reward_transform: list[str] = setting(
        "Transforms of rewards, in the order of application, such as 'gate(reward=rm, by=form, threshold=0.5)'.",
        default_factory=list,
    )
    advantage_transform: list[str] = setting(
        "Transforms of advantages, in the order of application.", default_factory=list
    )
    scheduler: str | None = setting(
        "Weights or repetitions of completions in training: one of policy/schedulers.", default=None
    )
    replay: str | None = setting("Replay of previous completions: one of policy/replays.", default=None)
    curriculum: str | None = setting(
        "Sample prompts by the recent learning signal of their categories: one of policy/curricula. Requires category.",
        default=None,
    )
    category: str | None = setting("Column with the category of each prompt.", default=None)
    kl: float = setting("Coefficient of the KL divergence to the reference policy.", default=0.0)
    kl_place: str = setting(
        "Where the KL penalty is applied: loss, token (reward of each token) or completion.", default="loss"
    )
    kl_kind: str | None = setting(
        "Estimator of the KL: k1, k2, k3 or forward; by default k3 in the loss, else k1.", default=None
    )
    kl_corrected: bool = setting(
        "In the loss, multiply each token's KL by its ratio: k3 then has the gradient of the KL to the reference.",
        default=False,
    )
    entropy: float = setting("Coefficient of the policy's entropy.", default=0.0)
    critic: bool = setting("Train a critic that estimates the value of each token; required by gae.", default=False)
    critic_learning_rate: float = setting("Learning rate of the critic.", default=1e-3)
    critic_hidden: int = setting("Width of the critic's hidden layer; 0 for a linear critic.", default=0)
    critic_passes: int = setting("Optimizer steps of the critic on the completions of each policy step.", default=1)
    critic_lam: float = setting("λ of the critic's λ-return targets.", default=0.95)
    critic_clip: float = setting(
        "Clip range of value predictions, beyond which the gradient is 0; inf disables clipping.", default=math.inf
    )
    reference: str | None = setting("Reference policy: path or Hub id; by default the start policy.", default=None)
    soup: str | None = setting(
        "Average the reference policy with another fine-tuned version of the same model: path or Hub id.", default=None
    )
    soup_share: float = setting("Weight of the soup model in the average, in [0, 1].", default=0.5)
    max_prompt_length: int | None = setting(
        "Maximum length of a prompt in tokens; longer ones are dropped and counted.", default=None
    )
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that has no prompt.", default="refuse")
    on_fault: Literal["stop", "skip"] = setting(
        "Whether a missing or infinite reward stops the run, or its completions are not trained on.", default="stop"
    )
    rollout_server: str | None = setting(
        "Address of a server that generates the completions, such as vLLM with a saved policy, or '[http://a:8000, "
        "http://b:8000]' of several, over which groups rotate; by default this process generates them.",
        default=None,
    )
    scaffold: str | None = setting(
        "Generate some completions with the prompt's rubric (column rubric, or HealthBench's rubrics) as hints, and "
        "train on the prompt without them: one of policy/scaffolds.",
        default=None,
    )
    rollouts: str | None = setting(
        "Generate some completions of each group by search: one of policy/searches, such as 'sage(r=2)'; or generate "
        "them with vLLM in a separate process, which is restarted with the current policy: 'vllm(every=8)'.",
        default=None,
    )
    exchange: str | None = setting(
        "Folder through which agents that train in concurrent runs exchange completions: each agent generates its "
        "share of the num_generations completions of a prompt. Prompts, seed and batch sizes must be the same for all.",
        default=None,
    )
    agent: int = setting("Index of this run's agent, from 0.", default=0)
    agents: int = setting("Number of agents.", default=1)
    exchange_timeout: float = setting("Seconds to wait for another agent's completions of a step.", default=1800.0)
    chat_template: str | None = setting("Chat template of the policy: Jinja file, or plain.", default=None)
    dtype: str = setting("Precision of the weights: float32 or bfloat16.", default="float32")
    lora: bool = setting("Train low-rank adapters instead of all weights.", default=False)
    lora_r: int = setting("Rank of the adapters.", default=16)
    lora_alpha: int = setting("Scale of the adapters is alpha / r.", default=32)
    lora_dropout: float = setting("Dropout before the adapters; needs --disable_dropout False.", default=0.0)
    lora_target_modules: list[str] = setting("Layers that get adapters.", default_factory=lambda: ["all-linear"])
    processes: int = setting(
        "Number of processes started by torchrun; the completions of a step are sharded over them.", default=1
    )
    resume: bool = setting("Continue a run that was cut off.", default=False)
    overwrite: bool = setting("Replace the run folder.", default=False)

    def __post_init__(self):
        self.data, self.eval_data = as_list(self.data), as_list(self.eval_data)
        self.reward, self.watch, self.weight = map(as_list, (self.reward, self.watch, self.weight))
        self.reward_transform = as_list(self.reward_transform)
        self.advantage_transform = as_list(self.advantage_transform)
        self.lora_target_modules = as_list(self.lora_target_modules)
        self.kl_place = "completion" if self.kl_place == "answer" else self.kl_place  # the earlier name

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        for name in ("model", "data", "reward"):
            given(name, getattr(self, name))
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))
        one_of("on_fault", self.on_fault, ("stop", "skip"))
        one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))
        one_of("kl_place", self.kl_place, ("loss", "token", "completion"))
        one_of("kl_kind", self.kl_kind or "k3", ("k1", "k2", "k3", "forward"))
