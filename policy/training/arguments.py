"""Arguments of policy training: TRL's for sampling, batches and engines, and additional ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import ClassVar

import torch
from trl import DPOConfig, GRPOConfig, SFTConfig

from ...rm.backbones.packing.attention import attention_setting
from ...rm.capacity.mixed_precision import check_bf16
from ...rm.errors import UsageError
from ..losses._kinds import compares_completions
from ..step.algorithm import Algorithm
from ..types import Replay

ENTROPY = ("entropy_coef", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target")
TAKEN_OVER = {
    **dict.fromkeys(("beta", "use_bias_correction_kl", "sync_ref_model"), "the algorithm's penalty"),
    **dict.fromkeys(("ref_model_mixup_alpha", "ref_model_sync_steps"), "--reference"),
    **dict.fromkeys(("epsilon", "epsilon_high", "delta", "importance_sampling_level"), "the algorithm's clip rule"),
    **dict.fromkeys(("sapo_temperature_neg", "sapo_temperature_pos"), "the algorithm's clip rule"),
    **dict.fromkeys(
        ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"), "the algorithm's clip rule"
    ),
    **dict.fromkeys(("loss_type", "off_policy_mask_threshold"), "the algorithm's clip rule and aggregation"),
    **dict.fromkeys(("reward_weights", "multi_objective_aggregation"), "the algorithm's shares"),
    **dict.fromkeys(("scale_rewards", "top_entropy_quantile"), "the algorithm's advantage and transforms"),
    **dict.fromkeys((*ENTROPY, "use_adaptive_entropy"), "the algorithm's entropy"),
    "model_init_kwargs": "--dtype and --attn_implementation",
    "chat_template_kwargs": "these variables in the policy's chat template itself",
}
TOKENISED = {
    **dict.fromkeys(("chat_template_path", "eos_token", "pad_token"), "--chat_template, or the policy's tokenizer"),
    **dict.fromkeys(
        ("dataset_text_field", "dataset_kwargs", "dataset_num_proc"), "nothing, since rewardlab reads data"
    ),
    **dict.fromkeys(("completion_only_loss", "assistant_only_loss"), "nothing, since only completions are learned"),
    "truncation_mode": "--on_long",
    "model_init_kwargs": "--dtype and --attn_implementation",
}
"""TRL arguments for the preparation of data and models, which rewardlab does itself -> what to set instead."""


@dataclass
class TrainerDefaults:
    """Defaults of all trainings of policies, for classes that also inherit from the arguments of a TRL trainer."""

    taken_over: ClassVar[Mapping[str, str]] = {}
    """TRL arguments without an effect -> what to set instead."""
    output_dir: str = field(default="", metadata={"help": "Same as --output."})
    bf16: bool | None = field(default=None, metadata={"help": "Train in bfloat16; by default if CUDA supports it."})
    logging_steps: float = field(default=1, metadata={"help": "Steps between log lines."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept (at least 2)."})
    report_to: str = field(default="none", metadata={"help": "none, tensorboard, wandb, trackio."})
    attn_implementation: str | None = attention_setting()

    def __post_init__(self) -> None:
        """Raise `UsageError` for TRL arguments that would silently have no effect."""
        if self.bf16 is None:
            self.bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        self.save_total_limit = max(2, self.save_total_limit or 2)
        check_bf16(self)
        super().__post_init__()  # pyright: ignore[reportAttributeAccessIssue]
        for declared in fields(self):
            if declared.name in self.taken_over and declared.default not in (MISSING, vars(self)[declared.name]):
                raise UsageError(f"{declared.name} is not read here; set {self.taken_over[declared.name]}")


@dataclass
class PolicyArguments(TrainerDefaults, GRPOConfig):
    """TRL's arguments for sampling, batches and engines. The `Algorithm` replaces TRL's arguments of the loss."""

    taken_over = TAKEN_OVER
    disable_dropout: bool = field(
        default=True, metadata={"help": "Train without dropout, which would change probability ratios."}
    )
    rollout_steps: int = field(
        default=0, metadata={"help": "Steps between rollout files, rounded up to whole generations; 0 writes none."}
    )
    measure_kl: bool = field(
        default=True, metadata={"help": "Monitor the KL to the reference policy: one more forward per step."}
    )
    kl_budget: float = field(
        default=math.inf,
        metadata={"help": "Stop when the mean KL of completions to the reference policy exceeds this, in nats."},
    )

    def __post_init__(self) -> None:
        """Raise `UsageError` for contradictory arguments, and align steps with generations."""
        super().__post_init__()
        if self.kl_budget < math.inf and not self.measure_kl:
            raise UsageError("kl_budget needs measure_kl")
        self._align_to_cycles()

    @property
    def cycle(self) -> int:
        """Number of micro-batches from one generation to the next."""
        return int(self.steps_per_generation or 1) * self.num_iterations

    def cycles(self, prompts: int) -> int:
        """Return how often completions are generated in a run over this number of prompts."""
        if self.max_steps > 0:
            return math.ceil(self.max_steps * self.gradient_accumulation_steps / self.cycle)
        an_epoch = prompts // (int(self.generation_batch_size or 1) // int(self.num_generations or 1))
        return math.ceil(self.num_train_epochs * an_epoch)

    def check_shared_prompts(self, comparing: Sequence[str]) -> None:
        """Raise `UsageError` if a reward compares completions of a prompt that are spread over several processes."""
        size, steps = self.num_generations or 1, self.steps_per_generation or 1
        rows = self.per_device_train_batch_size * steps
        if comparing and self.world_size > 1 and rows % size:
            raise UsageError(
                f"'{comparing[0]}' compares the {size} completions of a prompt, but each rank rates {rows}; "
                "make --per_device_train_batch_size times --steps_per_generation a multiple of --num_generations"
            )

    def _align_to_cycles(self) -> None:
        """Round `save_steps` and `rollout_steps` up to whole cycles (a generation and its optimizer steps)."""
        steps, rest = divmod(self.cycle, self.gradient_accumulation_steps)
        if rest:
            raise UsageError(
                f"completions are generated every {self.cycle} micro-batches and the optimizer steps every "
                f"{self.gradient_accumulation_steps}; make the first number a multiple of the second"
            )
        if self.save_strategy == "epoch":
            raise UsageError(
                "save_strategy epoch may split a batch of completions; set save_strategy steps and save_steps"
            )
        self.rollout_steps = steps * math.ceil(self.rollout_steps / steps)
        if self.save_steps >= 1:
            self.save_steps = steps * math.ceil(self.save_steps / steps)


@dataclass
class SftArguments(TrainerDefaults, SFTConfig):
    """TRL's arguments of supervised fine-tuning."""

    taken_over = TOKENISED
    max_length: int | None = field(
        default=1024, metadata={"help": "Maximum length in tokens, at most the policy's context; see --on_long."}
    )


