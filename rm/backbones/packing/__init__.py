"""Packing: many sequences in one row without padding, with shared prefixes computed once and scores unchanged.

In sorted order, sequence x_i shares its first s_i tokens with the previous one, and only the rest is computed:

    x_i = x_{i-1}[:s_i] + rest_i            Σ_i |rest_i| tokens instead of N max_i |x_i|

Positions count from the start of each sequence, and tokens attend only to their own sequence up to themselves (Krell et
al. 2021, arXiv:2107.02027; shared prefixes: Juravsky et al. 2024, arXiv:2402.05099).
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from peft import PeftModel
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..forward_hooks import head_inputs, language_model_of
from ..hub import text_option
from ..loading import embedding_rows
from ..sequence_scores import decoder_head

NAME = "rewardlab_packed"
LEAST = 16
"""Minimum length of a shared prefix in tokens: its keys and values are copied for each sequence in every layer."""
QUERIES = 256
"""Maximum number of queries per sequence that attend to a shared prefix at once; bounds the size of the mask."""
SLACK = {"cpu": 2**12}
"""Padded query-key pairs that may be computed to save one attention call, by device; 2^20 for other devices."""
HARMLESS = {"dropout", "is_causal", "sliding_window", "position_ids", "use_cache", "output_attentions"}
"""Options of an attention function that have no effect on sequences within the sliding window."""
LAYERS = {"full_attention", "sliding_attention"}
STRETCHED = {"dynamic", "longrope"}
"""Rotary embeddings that depend on the longest sequence in the batch."""
_TAKES: "WeakKeyDictionary[nn.Module, bool]" = WeakKeyDictionary()
Ids = Sequence[int]
Row = TypeVar("Row", bound=Ids)


def common_prefix_length(first: Ids, second: Ids, least: int = LEAST) -> int:
    """Return the length of the common prefix of two sequences; 0 if it is shorter than `least`.

    >>> common_prefix_length([5, 6, 7], [5, 6, 8, 9], least=2)
    2
    """
    same = next((index for index, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    same = min(len(first), len(second)) if same is None else same
    return same if same >= least else 0


def prefix_batches(rows: Sequence[Row], batch_tokens: int, least: int = LEAST) -> list[list[Row]]:
    """Split sorted, distinct sequences into batches of at most `batch_tokens` computed tokens, or of one long sequence.

    >>> prefix_batches([[1, 2, 3], [1, 2, 4], [1, 2, 5], [7]], 4, least=2)
    [[[1, 2, 3], [1, 2, 4]], [[1, 2, 5], [7]]]
    """
    batches: list[list[Row]] = []
    used = 0
    for row in rows:
        more = len(row) - common_prefix_length(batches[-1][-1], row, least) if batches else 0
        if batches and used + more <= batch_tokens:
            batches[-1].append(row)
            used += more
        else:
            batches.append([row])
            used = len(row)
    return batches


class Span(NamedTuple):
    """The last `queries` tokens of a sequence's beginning; `path` has the indices of all tokens of that beginning."""

    path: np.ndarray
    queries: int

    @property
    def is_whole_sequence(self) -> bool:
        """Whether the span starts at the beginning of its sequence."""
        return self.queries == len(self.path)


class AttentionCall(NamedTuple):
    """Spans that attend in one call, right-padded; values are indices into the packed row."""

    queries: Int[Tensor, "N S"]
    keys: Int[Tensor, "N K"]
    positions: Int[Tensor, "N S"] | None
    """Positions of the queries in their sequences; None if the spans are whole sequences, which need no mask."""


class Packed:
    """Sorted, distinct sequences as one row of T tokens, with the attention calls that cover them."""

    def __init__(self, rows: Sequence[Ids], device: torch.device, least: int = LEAST):
        tokens, positions, self.paths, spans = _lay_out(rows, least)
        groups = _groups(spans, len(tokens), SLACK.get(device.type, 2**20))
        self.tokens = torch.tensor([tokens], device=device)
        self.positions = torch.tensor([positions], device=device)
        self.last = torch.tensor([path[-1] for path in self.paths], device=device)
        """Index of every sequence's last token."""
        order, offset = np.empty(len(tokens), dtype=np.int64), 0
        self.parts = []
        for group in groups:
            self.parts.append(_part(group, offset, order, device))
            offset += self.parts[-1].queries.numel()
        self.order = torch.from_numpy(order).to(device)
        """Index of each token's output among the outputs of all attention calls."""
        self.layers = 0
        """Number of layers that have attended to the row."""


