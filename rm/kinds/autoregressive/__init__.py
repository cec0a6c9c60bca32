"""Autoregressive reward model: the log-probability of a completion under a causal language model is its reward."""

from ...registry import Kind
from .settings import AutoregressiveSettings


def autoregressive() -> Kind:
    """r(x, y) = β Σ_t log π_r(y_t | x, y_<t) of a causal language model π_r; adapters of GenARM, PARM or UniARM."""
    return Kind(
        __name__,
        "model:load_autoregressive",
        "training:AutoregressiveTraining",
        AutoregressiveSettings,
        contract="contract:AutoregressiveContract",
        by_gradient=True,
    )
