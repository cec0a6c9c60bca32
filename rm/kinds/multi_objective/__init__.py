"""Multi-objective reward model, trained as kind `scalar` with several objectives and their weights."""

from ...registry import Kind
from ..scalar import ScalarContract


def multi_objective() -> Kind:
    """Rewards (r_1, ..., r_K, Σ_k w_k r_k) with weights w_k. The head has a row for each of these rewards."""
    return Kind(__name__, "model:load_multi_objective", contract=ScalarContract)
