"""Settings of `rewardlab plan`, which estimates the memory and time of a job."""

from dataclasses import dataclass

from ..adapters import ADAPTER_OF_METHOD
from ..errors import UsageError
from ..registry.settings import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    RANK,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    Rule,
    Settings,
    changed_settings,
    setting,
)
from .choices import GPUS, PRECISIONS, STATES, STRATEGIES, find_gpu

JOBS = {"train": 16, "rl": 8, "decode": 64, "score": 16}
"""Jobs and their default batch size per GPU."""
JOBS_OF = {
    "kind": ("train",),
    **dict.fromkeys(("optimizer", "gradient_checkpointing", "accumulation"), ("train", "rl")),
    **dict.fromkeys(("group", "reward_model", "reward_dtype", "reference", "critic", "r2m"), ("rl",)),
    **dict.fromkeys(("guide", "guide_model"), ("decode",)),
}
"""Settings that affect some jobs only, and these jobs."""


@dataclass
class PlanConfig(Settings):
    """Settings of a memory and time estimate: model, job, GPUs and sizes."""

    required = ("model",)
    rules = (
        Rule(
            lambda settings: settings.adapter == "none" and settings.lora_r is not None,
            "--lora_r {lora_r} is the rank of an adapter; remove either --lora_r or --adapter none",
        ),
        Rule(
            lambda settings: settings.job in ("rl", "decode") and settings.length is not None,
            "--length is for train and score; for {job} set --prompt and --completion",
        ),
        Rule(
            lambda settings: settings.job in ("decode", "score") and settings.dtype == "mixed",
            "{job} does not train; set --dtype float32 or bfloat16",
        ),
        Rule(
            lambda settings: settings.job in ("decode", "score") and settings.strategy != "ddp",
            "{job} keeps full models on every GPU; remove --strategy {strategy}",
        ),
        Rule(
            lambda settings: settings.job in ("rl", "score") and settings.adapter in ("pblora", "moslora"),
            "{job} supports plain adapters only; --adapter {adapter} belongs to train and decode",
        ),
        Rule(
            lambda settings: (
                settings.job == "train" and settings.kind == "scalar" and settings.adapter in ("pblora", "moslora")
            ),
            "--adapter {adapter} is for --kind autoregressive; add this kind, or set --adapter lora",
        ),
        Rule(
            lambda settings: settings.guide_model and settings.guide != "separate",
            "--guide_model is a guide with separate weights; add --guide separate",
        ),
        Rule(
            lambda settings: settings.job == "rl" and settings.rollouts % settings.group,
            "a step has {rollouts} completions (gpus x batch x accumulation), which is not a multiple of "
            "--group {group}; change --batch or --group",
        ),
    )
    model: str = setting(
        "", "Model: a size such as 7b or qwen3-8b, or a folder or Hub id with a config.json (no weights).", group="Job"
    )
    job: str = setting("train", "Kind of job.", choices=tuple(JOBS))
    gpus: int = setting(1, "Number of GPUs.", range=AT_LEAST_1)
    gpu: str = setting("h100", f"Type of GPU: {', '.join(GPUS)}.")
    strategy: str = setting(
        "ddp",
        "ddp: the full model on every GPU; fsdp, zero3: sharded weights, gradients and states.",
        choices=STRATEGIES,
    )
    dtype: str | None = setting(
        None,
        "float32; bfloat16 (also weights and optimizer states); mixed (float32 weights, bfloat16 computation). By "
        "default mixed, and bfloat16 for jobs without training.",
        choices=tuple(PRECISIONS),
    )
    optimizer: str = setting("adamw", "Optimizer.", choices=tuple(STATES))
    kind: str = setting(
        "scalar", "train: kind of reward model.", group="Model and adapter", choices=("scalar", "autoregressive")
    )
    adapter: str | None = setting(
        None,
        "Adapter; none trains all weights. With --lora_r the default is lora.",
        choices=("none", "lora", "pblora", "moslora"),
    )
    lora_r: int | None = setting(None, "Rank of the adapter; by default 16, for autoregressive models 8.", range=RANK)
    lora_target_modules: list[str] = setting(
        [],
        "Layers with adapters, or all-linear; by default all-linear, but q_proj, k_proj, v_proj for an autoregressive "
        "model or guide.",
    )
    from_layer: int | None = setting(
        None,
        "First layer with an adapter; by default 0, but with --guide late at three quarters of the depth.",
        range=AT_LEAST_0,
    )
    objectives: int = setting(2, "Number of objectives of pblora and moslora.", range=AT_LEAST_1)
    gradient_checkpointing: bool = setting(False, "Store only each layer's input and recompute its activations.")
    batch: int | None = setting(
        None,
        "Batch size per GPU: pairs (train, by default 16), completions (rl 8, decode 64) or conversations (score 16).",
        group="Sizes",
        range=AT_LEAST_1,
    )
    accumulation: int = setting(1, "Micro-batches per optimizer step; rl generates all at once.", range=AT_LEAST_1)
    length: int | None = setting(
        None, "train, score: sequence length in tokens; by default prompt + completion.", range=AT_LEAST_1
    )
    prompt: int = setting(512, "Prompt length in tokens.", range=AT_LEAST_1)
    completion: int = setting(512, "Completion length in tokens.", range=AT_LEAST_1)
    group: int = setting(8, "rl: completions per prompt.", group="Policy training and decoding", range=AT_LEAST_1)
    reward_model: list[str] = setting([], "rl: size, folder or Hub id of each reward model; default: the policy's.")
    reward_dtype: str = setting("float32", "rl: precision of reward models.", choices=("float32", "bfloat16"))
    reference: bool = setting(True, "rl: keep a reference policy in memory, as --measure_kl and --kl do.")
    critic: bool = setting(False, "rl: train a critic (PPO).")
    r2m: bool = setting(False, "rl: the first reward model reads the policy's hidden states and is trained, as in R2M.")
    guide: str = setting(
        "shared", "decode: type of guide; late shares most base layers.", choices=("none", "shared", "late", "separate")
    )
    guide_model: str | None = setting(None, "decode: size, folder or Hub id of a separate guide; default: the base's.")
    mfu: float = setting(
        0.4,
        "Assumed model FLOPs utilisation, a share of the peak.",
        group="Assumptions and output",
        range=SHARE_ABOVE_0,
    )
    mbu: float = setting(
        0.4, "Assumed model bandwidth utilisation in decoding, as a share of the peak.", range=SHARE_ABOVE_0
    )
    reserve: float = setting(
        0.1, "Share of GPU memory reserved for the CUDA context, communication and fragmentation.", range=SHARE_BELOW_1
    )
    examples: int = setting(
        10_000, "Number of pairs, prompts (rl) or conversations, for the estimate of the total time.", range=AT_LEAST_1
    )
    epochs: float = setting(1.0, "Number of passes over the examples.", range=ABOVE_0)
    output: str | None = setting(None, "Run folder for the page, its figure and its numbers.")
    overwrite: bool = setting(False, "Replace the run folder.")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")

    def __post_init__(self):
        super().__post_init__()
        self.adapter = ADAPTER_OF_METHOD.get(self.adapter or "", self.adapter)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        super().validate()
        find_gpu(self.gpu)
        for name in changed_settings(self):
            if self.job not in (jobs := JOBS_OF.get(name, JOBS)):
                choices = " or ".join(jobs)
                raise UsageError(f"--{name} has no effect on --job {self.job}; leave it out, or set --job {choices}")

    @property
    def precision(self) -> str:
        """Name of the precision, or the default of the job."""
        return self.dtype or ("mixed" if self.job in ("train", "rl") else "bfloat16")

    @property
    def rollouts(self) -> int:
        """Number of completions in a step of policy training."""
        return self.gpus * (self.batch or JOBS["rl"]) * self.accumulation
