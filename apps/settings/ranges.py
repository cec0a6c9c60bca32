"""Ranges of numeric settings, in one table for all verbs, checked before anything is loaded."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...rm.errors import UsageError


class Range(NamedTuple):
    """Interval of numbers that a setting accepts, never NaN; `text` describes it in error messages."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether the lower bound is excluded."""
    below: bool = False
    """Whether the upper bound is excluded."""

    def holds(self, value: float) -> bool:
        """Return whether the value is in the range."""
        low = self.low < value if self.above else self.low <= value
        return low and (value < self.high if self.below else value <= self.high)


LARGEST_SEED = 2**32 - 1

AT_LEAST_0 = Range("at least 0 and finite", 0, below=True)
AT_LEAST_1 = Range("at least 1", 1, below=True)
AT_LEAST_2 = Range("at least 2", 2, below=True)
ABOVE_0 = Range("above 0 and finite", 0, above=True, below=True)
ABOVE_0_OR_INF = Range("above 0", 0, above=True)
FINITE = Range("a finite number", above=True, below=True)
SHARE = Range("a share in [0, 1]", 0, 1)
SHARE_ABOVE_0 = Range("a share in (0, 1]", 0, 1, above=True)
SHARE_BELOW_1 = Range("a share in [0, 1)", 0, 1, below=True)
PORT = Range("a port in 0..65535", 0, 65_535)
SEED = Range(f"a whole number in 0..{LARGEST_SEED}", 0, LARGEST_SEED)
RANK = Range("a rank in 1..65536", 1, 65_536)
STEPS = Range("at least 1, or -1 for as many as the epochs have", 1, below=True)
SECONDS = Range("above 0 seconds", 0, above=True)

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
