"""Scalar reward model: any Hugging Face decoder or encoder backbone with a linear head on the sequence."""

from ...registry import Kind
from .settings import ScalarSettings


def scalar() -> Kind:
    """r(x, y) = w · h_last, one reward per objective                            Ouyang et al. 2022, arXiv:2203.02155"""
    return Kind(
        __name__,
        "model:load_scalar",
        "training:scalar_training",
        ScalarSettings,
        contract="contract:ScalarContract",
        by_gradient=True,
        padding_free=True,
    )
