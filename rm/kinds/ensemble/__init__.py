"""Ensemble of reward models, optionally with a penalty on their disagreement."""

from ...registry import Kind
from .settings import EnsembleSettings


def ensemble() -> Kind:
    """r(x, y) = mean_m z_m - λ std_m z_m, or another combination of the members' standardised rewards z_m."""
    return Kind(__name__, "model:load_ensemble", "training:EnsembleTraining", EnsembleSettings, reads_data=False)
