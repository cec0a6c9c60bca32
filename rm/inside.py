"""A model read inside its own forward, so that what wraps it (DDP, FSDP, autocast) sees every use of its weights."""

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar

from accelerate.utils import extract_model_from_parallel

T = TypeVar("T")


def install(model: Any) -> None:
    """Let `model(read=f)` return f(language model); every other call is as before. Before anything wraps the model."""
    own = _language_model(model)
    original = own.forward.__func__  # of no instance, so that a copy of the model runs its own weights

    @functools.wraps(type(own).forward)
    def forward(self: Any, *args: Any, read: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        return original(self, *args, **options) if read is None else read(self)

    own.forward = MethodType(forward, own)
    own.read_inside = True


def inside(model: Any, read: Callable[[Any], T]) -> T:
    """`read(language model)`, within the forward of what wraps it; directly where nothing was installed."""
    own = _language_model(extract_model_from_parallel(model))
    return model(read=read) if getattr(own, "read_inside", False) else read(own)


def _language_model(model: Any) -> Any:
    """Without an adapter around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
