"""Linear reward model on the completion's words and length. It ignores the prompt and trains in seconds."""

from ...registry import Kind
from .._settings import FittedSettings


def linear() -> Kind:
    """r(x, y) = w · tfidf(y) + v · log(1 + |y|), |y| in characters: a baseline for comparisons of reward models."""
    return Kind(__name__, "model:load_linear", "training:LinearTraining", FittedSettings)
