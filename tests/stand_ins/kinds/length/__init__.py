"""A kind of reward model as a user adds one: the length of a completion, with a weight that is fitted to pairs."""

from ...registry import Kind
from .settings import LengthSettings


def length() -> Kind:
    """r(x, y) = w |y|^p, |y| in characters"""
    return Kind(__name__, "model:load_length", "training:LengthTraining", LengthSettings)