def pack_batch(
    tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"], least: int = LEAST
) -> tuple[Packed, Int[Tensor, "N L"]]:
    """Return the distinct sequences of a padded batch as one row, and each batch token's index in that row.

    The index of padding is 0. The layout is computed on the CPU, with one synchronisation with a GPU.

    >>> packed, index = pack_batch(torch.tensor([[7, 8], [5, 0], [7, 8]]), torch.tensor([[1, 1], [1, 0], [1, 1]]))
    >>> packed.tokens.tolist(), index.tolist()
    ([[5, 7, 8]], [[1, 2], [0, 0], [1, 2]])
    """
    mask, ids = attention.bool().cpu().numpy(), tokens.cpu().numpy()
    rows = [tuple(row[present].tolist()) for row, present in zip(ids, mask, strict=True)]
    distinct = sorted({*rows})
    packed = Packed(distinct, tokens.device, least)
    paths = dict(zip(distinct, packed.paths, strict=True))
    index = np.zeros(mask.shape, dtype=np.int64)
    index[mask] = np.concatenate([paths[row] for row in rows])
    return packed, torch.from_numpy(index).to(tokens.device)


def _lay_out(rows: Sequence[Ids], least: int) -> tuple[list[int], list[int], list[np.ndarray], list[Span]]:
    """Return the packed row's tokens and positions, the indices of every sequence's tokens, and the spans."""
    tokens: list[int] = []
    positions: list[int] = []
    paths: list[np.ndarray] = []
    spans: list[Span] = []
    path = np.empty(0, dtype=np.int64)
    for before, row in pairwise([(), *rows]):
        shared_length = common_prefix_length(before, row, least)
        path = np.concatenate([path[:shared_length], np.arange(len(tokens), len(tokens) + len(row) - shared_length)])
        tokens += row[shared_length:]
        positions += range(shared_length, len(row))
        paths.append(path)
        ends = range(shared_length + QUERIES, len(row) + QUERIES, QUERIES) if shared_length else [len(row)]
        for start, end in pairwise([shared_length, *(min(end, len(row)) for end in ends)]):
            spans.append(Span(path[:end], end - start))
    return tokens, positions, paths, spans


def _groups(spans: Sequence[Span], total: int, slack: int) -> list[list[Span]]:
    """Group spans of similar size, with at most `total` keys and at most `slack` padded query-key pairs per group."""
    groups: list[list[Span]] = []
    widest = exact = 0
    for span in sorted(spans, key=lambda segment: (segment.is_whole_sequence, len(segment.path), segment.queries)):
        area = span.queries * len(span.path)
        if groups and groups[-1][0].is_whole_sequence == span.is_whole_sequence:
            number = len(groups[-1]) + 1
            padded = number * max(widest, span.queries) * len(span.path)
            if number * len(span.path) <= total and padded - exact - area <= slack:
                groups[-1].append(span)
                widest, exact = max(widest, span.queries), exact + area
                continue
        groups.append([span])
        widest, exact = span.queries, area
    return groups


def _part(group: Sequence[Span], offset: int, order: np.ndarray, device: torch.device) -> AttentionCall:
    """Return the attention call of a group, and record in `order` where its outputs are, starting at `offset`."""
    number, width, depth = len(group), max(segment.queries for segment in group), len(group[-1].path)
    queries, positions = np.zeros((2, number, width), dtype=np.int64)
    keys = np.zeros((number, depth), dtype=np.int64)
    for row, (path, count) in enumerate(group):
        keys[row, : len(path)] = path
        queries[row, :count] = path[-count:]
        positions[row, :count] = np.arange(len(path) - count, len(path))
        order[path[-count:]] = offset + row * width + np.arange(count)
    placed = (torch.from_numpy(array).to(device) for array in (queries, keys, positions))
    part = AttentionCall(*placed)
    return part._replace(positions=None) if group[0].is_whole_sequence else part


def attend(
    module: nn.Module,
    query: Float[Tensor, "1 H T D"],
    key: Float[Tensor, "1 G T D"],
    value: Float[Tensor, "1 G T E"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    packed: Packed | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "1 T H E"], None]:
    """Compute attention of a packed row, part by part with Transformers' own function.

    Query p of a sequence attends to its keys 0 to p. The layout is an argument of the model's forward, so that gradient
    checkpointing recomputes layers with it. Raises ValueError for anything but plain softmax attention.
    """
    unsupported = [name for name, option in options.items() if option is not None and name not in HARMLESS]
    if packed is None or attention_mask is not None or query.shape[2] != packed.tokens.shape[1] or unsupported:
        raise ValueError(f"{type(module).__name__} does not support packed rows; it has options {unsupported}")
    packed.layers += (
        1  # `check_layers` compares it with the model's layers: one that did not come here read other sequences
    )
    rows = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # [T, H, D]
    head_outputs = []
    for part in packed.parts:
        indices = (part.queries, part.keys, part.keys)
        q, k, v = (_rows(row, index).transpose(1, 2) for row, index in zip(rows, indices, strict=True))  # [N, H, S, D]
        mask = None
        if part.positions is not None:
            mask = torch.arange(k.shape[2], device=k.device) <= part.positions[:, None, :, None]
        outputs, _ = sdpa_attention_forward(module, q, k, v, mask, scaling=scaling, **options)
        head_outputs.append(outputs.flatten(0, 1))
    return _rows(torch.cat(head_outputs), packed.order)[None], None


