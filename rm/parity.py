"""Is it one number? A reward model's scores beside those of another way to get them, and what makes a difference."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit, softmax

from .contract import PLAIN_TEMPLATE
from .encode import edge_tokens, pad
from .trunks import decoder_head, head_outputs
from .types import Example, Message, RewardModel

HALF = 2e-2
"""Largest difference in half precision, in standard deviations of the scores."""
FULL = 1e-4
"""The same in single precision."""
EXPLAINED = 0.1
"""A fault is named if it leaves at most this share of the difference."""
Ids = list[list[int]]


class Scored(NamedTuple):
    """What another way made of the conversations."""

    scores: np.ndarray
    """[N, K]"""
    tokens: Sequence[Sequence[int]] | None = None
    """What it read, where it tells."""


class Parity(NamedTuple):
    """One way beside our scores; differences in units of the reward."""

    way: str
    largest: float
    mean: float
    tolerance: float
    flips: float
    """Share of pairs of conversations that it puts in the other order, in [0, 1]."""
    token: str
    """Where it first reads another token; empty where it reads the same or does not tell."""
    culprit: str
    """What explains a difference beyond the tolerance; empty where there is none."""

    @property
    def passed(self) -> bool:
        """Whether it is the same number."""
        return self.largest <= self.tolerance


def parity(
    model: RewardModel,
    examples: Sequence[Example],
    ways: Mapping[str, Callable[[Sequence[Example]], Scored]],
    *,
    half: Sequence[str] = (),
) -> Iterator[Parity]:
    """Each way's scores against the model's own; those named `half` compute in half precision.

    Same is a largest difference of 1e-4 standard deviations of the model's scores over the conversations, 2e-2 in half
    precision. A score that is missing or not finite is infinitely far.
    """
    ours = model.rate(examples)
    coarse = model.contract.dtype not in ("float32", "float64")
    for name, way in ways.items():
        tolerance = max((HALF if coarse or name in half else FULL) * float(ours.std(0).max()), 1e-6)
        yield compared(model, examples, ours, name, way(examples), tolerance)


def compared(
    model: RewardModel, examples: Sequence[Example], ours: np.ndarray, way: str, theirs: Scored, tolerance: float
) -> Parity:
    """One way beside `ours` [N, K]; where they differ, what explains it."""
    if theirs.scores.shape != ours.shape:
        raise ValueError(f"{way} gave scores of shape {theirs.scores.shape} and the model {ours.shape}")
    gaps = np.nan_to_num(np.abs(theirs.scores - ours), nan=np.inf)
    token = _first_token(model, examples, theirs.tokens)
    found = Parity(way, float(gaps.max()), float(gaps.mean()), tolerance, flipped(ours, theirs.scores), token, "")
    return found if found.passed else found._replace(culprit=culprit(model, examples, ours, theirs))


def flipped(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Share of pairs of rows, over all objectives, that are in the other order; equal scores flip nothing.

    >>> flipped(np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [3.0], [2.0]]))
    0.33...
    """
    first, second = np.triu_indices(len(ours), 1)
    if not len(first):
        return 0.0
    return float(((ours[first] - ours[second]) * (theirs[first] - theirs[second]) < 0).mean())


def _first_token(model: Any, examples: Sequence[Example], tokens: Sequence[Sequence[int]] | None) -> str:
    if tokens is None:
        return ""
    for place, (encoded, theirs) in enumerate(zip(model.encoder.encode_all(examples), tokens, strict=True)):
        ours = encoded.ids
        for position in range(max(len(ours), len(theirs))):
            own, other = (ids[position] if position < len(ids) else None for ids in (ours, theirs))
            if own != other:
                return f"conversation {place + 1}, token {position + 1}: {other} instead of {own}"
    return ""


# ---- the model's own ways ----


