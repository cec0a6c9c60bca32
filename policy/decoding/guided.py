"""Guided decoding of a batch of requests: sampling loop from an engine's logits to completions."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from .detokenization import CompletionReader
from .engines import Engine
from .requests import FACTS, DecodedCompletion, Request
from .static.session import Session
from .static.steps import Steps

POLL = {"cpu": 1, "cuda": 16}  # steps between transfers of sampled tokens, each of which synchronises with the GPU


class TextPiece(NamedTuple):
    """New tokens and text of one completion."""

    row: int
    """Index of the request."""
    tokens: tuple[int, ...]
    text: str
    """Text that can no longer change; the pieces of a completion add up to its text."""
    completion: DecodedCompletion | None = None
    """The complete result, in the last piece."""


def decode(
    engine: Engine,
    requests: Sequence[Request],
    *,
    batch_size: int = 64,
    on_token: Callable[[TextPiece], None] | None = None,
    progress: bool | None = None,
    guide_logprobs: bool = True,
) -> list[DecodedCompletion]:
    """Decode a completion for every request, in order.

    A completion is a function of its request: its tokens do not depend on the rest of the batch, except for rounding in
    the model's forward pass. Prompts of similar length share a batch. `progress`: None shows a bar on a terminal.
    Without `guide_logprobs`, log-probabilities of guides in the completions are NaN, which saves computation.
    """
    order = sorted(range(len(requests)), key=lambda index: sum(len(turn["content"]) for turn in requests[index].prompt))
    completions: dict[int, DecodedCompletion] = {}
    with tqdm(total=len(requests), desc="decoding", disable=None if progress is None else not progress) as bar:
        for first in range(0, len(order), batch_size):
            indices = order[first : first + batch_size]
            batch = [requests[position] for position in indices]
            for piece in stream(engine, batch, guide_logprobs=guide_logprobs):
                piece = piece._replace(row=indices[piece.row])
                if on_token is not None:
                    on_token(piece)
                if piece.completion is not None:
                    completions[piece.row] = piece.completion
                    bar.update()
    return [completions[index] for index in range(len(requests))]


@torch.inference_mode()
def stream(
    engine: Engine, requests: Sequence[Request], *, guide_logprobs: bool = True
) -> Generator[TextPiece, None, None]:
    """Decode a batch and yield text pieces. The last piece of a request has its completion.

    Close the iterator to stop early.
    """
    if not requests:
        return
    with engine.session(requests) as session:
        token_readers = [
            CompletionReader(request, engine.base.encoder.tokenizer, engine.eos, capacity)
            for request, capacity in zip(requests, session.room, strict=True)
        ]
        steps = max(reader.budget for reader in token_readers)
        log = Steps(session, requests, steps, guide_logprobs=guide_logprobs)
        every = POLL.get(session.weights.device.type, 16)
        for first in range(0, steps, every):
            log.advance(min(every, steps - first))
            yield from _pieces(token_readers, log, first, engine, session)
            if all(reader.finished for reader in token_readers):
                return


def _pieces(
    token_readers: Sequence[CompletionReader], log: Steps, first: int, engine: Engine, session: Session
) -> Iterator[TextPiece]:
    """Yield pieces with the tokens of the steps from `seen` on, for rows that were not finished."""
    for row, tokens in enumerate(log.tokens[:, first : log.done].tolist()):
        reader = token_readers[row]
        if reader.finished:
            continue
        before = len(reader.tokens)
        text = reader.read(tokens)
        completion = _completion(reader, row, log, engine, session) if reader.finished else None
        yield TextPiece(row, tuple(reader.tokens[before:]), text, completion)


def _completion(reader: CompletionReader, row: int, log: Steps, engine: Engine, session: Session) -> DecodedCompletion:
    facts = log.facts[row, : len(reader.tokens)].double().cpu().numpy()
    guides = {name: np.full(len(facts), np.nan) for name in engine.guides}
    for guide_index, used in enumerate(session.used):
        if session.weighted[row][guide_index] and log.guide_logprobs:
            guides[engine.guides[used]] = facts[:, len(FACTS) + guide_index]
    return reader.completion(session.prompt_tokens[row], guides, facts.T[: len(FACTS)])