def _rows(tensor: Float[Tensor, "T H D"], index: Int[Tensor, "*N"]) -> Float[Tensor, "*N H D"]:
    """Return `tensor[index]`, whose gradient is summed row by row in place, without sorting the indices first."""
    return tensor.index_select(0, index.flatten()).unflatten(0, index.shape)


AttentionInterface.register(NAME, attend)


@contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Switch the model to packed attention within the context; no other thread may run the model meanwhile."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def packed_scores(model: Any, packed: Packed) -> Float[Tensor, "N K"]:
    """Return the head's output at the last token of every sequence; call within `packed_attention`."""
    head = decoder_head(model)
    assert head is not None
    return head(_states(model, packed)[packed.last])


def _states(model: Any, packed: Packed) -> Float[Tensor, "T D"]:
    """Return the head's input for a packed row; raise ValueError unless every layer used packed attention."""
    states = head_inputs(model, input_ids=packed.tokens, position_ids=packed.positions, packed=packed)[0]
    check_layers(model, packed)
    return states


def check_layers(model: Any, packed: Packed) -> None:
    """Raise ValueError unless every layer of the model used the attention of packed rows."""
    layers = model.config.get_text_config().num_hidden_layers
    if packed.layers != layers:
        raise ValueError(
            f"{packed.layers} of {layers} layers attended to the packed row; the others read it as one sequence"
        )


def packing_limit(model: Any) -> int:
    """Return the longest sequence, in tokens, that may be packed with others; 0 if the model does not support packing.

    Supported are decoders with Transformers' attention interface, in which every layer is softmax attention with given
    positions; with a sliding window, up to its size. Not supported are encoders, recurrent or convolutional layers,
    chunked attention, soft caps, sinks, positional biases, and rotary embeddings that depend on the batch. What the
    config does not state is tested once on a few tokens.
    """
    if not _is_supported(model):
        return 0
    if model not in _TAKES:
        _TAKES[model] = _is_exact(model)
    return _sliding_window(model.config) if _TAKES[model] else 0


def _is_supported(model: Any) -> bool:
    if isinstance(model, PeftModel) and model.active_peft_config.is_prompt_learning:
        return False
    base = language_model_of(model)
    if decoder_head(base) is None or not isinstance(base, PreTrainedModel) or base._is_stateful:
        return False
    trunk = base.base_model
    attentions = {
        module.config._attn_implementation for module in base.modules() if isinstance(module, PreTrainedModel)
    }
    return (
        trunk is not base
        and isinstance(trunk, PreTrainedModel)
        and trunk._supports_attention_backend
        and len(attentions) == 1
        and attentions <= {"sdpa", "eager"}
        and "position_ids" in inspect.signature(trunk.forward).parameters
        and {*(text_option(base.config, "layer_types") or ())} <= LAYERS
        and not STRETCHED & _rotary_kinds(text_option(base.config, "rope_parameters") or {})
    )


def _rotary_kinds(parameters: dict[str, Any]) -> set[str]:
    """Return the types of rotary embeddings of the model, or of each type of layer."""
    inner = [_rotary_kinds(parameter) for parameter in parameters.values() if isinstance(parameter, dict)]
    return {str(parameters.get("rope_type"))}.union(*inner)


def _sliding_window(config: Any) -> int:
    """Return the size of the sliding attention window in tokens; `sys.maxsize` without one."""
    kinds, window = text_option(config, "layer_types"), text_option(config, "sliding_window")
    return sys.maxsize if window is None or (kinds and "sliding_attention" not in kinds) else window


@torch.no_grad()
def _is_exact(model: Any) -> bool:
    """Return whether three short sequences, two with a common prefix, have the same hidden states packed and alone."""
    device, trained = next(model.parameters()).device, [module for module in model.modules() if module.training]
    model.eval()  # dropout, such as a trained adapter's, would make any two states differ
    a, b, c, d, e, f = torch.linspace(0, embedding_rows(model) - 1, 6).long().tolist()
    rows = [[b, c, d], [b, c, e, f], [d, a]]
    tokens = [torch.tensor([row], device=device) for row in rows]
    alone = [head_inputs(model, input_ids=token, attention_mask=torch.ones_like(token))[0, -1] for token in tokens]
    packed = Packed(rows, device, least=2)
    try:
        with packed_attention(model):
            packed_states = _states(model, packed)[packed.last]
    except Exception:  # unsupported models fail in various ways
        return False
    finally:
        for module in trained:
            module.training = True
    truth = torch.stack(alone)
    tolerance = 1e-4 if truth.dtype.itemsize > 2 else 5e-2
    return bool((packed_states - truth).norm() <= tolerance * truth.norm())
