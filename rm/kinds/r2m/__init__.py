"""R2M: a scalar reward model whose head also attends to the policy's hidden states of the same completion."""

from ...registry import Kind
from ..scalar import ScalarContract


def r2m() -> Kind:
    """r = φ((1 - ω) Ĥ + ω H), reward token H, Ĥ from policy states, weight ω  Huang et al. 2026, arXiv:2601.22664"""
    return Kind(__name__, "model:load_r2m", contract=ScalarContract)
