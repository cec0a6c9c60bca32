"""Known faults of reward scoring: apply each to our model, and name the one that explains another backend's scores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit, softmax

from ..backbones.forward_hooks import head_bias, head_inputs
from ..backbones.sequence_scores import decoder_head, head_outputs
from ..backbones.tokenization import edge_tokens
from ..contract.scoring_contract import PLAIN_TEMPLATE, Edge
from ..types import Example, LatentSteps, ScoresSteps, ScoresTokens

EXPLAINED = 0.1
"""A fault is the cause if at most this share of the difference remains after it is applied."""
SCALED = 1e-4
"""The same share for scores that were scaled and shifted: stricter, because the fit has two free parameters."""
ROUNDING = 0.1
"""Unexplained differences up to this many standard deviations of the scores may be rounding."""
CONVENTIONS: tuple[tuple[str, Edge, Edge], ...] = (
    ("BOS and EOS as the template writes them, as TRL reads", "template", "template"),
    ("BOS once and EOS as the template writes it, as reward-bench reads", "once", "template"),
    ("BOS as the template writes it and EOS once, as OpenRLHF reads", "template", "once"),
)
"""BOS and EOS policies of other programs if the template writes neither, with the matching contract fields."""
Ids = list[list[int]]


class BackendScores(NamedTuple):
    """Scores of the same conversations from another backend."""

    scores: np.ndarray
    """Scores [N, K]."""
    tokens: Sequence[Sequence[int]] | None = None
    """Token ids that the backend read, if it reports them."""
    because: str = ""
    """Reason for different or missing scores, if the backend reports one."""


def first_token(model: Any, examples: Sequence[Example], tokens: Sequence[Sequence[int]] | None) -> str:
    """Describe the first token that differs from our model's; empty if all agree, or if the backend reports none."""
    if tokens is None:
        return ""
    for index, (encoded, theirs) in enumerate(zip(model.encoder.encode_all(examples), tokens, strict=True)):
        ours = encoded.ids
        for position in range(max(len(ours), len(theirs))):
            our_id, other = (ids[position] if position < len(ids) else None for ids in (ours, theirs))
            if our_id != other:
                return f"conversation {index + 1}, token {position + 1}: {other} instead of {our_id}"
    return ""


def culprit(model: Any, examples: Sequence[Example], ours: np.ndarray, theirs: BackendScores) -> str:
    """Return the fault that explains why another backend's scores differ; if none does, a sentence that says so."""
    if theirs.because:
        return theirs.because
    gap = np.abs(theirs.scores - ours).max()
    if not np.isfinite(gap):
        return "scores that are missing or not finite"
    for name, scores in faults(model, examples, ours):
        if np.abs(theirs.scores - scores).max() <= EXPLAINED * gap:
            return name
    if scaled := _describe_affine(ours, theirs.scores):
        return scaled
    reads_other_tokens = bool(first_token(model, examples, theirs.tokens))
    if not reads_other_tokens and gap <= ROUNDING * ours.std(0).max():
        return "no known fault; the difference may be rounding in half precision"
    if theirs.tokens is None:
        return "another template, a re-initialised head or other weights: the backend does not report its tokens"
    if reads_other_tokens:
        return "other template"
    return "re-initialised head or other weights: the backend reads the same tokens"


