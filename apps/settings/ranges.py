"""Ranges of numeric settings, in one table for all verbs, checked before anything is loaded."""

import math
from collections.abc import Mapping
from typing import Any

from ...rm.errors import UsageError
from ...rm.settings import (
    ABOVE_0,
    ABOVE_0_OR_INF,
    AT_LEAST_0,
    AT_LEAST_1,
    AT_LEAST_2,
    FINITE,
    PORT,
    RANK,
    SECONDS,
    SEED,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    STEPS,
    Range,
)

NAMES: tuple[tuple[Range, str], ...] = (
    (
        AT_LEAST_1,
        "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps eval_accumulation_steps "
        "save_total_limit max_length max_prompt_length max_completion_length max_new_tokens max_tokens "
        "num_generations num_generations_eval num_iterations steps_per_generation generation_batch_size "
        "critic_passes agents processes workers rows samples bootstrap_samples pairs test limit batch_size concurrency "
        "small_hidden small_layers small_vocabulary stream_block heads head_steps batch accumulate "
        "batch_tokens queue_tokens request_items request_tokens item_tokens body_bytes in_flight most_rules "
        "vllm_tensor_parallel_size vllm_max_model_length shots facets width segment_sentences partners sft_batch "
        "sft_accumulate sft_max_length gpus accumulation length prompt completion group examples objectives",
    ),
    (AT_LEAST_2, "golden sweep"),
    (
        AT_LEAST_0,
        "learning_rate weight_decay adam_epsilon max_grad_norm warmup_steps eval_delay dataloader_num_workers kl "
        "center_rewards_coefficient regression_weight global_weight shared_rank from_layer monitor_steps restarts "
        "critic_hidden agent rollout_steps retries exchange_timeout lora_rank top_k temperature weight prompt_price "
        "completion_price max_cost diversity_weight sft_learning_rate",
    ),
    (
        ABOVE_0,
        "num_train_epochs epochs save_steps eval_steps logging_steps critic_learning_rate head_learning_rate "
        "inverse_regularization concentration train_beta rate_of_a rate_of_modulation lora_alpha repetition_penalty "
        "sft_epochs",
    ),
    (ABOVE_0_OR_INF, "critic_clip kl_budget requests_per_minute tokens_per_minute"),
    (SECONDS, "timeout drain"),
    (SHARE, "soup_share critic_lam min_p warmup overlap label_smoothing_factor case_weight"),
    (SHARE_ABOVE_0, "top_p near alike similar vllm_gpu_memory_utilization mfu mbu"),
    (SHARE_BELOW_1, "lora_dropout weight_average weight_average_start adam_beta1 adam_beta2 reserve"),
    (Range("a share in [0, 0.5)", 0, 0.5, below=True), "label_smoothing"),
    (PORT, "port vllm_server_port vllm_group_port"),
    (SEED, "seed data_seed"),
    (STEPS, "max_steps steps"),
    (RANK, "lora_r"),
    (FINITE, "entropy"),
)
RANGES: Mapping[str, Range] = {name: allowed for allowed, names in NAMES for name in names.split()}

OF_VERB: Mapping[tuple[str, str], Range] = {
    ("rl", "temperature"): ABOVE_0,  # policy gradients require sampled completions
    ("judge train", "temperature"): ABOVE_0,
    ("retriever", "temperature"): ABOVE_0,
    **dict.fromkeys((("rl", "top_k"), ("judge train", "top_k")), Range("at least 0, or -1 for off", -1, below=True)),
}
"""(verb, setting) -> range that differs from that of the other verbs."""

OFF: Mapping[str, float] = {"max_steps": -1, "steps": -1}
"""Setting -> value outside the range that means "not set"."""


def check_ranges(verb: str, settings: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for the first number outside its range; strings, lists and None are skipped."""
    for name, value in settings.items():
        allowed = OF_VERB.get((verb, name)) or RANGES.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value == OFF.get(name):
            continue
        if allowed is not None and not allowed.holds(value):
            raise UsageError(f"--{name} is {allowed.text}, got {value}")
        if allowed is None and math.isnan(value):
            raise UsageError(f"--{name} is a number, got {value}")