@dataclass
class DpoArguments(TrainerDefaults, DPOConfig):
    """TRL's arguments of direct preference optimisation (DPO)."""

    taken_over = TOKENISED | {"padding_free": "nothing, since TRL's DPO pads"}
    max_length: int | None = field(
        default=1024, metadata={"help": "Maximum length in tokens, at most the policy's context; see --on_long."}
    )


def refuse_balancing(coefficient: float) -> None:
    """Raise `UsageError` for a mixture of experts, whose load-balancing loss TRL would add and our loss lacks."""
    raise UsageError(
        f"router_aux_loss_coef is {coefficient:g} for this mixture of experts, but its balancing loss is not computed "
        "here; set router_aux_loss_coef 0 to train without this loss"
    )


def check_run(args: PolicyArguments, algorithm: Algorithm, replay: Replay | None, comparing: Sequence[str]) -> None:
    """Raise `UsageError` for arguments that contradict the replay, the loss, or rewards that compare completions."""
    if replay and args.num_iterations < 2:
        raise UsageError(
            "a replay replaces the first pass over each batch of completions; set num_iterations to 2 or more"
        )
    if compares_completions(algorithm.rule) and not args.disable_dropout:
        raise UsageError("this loss needs two equal forward passes, which dropout prevents; set disable_dropout True")
    args.check_shared_prompts(comparing)