def _describe_affine(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Describe scores that are a linear function of our scores; empty if they are not."""
    if len(ours) < 4 or np.ptp(ours[:, 0]) == 0:
        return ""
    shifts = (theirs - ours).mean(0)
    if np.abs(theirs - ours - shifts).max() <= SCALED * np.abs(theirs - ours).max():
        constants = ", ".join(f"{shift:.4g}" for shift in shifts)
        return f"{constants} added to every score, as by a head whose bias the weights lack"
    factor, shift = np.polyfit(ours[:, 0], theirs[:, 0], 1)
    remainder = np.abs(theirs - (factor * ours + shift)).max()
    return f"scores times {factor:.4g} plus {shift:.4g}" if remainder <= SCALED * np.abs(theirs - ours).max() else ""


def faults(model: Any, examples: Sequence[Example], ours: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names of faults, and the scores [N, K] that our model gives with each."""
    yield "sigmoid activation", expit(ours)
    single = ours.shape[1] == 1
    yield "softmax activation" + (" (of a single score, which is always 1)" if single else ""), softmax(ours, axis=1)
    yield "L2 normalisation of the scores", unit_norm_rows(ours)
    if not isinstance(model, ScoresTokens):
        return
    if isinstance(model, LatentSteps):
        yield from _latent_faults(model, examples)
    our_ids = [encoded.ids for encoded in model.encoder.encode_all(examples)]
    for name, ids in tokenization_faults(model, examples, our_ids):
        if ids != our_ids:
            yield name, score_ids(model, ids)
    if decoder_head(model.model) is not None:
        if (bias := head_bias(model.model)) is not None:
            yield "head without its bias", ours - bias.detach().double().cpu().numpy()
        yield from _pooling_faults(model, our_ids)
        yield "L2 normalisation before the head", _scores_of_unit_states(model, our_ids)
        yield from _padding_faults(model, our_ids)


def _latent_faults(model: Any, examples: Sequence[Example]) -> Iterator[tuple[str, np.ndarray]]:
    for steps in range(model.contract.latent_steps + 1):
        yield f"{steps} latent steps for every conversation", model.with_steps(steps).rate(examples)


def tokenization_faults(model: Any, examples: Sequence[Example], our_ids: Ids) -> Iterator[tuple[str, Ids]]:
    """Yield names of tokenization faults, and the token ids that each would produce for the same conversations."""
    before, after = edge_id(model, 0), edge_id(model, 1)
    if before is not None:
        yield "double BOS", [[before, *ids] for ids in our_ids]
        yield "missing BOS", [ids[1:] if ids[:1] == [before] else ids for ids in our_ids]
    if after is not None:
        yield "missing EOS", [ids[:-1] if ids[-1:] == [after] else ids for ids in our_ids]
        yield "double EOS", [[*ids, after] for ids in our_ids]
    yield "missing EOS", _ids_without_closing_tokens(model, examples, our_ids)
    for name, bos, eos in CONVENTIONS:
        yield name, _ids_with_edges(model, examples, bos, eos)
    yield "wrong truncation side", _ids_with_plain_truncation(model, examples)
    yield "no truncation", [untruncated_ids(model, example) for example in examples]
    for closed in ([], [after] if after is not None else []):
        plain = (ids if ids[-1:] == closed else [*ids, *closed] for ids in _ids_without_template(model, examples))
        yield "other template", [model.encoder.truncated(ids) for ids in plain]


def _ids_with_edges(model: Any, examples: Sequence[Example], bos: Edge, eos: Edge) -> Ids:
    """Return token ids under other BOS and EOS policies. A policy has no effect if the tokenizer lacks the token."""
    has = [edge_id(model, index) is not None for index in (0, 1)]
    policies = {name: edge for name, edge, has_edge in zip(("bos", "eos"), (bos, eos), has, strict=True) if has_edge}
    encoder = type(model.encoder)(model.encoder.tokenizer, replace(model.contract, **policies))
    return [encoded.ids for encoded in encoder.encode_all(examples)]


def _ids_without_closing_tokens(model: Any, examples: Sequence[Example], our_ids: Ids) -> Ids:
    """Remove the template's closing tokens: the longest suffix shared by two different completions of a prompt."""
    other = [Example(example.prompt, f"{example.text} x") for example in examples]
    closings = []
    for ids, theirs in zip(our_ids, (encoded.ids for encoded in model.encoder.encode_all(other)), strict=True):
        same = 0
        while same < min(len(ids), len(theirs)) and ids[-1 - same] == theirs[-1 - same]:
            same += 1
        closings.append(same)
    return [ids[: len(ids) - min(closings, default=0)] or ids for ids in our_ids]


def _ids_with_plain_truncation(model: Any, examples: Sequence[Example]) -> Ids:
    limit, findings = model.contract.max_length, []
    for example in examples:
        full_ids = untruncated_ids(model, example)
        if limit is not None and len(full_ids) > limit:
            full_ids = full_ids[:limit] if model.contract.truncation == "left" else full_ids[-limit:]
        findings.append(full_ids)
    return findings


def untruncated_ids(model: Any, example: Example) -> list[int]:
    """Return token ids before truncation."""
    ids = model.encoder.tokenizer(model.encoder.render(example), add_special_tokens=False, verbose=False).input_ids
    return model.encoder.with_edges(ids)


def _ids_without_template(model: Any, examples: Sequence[Example]) -> Ids:
    turns = [example.turns for example in examples]
    tokenizer = model.encoder.tokenizer
    texts = [tokenizer.apply_chat_template(turn, chat_template=PLAIN_TEMPLATE, tokenize=False) for turn in turns]
    return [
        model.encoder.with_edges(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False).input_ids
    ]


def _pooling_faults(model: Any, our_ids: Ids) -> Iterator[tuple[str, np.ndarray]]:
    rows = [evaluate(model, lambda row=ids: head_outputs(model.model, *_single_row(model, row))[0]) for ids in our_ids]
    yield "wrong pooling (mean)", np.stack([row.mean(0) for row in rows])
    yield "wrong pooling (first token)", np.stack([row[0] for row in rows])
    yield "wrong pooling (last token but one)", np.stack([row[max(len(row) - 2, 0)] for row in rows])
    yield "wrong pooling (sum)", np.stack([row.sum(0) for row in rows])


def unit_norm_rows(rows: np.ndarray) -> np.ndarray:
    """Return rows [N, K] divided by their Euclidean norm, as embedding endpoints do; a row of zeros stays as it is."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def _scores_of_unit_states(model: Any, our_ids: Ids) -> np.ndarray:
    """Return scores [N, K] of hidden states of length 1: w · h / |h|, as a pooler of embeddings normalises them."""
    head = decoder_head(model.model)
    assert head is not None

    def scores(ids: list[int]) -> torch.Tensor:
        tokens, attention = _single_row(model, ids)
        states = head_inputs(model.model, input_ids=tokens, attention_mask=attention.long())
        return head(torch.nn.functional.normalize(states[:, -1], dim=-1))

    return np.concatenate([evaluate(model, lambda row=ids: scores(row)) for ids in our_ids])


def wrong_shape(model: Any, theirs: BackendScores, ours: np.ndarray) -> str:
    """Describe scores whose shape differs from our [N, K]; hidden states are recognised by their width."""
    is_network = isinstance(model, ScoresTokens | ScoresSteps)
    width = model.model.config.get_text_config().hidden_size if is_network else None
    if theirs.scores.shape == (len(ours), width):
        return f"hidden states of width {width}: the head was not applied, as by a server of embeddings"
    return theirs.because or f"scores of shape {theirs.scores.shape}, but the model's have {ours.shape}"


def _padding_faults(model: Any, our_ids: Ids) -> Iterator[tuple[str, np.ndarray]]:
    filler = model.encoder.tokenizer.pad_token_id
    width = max(map(len, our_ids))
    for fill in {filler if filler is not None else 0, 0}:
        padded_right = [[*ids, *[fill] * (width - len(ids))] for ids in our_ids]
        padded_left = [[*[fill] * (width - len(ids)), *ids] for ids in our_ids]
        for ids in (padded_right, padded_left):
            yield "pad token scored as content", score_ids(model, ids)


def score_ids(model: Any, ids: Ids) -> np.ndarray:
    """Return scores [N, K] of rows of token ids, in batches of one and without further processing."""
    return np.concatenate([evaluate(model, lambda row=row: model.score(*_single_row(model, row))) for row in ids])


def _single_row(model: Any, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.tensor([ids], device=device_of(model))
    return tokens, torch.ones_like(tokens, dtype=torch.bool)


def evaluate(model: Any, call: Callable[[], torch.Tensor]) -> np.ndarray:
    """Return the output of `call` in float64, computed in eval mode without gradients."""
    model.model.eval()
    with torch.inference_mode():
        return call().double().cpu().numpy()


def device_of(model: Any) -> torch.device:
    """Return the device of the model's parameters."""
    return next(model.model.parameters()).device


def edge_id(model: Any, index: int) -> int | None:
    """Return the token id that is put before (index 0) or after (index 1) a text; None if the tokenizer has none."""
    token = edge_tokens(model.encoder.tokenizer)[index]
    return None if token is None else model.encoder.tokenizer.convert_tokens_to_ids(token)
