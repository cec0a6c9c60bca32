"""Implicit reward of a policy trained from preferences (DPO): its log-ratio to the reference policy."""

from ...registry import Kind
from ..autoregressive import LogprobContract


def implicit() -> Kind:
    """r(x, y) = β Σ_t [log π(y_t | x, y_<t) - log π_ref(y_t | x, y_<t)]      Rafailov et al. 2023, arXiv:2305.18290"""
    return Kind(__name__, "model:load_implicit", contract=LogprobContract)