def own_ways(model: RewardModel, seed: int = 0) -> dict[str, Callable[[Sequence[Example]], Scored]]:
    """Alone, in shuffled company, padded on either side and with any pad token: none of it may change a score."""
    ways: dict[str, Callable[[Sequence[Example]], Scored]] = {
        "alone": lambda examples: Scored(np.concatenate([model.rate([one]) for one in examples])),
        "shuffled": lambda examples: Scored(_shuffled(model, examples, seed)),
    }
    if hasattr(model, "encoder") and hasattr(model, "score"):
        for side in ("left", "right"):
            ways[f"padded on the {side}"] = lambda examples, side=side: Scored(_padded(model, examples, side))
        ways["pad is EOS"] = lambda examples: Scored(_padded(model, examples, "right", _edge(model, 1) or 0))
    return ways


def _shuffled(model: RewardModel, examples: Sequence[Example], seed: int) -> np.ndarray:
    order = np.random.default_rng(seed).permutation(len(examples))
    found = np.empty((len(examples), len(model.contract.objectives)))
    for some in np.array_split(order, max(1, len(order) // 3)):
        found[some] = model.rate([examples[place] for place in some])
    return found


def _padded(model: Any, examples: Sequence[Example], side: str, filler: int = 0) -> np.ndarray:
    batch = pad([one.ids for one in model.encoder.encode_all(examples)], filler)
    tokens, attention = batch
    if side == "left":
        moves = (~attention).sum(1)
        places = (torch.arange(tokens.shape[1]) - moves[:, None]) % tokens.shape[1]
        tokens, attention = tokens.gather(1, places), attention.gather(1, places)
    return _run(model, lambda: model.score(tokens.to(_device(model)), attention.to(_device(model))))


# ---- what went wrong ----


def culprit(model: Any, examples: Sequence[Example], ours: np.ndarray, theirs: Scored) -> str:
    """The fault that turns our scores into theirs, the likeliest first; what no fault explains is said to be so.

    A fault explains them if repeating it with our model leaves at most a tenth of the difference.
    """
    gap = np.abs(theirs.scores - ours).max()
    if not np.isfinite(gap):
        return "scores that are missing or not finite"
    for name, scores in faults(model, examples, ours):
        if np.abs(theirs.scores - scores).max() <= EXPLAINED * gap:
            return name
    if scaled := _affine(ours, theirs.scores):
        return scaled
    if theirs.tokens is None:
        return "another template, a re-initialised head or other weights: it does not tell which tokens it reads"
    if _first_token(model, examples, theirs.tokens):
        return "other template"
    return "re-initialised head or other weights: it reads the same tokens"


def _affine(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Scores that were multiplied and shifted afterwards."""
    if len(ours) < 4 or np.ptp(ours[:, 0]) == 0:
        return ""
    factor, shift = np.polyfit(ours[:, 0], theirs[:, 0], 1)
    left = np.abs(theirs - (factor * ours + shift)).max()
    return f"scores times {factor:.4g} plus {shift:.4g}" if left <= FULL * np.abs(theirs - ours).max() else ""


def faults(model: Any, examples: Sequence[Example], ours: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Names of faults, and the scores [N, K] that our model would give with each."""
    yield "sigmoid activation", expit(ours)
    if ours.shape[1] > 1:
        yield "softmax activation", softmax(ours, axis=1)
    if not (hasattr(model, "encoder") and hasattr(model, "score")):
        return
    right = [one.ids for one in model.encoder.encode_all(examples)]
    for name, ids in readings(model, examples, right):
        if ids != right:
            yield name, score_ids(model, ids)
    if decoder_head(model.model) is not None:
        yield from _poolings(model, right)
        yield from _padding_read(model, right)


def readings(model: Any, examples: Sequence[Example], right: Ids) -> Iterator[tuple[str, Ids]]:
    """Other token ids that others would read for the same conversations."""
    before, after = _edge(model, 0), _edge(model, 1)
    if before is not None:
        yield "double BOS", [[before, *ids] for ids in right]
        yield "missing BOS", [ids[1:] if ids[:1] == [before] else ids for ids in right]
    if after is not None:
        yield "missing EOS", [ids[:-1] if ids[-1:] == [after] else ids for ids in right]
        yield "double EOS", [[*ids, after] for ids in right]
    yield "missing EOS", _unclosed(model, examples, right)
    yield "wrong truncation side", _cut_elsewhere(model, examples)
    for closed in ([], [after] if after is not None else []):
        plain = (ids if ids[-1:] == closed else [*ids, *closed] for ids in _plain(model, examples))
        yield "other template", [model.encoder.truncated(ids) for ids in plain]


def _unclosed(model: Any, examples: Sequence[Example], right: Ids) -> Ids:
    """Without what the template closes an answer with: where two different answers end alike."""
    other = [Example(one.prompt, f"{one.answer} x") for one in examples]
    closings = []
    for ids, theirs in zip(right, (one.ids for one in model.encoder.encode_all(other)), strict=True):
        same = 0
        while same < min(len(ids), len(theirs)) and ids[-1 - same] == theirs[-1 - same]:
            same += 1
        closings.append(same)
    return [ids[: len(ids) - min(closings, default=0)] or ids for ids in right]


def _cut_elsewhere(model: Any, examples: Sequence[Example]) -> Ids:
    limit, found = model.contract.max_length, []
    for example in examples:
        whole = whole_ids(model, example)
        if limit is not None and len(whole) > limit:
            whole = whole[:limit] if model.contract.truncation == "left" else whole[-limit:]
        found.append(whole)
    return found


def whole_ids(model: Any, example: Example) -> list[int]:
    """Token ids before truncation."""
    ids = model.encoder.tokenizer(model.encoder.render(example), add_special_tokens=False, verbose=False).input_ids
    return model.encoder.finished(ids)


def _plain(model: Any, examples: Sequence[Example]) -> Ids:
    turns = [[*one.prompt, Message(role="assistant", content=one.answer)] for one in examples]
    tokenizer = model.encoder.tokenizer
    texts = [tokenizer.apply_chat_template(one, chat_template=PLAIN_TEMPLATE, tokenize=False) for one in turns]
    return [model.encoder.finished(ids) for ids in tokenizer(texts, add_special_tokens=False).input_ids]


def _poolings(model: Any, right: Ids) -> Iterator[tuple[str, np.ndarray]]:
    rows = [_at_every_token(model, ids) for ids in right]
    yield "wrong pooling (mean)", np.stack([row.mean(0) for row in rows])
    yield "wrong pooling (first token)", np.stack([row[0] for row in rows])
    yield "wrong pooling (last token but one)", np.stack([row[max(len(row) - 2, 0)] for row in rows])
    yield "wrong pooling (sum)", np.stack([row.sum(0) for row in rows])


def _padding_read(model: Any, right: Ids) -> Iterator[tuple[str, np.ndarray]]:
    filler = model.encoder.tokenizer.pad_token_id
    width = max(map(len, right))
    for fill in {filler if filler is not None else 0, 0}:
        behind = [[*ids, *[fill] * (width - len(ids))] for ids in right]
        front = [[*[fill] * (width - len(ids)), *ids] for ids in right]
        for ids in (behind, front):
            yield "pad token scored as content", score_ids(model, ids)


def score_ids(model: Any, ids: Ids) -> np.ndarray:
    """Scores [N, K] of token ids as they are, each alone."""
    return np.concatenate([_run(model, lambda one=one: model.score(*_row(model, one))) for one in ids])


def _at_every_token(model: Any, ids: list[int]) -> np.ndarray:
    return _run(model, lambda: head_outputs(model.model, *_row(model, ids))[0])


def _row(model: Any, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.tensor([ids], device=_device(model))
    return tokens, torch.ones_like(tokens, dtype=torch.bool)


def _run(model: Any, call: Callable[[], torch.Tensor]) -> np.ndarray:
    model.model.eval()
    with torch.inference_mode():
        return call().double().cpu().numpy()


def _device(model: Any) -> torch.device:
    return next(model.model.parameters()).device


def _edge(model: Any, place: int) -> int | None:
    token = edge_tokens(model.encoder.tokenizer)[place]
    return None if token is None else model.encoder.tokenizer.convert_tokens_to_ids(token)
