"""Multi-objective reward model: one head with an output per objective and an overall reward, their weighted sum.

It is trained as kind `scalar` with several objectives and their weights.
"""

from ...registry.kind import Kind


def multi_objective() -> Kind:
    """(r_1, ..., r_K, Σ_k w_k r_k): a row of the head each; the weighted sum is one of its rows, too."""
    return Kind(__name__, "model:load_multi_objective", contract=".scalar.contract:ScalarContract")
