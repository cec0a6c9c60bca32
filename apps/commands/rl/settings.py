"""The settings of `rewardlab rl`, beside TRL's own in `policy/training/arguments.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from ...settings.fields import as_list, given, one_of, say


@dataclass
class RlConfig:
    """A policy, the prompts it answers, the rewards that it learns from, and the formulas by name."""

    model: str = say("Policy to start from: path or Hub id of a language model.", default="")
    data: list[str] = say(
        "Files of prompts: rows with a prompt as text or messages, preference files, a .txt of one prompt a line, or "
        "hub-id[@revision][:split].",
        default_factory=list,
    )
    eval_data: list[str] = say("The same for evaluation, at the end and every eval_steps.", default_factory=list)
    output: str = say("Run folder; the trained policy is in policy/.", default="")
    reward: list[str] = say(
        "Rewards as NAME=SOURCE, or SOURCE alone: a reward model's folder or Hub id, or package.module:factory of a "
        "model or function, or one of apps/rewards with arguments, such as 'r2m(model=runs/rm)'. A model of several "
        "objectives has a component NAME.OBJECTIVE for each.",
        default_factory=list,
    )
    watch: list[str] = say("The same for rewards that are logged and never trained on.", default_factory=list)
    weight: list[str] = say(
        "Weights of rewards as NAME=number; 1 unless told, and 0 for one that only a transform reads.",
        default_factory=list,
    )
    advantage: str = say(
        "A formula of policy/advantages, or package.module:factory; with arguments as in 'gae(gamma=1.0, lam=0.95)'. "
        "So are loss, aggregation, the transforms, scheduler, replay and curriculum.",
        default="grpo",
    )
    loss: str = say("A clip rule or a loss of whole answers: one of policy/losses.", default="ppo")
    aggregation: str = say("How much each token weighs: one of policy/aggregations.", default="token_mean")
    reward_transform: list[str] = say(
        "Transforms of rewards in their order, such as 'gate(reward=rm, by=form, threshold=0.5)'.",
        default_factory=list,
    )
    advantage_transform: list[str] = say("Transforms of advantages in their order.", default_factory=list)
    scheduler: str | None = say("Which answers count how often: one of policy/schedulers.", default=None)
    replay: str | None = say("Trains once more on the previous answers: one of policy/replays.", default=None)
    curriculum: str | None = say(
        "Draw the next prompts by how much their kinds taught of late: one of policy/curricula. Needs category.",
        default=None,
    )
    category: str | None = say("Column of the prompts' rows that says their kinds.", default=None)
    kl: float = say("Weight of the KL to the reference.", default=0.0)
    kl_place: str = say("Where it stands: loss, token (of every token's reward) or answer.", default="loss")
    kl_kind: str | None = say("Its estimate: k1, k2, k3 or forward; by default k3 in the loss, else k1.", default=None)
    kl_corrected: bool = say(
        "In the loss, weigh each token's KL by its ratio: k3 then has the gradient of the KL to the reference.",
        default=False,
    )
    entropy: float = say("Weight of the policy's entropy.", default=0.0)
    critic: bool = say("Learn what each token is worth; gae needs it.", default=False)
    critic_learning_rate: float = say("Of the critic.", default=1e-3)
    critic_hidden: int = say("Width of its hidden layer; 0 is none.", default=0)
    critic_passes: int = say("Steps that it makes on the answers of each of the policy's.", default=1)
    critic_lam: float = say("λ of the critic's targets.", default=0.95)
    critic_clip: float = say("How far a value may move before it gets no more gradient; inf is any.", default=math.inf)
    reference: str | None = say("What the KL is to: path or Hub id; by default the start policy.", default=None)
    soup: str | None = say(
        "Mix another fine-tuning of the same model into the reference: path or Hub id.", default=None
    )
    soup_share: float = say("Its share, in [0, 1].", default=0.5)
    max_prompt_length: int | None = say("Longer prompts are left out and counted, in tokens.", default=None)
    on_bad_row: Literal["refuse", "skip"] = say("What to do with a row that has no prompt.", default="refuse")
    on_fault: Literal["stop", "skip"] = say(
        "A reward that fails or is infinite ends the run, or its answers are not trained on.", default="stop"
    )
    rollout_server: str | None = say(
        "Address of a server that writes the answers, such as vLLM's with a saved policy, or '[http://a:8000, "
        "http://b:8000]' of several that take turns by groups; without, this process does.",
        default=None,
    )
    scaffold: str | None = say(
        "Write some answers with the rubric of their prompt's row (column rubric, or HealthBench's rubrics) for hints, "
        "and train on the prompt without them: one of policy/scaffolds.",
        default=None,
    )
    rollouts: str | None = say(
        "Search some of each group's answers: one of policy/searches, such as 'sage(r=2)'; or have vLLM write them in "
        "a process of its own, which is restarted on the policy: 'vllm(every=8)'.",
        default=None,
    )
    exchange: str | None = say(
        "Folder through which agents that train at the same time, each in a run of its own, exchange their answers: of "
        "num_generations answers to a prompt each writes its share. Give all the same prompts, seed and batches.",
        default=None,
    )
    agent: int = say("Which of them this run is, from 0.", default=0)
    agents: int = say("How many there are.", default=1)
    exchange_timeout: float = say("Seconds to wait for a partner's answers of a step.", default=1800.0)
    chat_template: str | None = say("Of the policy: Jinja file, or plain.", default=None)
    dtype: str = say("Precision of the weights: float32 or bfloat16.", default="float32")
    lora: bool = say("Train low-rank adapters instead of all weights.", default=False)
    lora_r: int = say("Rank.", default=16)
    lora_alpha: int = say("Scale is alpha / r.", default=32)
    lora_dropout: float = say("Dropout before the adapters; needs --disable_dropout False.", default=0.0)
    lora_target_modules: list[str] = say("Layers that get adapters.", default_factory=lambda: ["all-linear"])
    processes: int = say("How many torchrun started; they share every step's answers.", default=1)
    resume: bool = say("Continue a run that was cut off.", default=False)
    overwrite: bool = say("Replace the run folder.", default=False)

    def __post_init__(self):
        self.data, self.eval_data = as_list(self.data), as_list(self.eval_data)
        self.reward, self.watch, self.weight = map(as_list, (self.reward, self.watch, self.weight))
        self.reward_transform = as_list(self.reward_transform)
        self.advantage_transform = as_list(self.advantage_transform)
        self.lora_target_modules = as_list(self.lora_target_modules)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("model", "data", "reward"):
            given(name, getattr(self, name))
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))
        one_of("on_fault", self.on_fault, ("stop", "skip"))
        one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))
        one_of("kl_place", self.kl_place, ("loss", "token", "answer"))
        one_of("kl_kind", self.kl_kind or "k3", ("k1", "k2", "k3", "forward"))
