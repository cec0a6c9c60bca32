"""Process reward model: a token classifier that scores every step of a completion where the step ends."""

from ...registry import Kind
from .settings import ProcessSettings


def process() -> Kind:
    """p_t = σ(w · h_t + b), the probability that step t is correct.

    The scoring contract states how p_t are aggregated.
    """
    return Kind(
        __name__,
        "model:load_process",
        "training:ProcessTraining",
        ProcessSettings,
        contract="contract:ProcessContract",
        by_gradient=True,
        padding_free=True,
    )
