"""Run code inside a model's own forward, so that wrappers (DDP, FSDP, autocast) see every use of its weights."""

import functools
from collections.abc import Callable
from inspect import signature
from types import MethodType
from typing import Any, TypeVar

from accelerate.utils import extract_model_from_parallel
from jaxtyping import Float
from torch import Tensor, nn

from .sequence_scores import decoder_head

T = TypeVar("T")


def handle_keyword(model: Any, word: str, read: Callable[[Any, Any], Any]) -> None:
    """Make `model(word=x)` return `read(model, x)` within the model's forward; other calls are unchanged."""
    original = model.forward.__func__  # unbound, so that a deep copy of the model runs its own weights

    @functools.wraps(type(model).forward)  # `generate` inspects the signature
    def forward(self: Any, *args: Any, **options: Any) -> Any:
        argument = options.pop(word, None)
        return original(self, *args, **options) if argument is None else read(self, argument)

    model.forward = MethodType(forward, model)


def install(model: Any) -> None:
    """Make `model(read=f)` return f(language model), even if an adapter wraps the model; see `handle_keyword`."""
    language_model = language_model_of(model)
    handle_keyword(language_model, "read", lambda inner, read: read(inner))
    language_model.read_inside = True


def run_inside(model: Any, read: Callable[[Any], T]) -> T:
    """Call `read` on the language model, within the forward pass of `model` if `install` was called on `model`."""
    language_model = language_model_of(extract_model_from_parallel(model))
    # `install` marks a module of another library, which has no such attribute of its own
    return model(read=read) if getattr(language_model, "read_inside", False) else read(language_model)


def language_model_of(model: Any) -> Any:
    """Return the model without its adapter wrapper."""
    # PEFT's wrappers have the method, Transformers' models do not
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def cache_argument(model: Any) -> str:
    """Return the name of the key-value cache in a model's arguments and outputs; "" for a model without one.

    Transformers 5.24 renames `past_key_values` to `cache`, and calls the state of Mamba a cache as well.
    """
    parameters = signature(model.forward).parameters
    if model._is_stateful and "position_ids" not in parameters:
        return ""
    return next((name for name in ("cache", "past_key_values") if name in parameters), "")


def head_bias(model: nn.Module) -> Tensor | None:
    """Return the bias of a decoder's head, which may be a module of any class; None if the head has no bias."""
    return getattr(decoder_head(model), "bias", None)


def head_inputs(model: nn.Module, **inputs: Any) -> Float[Tensor, "N L D"]:
    """Return the hidden states that a decoder's head reads, at every position of the model's `inputs`."""
    return module_inputs(model, decoder_head(model), **inputs, use_cache=False)


def module_inputs(model: nn.Module, module: nn.Module | None, **inputs: Any) -> Tensor:
    """Return the input of a module of the model in a forward pass on `inputs`."""
    assert module is not None
    states: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _module, arguments: states.append(arguments[0]))
    try:
        model(**inputs)
    finally:
        hook.remove()
    return states[0]
