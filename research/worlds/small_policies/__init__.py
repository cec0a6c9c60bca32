"""Fast sampling and training of the worlds' small policies: one batch, cached prompts, no Trainer in between."""

from .loop import PolicyLoop, train_policy
from .sampling import Completions, sample_completions
from .trunk import completion_readings, proxy_rewards, proxy_tokens

__all__ = [
    "Completions",
    "PolicyLoop",
    "completion_readings",
    "proxy_rewards",
    "proxy_tokens",
    "sample_completions",
    "train_policy",
]
