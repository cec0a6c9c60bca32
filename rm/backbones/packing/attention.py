"""Attention in training: selection of an implementation by name, and micro-batches computed without padding."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.utils.generic import is_flash_attention_requested

from ...errors import UsageError
from ..forward_hooks import language_model_of
from . import LEAST, NAME, Packed, check_layers, pack_batch, packing_limit


def attention_setting() -> Any:
    """Return the field of training arguments that names the attention implementation."""
    return field(
        default=None,
        metadata={
            "help": "Attention in training: eager, sdpa, flash_attention_2, or another that Transformers has; by "
            "default the model's. Saved models are scored with their own default."
        },
    )


@contextmanager
def with_attention(model: Any, name: str | None) -> Iterator[None]:
    """Switch a model to a named attention implementation within the context; None leaves it as it is."""
    before = model.config._attn_implementation if name else None
    set_attention(model, name)
    try:
        yield
    finally:
        set_attention(model, before)


def set_attention(model: Any, name: str | None) -> None:
    """Switch a model to a named attention implementation; raise `UsageError` if the model or machine lacks it."""
    if name is None or name == model.config._attn_implementation:
        return
    try:
        model.set_attn_implementation(name)
    except (ValueError, ImportError, RuntimeError) as error:
        raise _attention_error(model, name, str(error).strip().partition("\n")[0]) from error
    if model.config._attn_implementation != name:
        raise _attention_error(model, name, "its attention cannot be exchanged")


def _attention_error(model: Any, name: str, reason: str) -> UsageError:
    kind = model.config.model_type
    return UsageError(
        f"--attn_implementation {name} does not work with this {kind} model ({reason}); "
        "use sdpa or eager, or leave the option out"
    )


def check_padding_free(model: Any, name: str | None, max_length: int | None) -> None:
    """Raise `UsageError` unless model and attention (None: the model's) support packed rows of `max_length` tokens."""
    limit, kind = packing_limit(model), model.config.model_type
    if not (name in (None, "sdpa") or _is_flash(name)):
        raise UsageError(
            f"--padding_free needs --attn_implementation sdpa or FlashAttention, not {name}; remove one of the two"
        )
    if not limit:
        raise UsageError(
            f"--padding_free supports decoders in which every layer is plain softmax attention, unlike this {kind}; "
            "remove the option"
        )
    if limit < (max_length or sys.maxsize):
        raise UsageError(
            f"--padding_free supports sequences up to the sliding window of this {kind}, {limit} tokens, but "
            f"--max_length is {max_length or 'not set'}; lower --max_length, or remove --padding_free"
        )


@contextmanager
def padding_free(model: Any, name: str | None = None) -> Iterator[None]:
    """Compute padded batches without their padding within the context, with the attention implementation `name`.

    The backbone reads the distinct sequences of a batch as one row, and its hidden states are put back to [N, L, D]
    before the head; states at padding are undefined. By default (as for scoring) a prefix that sequences share is
    computed once; FlashAttention computes every sequence in full. With gradient checkpointing, the backward pass must
    run within the context too.
    """
    trunk: Any = language_model_of(model).base_model
    flash = name is not None and _is_flash(name)
    index: list[Tensor] = []

    def pack(_trunk: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        """Replace a padded batch by one row with its distinct sequences."""
        tokens = arguments[0] if arguments else options["input_ids"]
        packed, where = pack_batch(tokens, options["attention_mask"], sys.maxsize if flash else LEAST)
        index.append(where)
        row = {"input_ids": packed.tokens, "position_ids": packed.positions, "attention_mask": None, "use_cache": False}
        return (), options | row | (flash_lengths(packed) if flash else {"packed": packed})

    def unpack(_trunk: Any, _arguments: tuple[()], options: dict[str, Any], outputs: Any) -> Any:
        """Put the hidden states of the row back to the positions of the batch [N, L, D]."""
        if not flash:
            check_layers(trunk, options["packed"])
        where, states = index.pop(), outputs.last_hidden_state[0]
        outputs.last_hidden_state = states.index_select(0, where.flatten()).unflatten(0, where.shape)
        return outputs

    hooks = [trunk.register_forward_pre_hook(pack, with_kwargs=True)]
    hooks.append(trunk.register_forward_hook(unpack, with_kwargs=True))
    try:
        with with_attention(model, name if flash else NAME):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def flash_lengths(packed: Packed) -> dict[str, Any]:
    """Return Transformers' `FlashAttentionKwargs`, which separate the sequences of a row without shared prefixes."""
    ends = packed.last + 1
    offsets, longest = pad(ends, (1, 0)).to(torch.int32), max(map(len, packed.paths))
    return {f"cu_seq_lens_{side}": offsets for side in "qk"} | {f"max_length_{side}": longest for side in "qk"}


def _is_flash(name: str | None) -> bool:
    return is_flash_attention_requested(requested_attention_implementation=name)
