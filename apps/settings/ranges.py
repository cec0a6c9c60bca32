"""Checks of numbers before the dataclasses of settings compute with them, and the ranges of trainers' arguments."""

from collections.abc import Mapping
from typing import Any

from ...rm.registry import settings
from ...rm.registry.settings import Range, check_number, declarations
from .help import is_trainers

NAMES: tuple[tuple[Range, str], ...] = (
    (
        settings.AT_LEAST_1,
        "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps eval_accumulation_steps "
        "save_total_limit max_completion_length num_generations num_generations_eval num_iterations "
        "steps_per_generation generation_batch_size vllm_tensor_parallel_size vllm_max_model_length",
    ),
    (
        settings.AT_LEAST_0,
        "learning_rate weight_decay adam_epsilon max_grad_norm warmup_steps eval_delay dataloader_num_workers "
        "rollout_steps diversity_weight",
    ),
    (settings.ABOVE_0, "num_train_epochs save_steps eval_steps logging_steps repetition_penalty temperature"),
    (settings.ABOVE_0_OR_INF, "kl_budget"),
    (settings.SHARE, "min_p label_smoothing_factor case_weight"),
    (settings.SHARE_ABOVE_0, "top_p vllm_gpu_memory_utilization"),
    (settings.SHARE_BELOW_1, "adam_beta1 adam_beta2 weight_average weight_average_start"),
    (Range("at least 0, or -1 for off", -1, below=True), "top_k"),
    (settings.PORT, "vllm_server_port vllm_group_port"),
    (settings.SEED, "seed data_seed"),
    (settings.STEPS, "max_steps"),
)
TRAINER_RANGES: Mapping[str, Range] = {name: allowed for allowed, names in NAMES for name in names.split()}
"""Ranges of the arguments of Transformers' and TRL's trainers, and of those that our classes add to them."""


def check_ranges(group: type, values: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for the first number outside the range of its setting in a dataclass of settings."""
    ranges = TRAINER_RANGES if is_trainers(group) else {}
    for name, declared in declarations(group).items():
        check_number(declared, values.get(name), ranges.get(name, settings.A_NUMBER))
