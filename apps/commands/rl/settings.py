"""The settings of `rewardlab rl`, beside TRL's own in `policy/training/arguments.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from ...settings.fields import as_list, given, one_of, setting


@dataclass
class RlConfig:
    """A policy, the prompts it answers, the rewards that it learns from, and the formulas by name."""

    model: str = setting("Policy to start from: path or Hub id of a language model.", default="")
    data: list[str] = setting(
        "Files of prompts: rows with a prompt as text or messages, preference files, a .txt of one prompt a line, or "
        "hub-id[@revision][:split].",
        default_factory=list,
    )
    eval_data: list[str] = setting("The same for evaluation, at the end and every eval_steps.", default_factory=list)
    output: str = setting("Run folder; the trained policy is in policy/.", default="")
    reward: list[str] = setting(
        "Rewards as NAME=SOURCE, or SOURCE alone: a reward model's folder or Hub id, or package.module:factory of a "
        "model or function, or one of apps/rewards with arguments, such as 'r2m(model=runs/rm)'. A model of several "
        "objectives has a component NAME.OBJECTIVE for each.",
        default_factory=list,
    )
    watch: list[str] = setting("The same for rewards that are logged and never trained on.", default_factory=list)
    weight: list[str] = setting(
        "Weights of rewards as NAME=number; 1 unless told, and 0 for one that only a transform reads.",
        default_factory=list,
    )
    advantage: str = setting(
        "A formula of policy/advantages, or package.module:factory; with arguments as in 'gae(gamma=1.0, lam=0.95)'. "
        "So are loss, aggregation, the transforms, scheduler, replay and curriculum.",
        default="grpo",
    )
    loss: str = setting("A clip rule or a loss of whole answers: one of policy/losses.", default="ppo")
    aggregation: str = setting("How much each token weighs: one of policy/aggregations.", default="token_mean")
    reward_transform: list[str] = setting(
        "Transforms of rewards in their order, such as 'gate(reward=rm, by=form, threshold=0.5)'.",
        default_factory=list,
    )
    advantage_transform: list[str] = setting("Transforms of advantages in their order.", default_factory=list)
    scheduler: str | None = setting("Which answers count how often: one of policy/schedulers.", default=None)
    replay: str | None = setting("Trains once more on the previous answers: one of policy/replays.", default=None)
    curriculum: str | None = setting(
        "Draw the next prompts by how much their kinds taught of late: one of policy/curricula. Needs category.",
        default=None,
    )
    category: str | None = setting("Column of the prompts' rows that says their kinds.", default=None)
    kl: float = setting("Weight of the KL to the reference.", default=0.0)
    kl_place: str = setting(
        "Where the KL penalty is: loss, token (in every token's reward) or completion.", default="loss"
    )
    kl_kind: str | None = setting(
        "Its estimate: k1, k2, k3 or forward; by default k3 in the loss, else k1.", default=None
    )
    kl_corrected: bool = setting(
        "In the loss, weigh each token's KL by its ratio: k3 then has the gradient of the KL to the reference.",
        default=False,
    )
    entropy: float = setting("Weight of the policy's entropy.", default=0.0)
    critic: bool = setting("Learn what each token is worth; gae needs it.", default=False)
    critic_learning_rate: float = setting("Of the critic.", default=1e-3)
    critic_hidden: int = setting("Width of its hidden layer; 0 is none.", default=0)
    critic_passes: int = setting("Steps that it makes on the answers of each of the policy's.", default=1)
    critic_lam: float = setting("λ of the critic's targets.", default=0.95)
    critic_clip: float = setting(
        "How far a value may move before it gets no more gradient; inf is any.", default=math.inf
    )
    reference: str | None = setting("What the KL is to: path or Hub id; by default the start policy.", default=None)
    soup: str | None = setting(
        "Mix another fine-tuning of the same model into the reference: path or Hub id.", default=None
    )
    soup_share: float = setting("Its share, in [0, 1].", default=0.5)
    max_prompt_length: int | None = setting("Longer prompts are left out and counted, in tokens.", default=None)
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that has no prompt.", default="refuse")
    on_fault: Literal["stop", "skip"] = setting(
        "A reward that fails or is infinite ends the run, or its answers are not trained on.", default="stop"
    )
    rollout_server: str | None = setting(
        "Address of a server that writes the answers, such as vLLM's with a saved policy, or '[http://a:8000, "
        "http://b:8000]' of several that take turns by groups; without, this process does.",
        default=None,
    )
    scaffold: str | None = setting(
        "Write some answers with the rubric of their prompt's row (column rubric, or HealthBench's rubrics) for hints, "
        "and train on the prompt without them: one of policy/scaffolds.",
        default=None,
    )
    rollouts: str | None = setting(
        "Search some of each group's answers: one of policy/searches, such as 'sage(r=2)'; or have vLLM write them in "
        "a process of its own, which is restarted on the policy: 'vllm(every=8)'.",
        default=None,
    )
    exchange: str | None = setting(
        "Folder through which agents that train at the same time, each in a run of its own, exchange their answers: of "
        "num_generations answers to a prompt each writes its share. Give all the same prompts, seed and batches.",
        default=None,
    )
    agent: int = setting("Which of them this run is, from 0.", default=0)
    agents: int = setting("How many there are.", default=1)
    exchange_timeout: float = setting("Seconds to wait for a partner's answers of a step.", default=1800.0)
    chat_template: str | None = setting("Of the policy: Jinja file, or plain.", default=None)
    dtype: str = setting("Precision of the weights: float32 or bfloat16.", default="float32")
    lora: bool = setting("Train low-rank adapters instead of all weights.", default=False)
    lora_r: int = setting("Rank.", default=16)
    lora_alpha: int = setting("Scale is alpha / r.", default=32)
    lora_dropout: float = setting("Dropout before the adapters; needs --disable_dropout False.", default=0.0)
    lora_target_modules: list[str] = setting("Layers that get adapters.", default_factory=lambda: ["all-linear"])
    processes: int = setting("How many torchrun started; they share every step's answers.", default=1)
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
        """Refuse what cannot be run."""
        for name in ("model", "data", "reward"):
            given(name, getattr(self, name))
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))
        one_of("on_fault", self.on_fault, ("stop", "skip"))
        one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))
        one_of("kl_place", self.kl_place, ("loss", "token", "completion"))
        one_of("kl_kind", self.kl_kind or "k3", ("k1", "k2", "k3", "forward"))
