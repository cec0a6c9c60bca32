"""Fast sampling and training of the worlds' small policies: one batch, cached prompts, no Trainer in between."""

from .loop import PolicyLoop, clipped, train_policy
from .sampling import Completions, kl_from, sample_completions
from .trunk import completion_readings, proxy_rewards, proxy_tokens

__all__ = [
    "Completions",
    "PolicyLoop",
    "clipped",
    "completion_readings",
    "kl_from",
    "proxy_rewards",
    "proxy_tokens",
    "sample_completions",
    "train_policy",
]
