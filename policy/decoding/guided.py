"""Guided decoding of a batch of requests: sampling loop from an engine's logits to completions."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from ...kernels.dispatch import wide
from ...kernels.guided_sampler import Sampled, guided_sampler
from .engines import Engine
from .requests import DecodedCompletion, Request
from .session import Logits, Session
from .stop_strings import Reader

POLL = {"cpu": 1, "cuda": 16}  # steps between transfers of sampled tokens, each of which synchronises with the GPU
FACTS = ("base", "mixed", "sampled", "entropy", "kl")


class Piece(NamedTuple):
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
    on_token: Callable[[Piece], None] | None = None,
    progress: bool | None = None,
) -> list[DecodedCompletion]:
    """Decode a completion for every request, in order.

    A completion is a function of its request: its tokens do not depend on the rest of the batch, except for rounding in
    the model's forward pass. Prompts of similar length share a batch. `progress`: None shows a bar on a terminal.
    """
    order = sorted(range(len(requests)), key=lambda index: sum(len(turn["content"]) for turn in requests[index].prompt))
    completions: dict[int, DecodedCompletion] = {}
    with tqdm(total=len(requests), desc="decoding", disable=None if progress is None else not progress) as bar:
        for first in range(0, len(order), batch_size):
            indices = order[first : first + batch_size]
            for piece in stream(engine, [requests[position] for position in indices]):
                piece = piece._replace(row=indices[piece.row])
                if on_token is not None:
                    on_token(piece)
                if piece.completion is not None:
                    completions[piece.row] = piece.completion
                    bar.update()
    return [completions[index] for index in range(len(requests))]


@torch.inference_mode()
def stream(engine: Engine, requests: Sequence[Request]) -> Generator[Piece, None, None]:
    """Decode one batch and yield pieces; the last piece of every request has its completion.

    Close the iterator to stop early: the engine is busy until then.
    """
    if not requests:
        return
    with engine.session(requests) as session:
        token_readers = [
            Reader(request, engine.base.encoder.tokenizer, engine.eos, capacity)
            for request, capacity in zip(requests, session.room, strict=True)
        ]
        steps = max(reader.budget for reader in token_readers)
        sample, every = _sampler(requests, session.weights), POLL.get(session.weights.device.type, 16)
        logits, seen = session.start(), 0
        log = _Log(len(requests), steps, logits)
        for step in range(steps):
            sampled = sample(logits, step)
            log.add(step, sampled, logits)
            if (step + 1) % every == 0 or step + 1 == steps:
                yield from _pieces(token_readers, log, seen, step + 1, engine, session)
                seen = step + 1
                if all(reader.finished for reader in token_readers):
                    return
            logits = session.step(sampled.token)


def _sampler(requests: Sequence[Request], weights: Float[Tensor, "N G"]) -> Callable[[Logits, int], Sampled]:
    """Create a function from logits and step to sampled tokens, with the sampling parameters of each request."""
    device = weights.device

    def column(name: str, off: float, dtype: torch.dtype) -> Tensor | None:
        values = [getattr(request, name) for request in requests]
        return None if {*values} == {off} else torch.tensor(values, dtype=dtype, device=device)

    rules = {
        "temperature": column("temperature", 0, torch.float32),
        "top_k": column("top_k", 0, torch.long),
        "top_p": column("top_p", 1, torch.float64),
        "min_p": column("min_p", 0, torch.float64),
        "seed": torch.tensor([request.seed for request in requests], device=device),
    }

    written = torch.tensor([len(request.prefix) for request in requests], device=device)

    def sample(logits: Logits, step: int) -> Sampled:
        position = written + step
        return guided_sampler(logits.base, logits.guides, weights, position=position, **rules)

    return sample


class _Log:
    """Sampled tokens and their statistics of every step, kept on the device until requested."""

    def __init__(self, rows: int, steps: int, logits: Logits):
        self.dtype = wide(logits.base.dtype)
        device, facts = logits.base.device, len(FACTS) + logits.guides.shape[1]
        self.tokens = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self.facts = torch.zeros(rows, steps, facts, dtype=self.dtype, device=device)

    def add(self, step: int, sampled: Sampled, logits: Logits) -> None:
        """Record one token of every row."""
        self.tokens[:, step] = sampled.token
        guides = _token_logprobs(logits.guides.to(self.dtype), sampled.token)
        values = (sampled.base, sampled.guided, sampled.logprob, sampled.entropy, sampled.kl)
        self.facts[:, step] = torch.cat([torch.stack(values, 1), guides], 1)


def _token_logprobs(logits: Float[Tensor, "N G V"], token: Int[Tensor, " N"]) -> Float[Tensor, "N G"]:
    """Return every guide's log-probability of the token, in nats."""
    chosen = token[:, None, None].expand(-1, logits.shape[1], 1)
    return logits.gather(2, chosen).squeeze(2) - logits.logsumexp(2)


def _pieces(
    token_readers: Sequence[Reader], log: _Log, seen: int, upto: int, engine: Engine, session: Session
) -> Iterator[Piece]:
    """Yield pieces with the tokens of steps `seen` to `upto`, for rows that were not finished."""
    for row, tokens in enumerate(log.tokens[:, seen:upto].tolist()):
        reader = token_readers[row]
        if reader.finished:
            continue
        before = len(reader.tokens)
        text = reader.read(tokens)
        completion = _completion(reader, row, log, engine, session) if reader.finished else None
        yield Piece(row, tuple(reader.tokens[before:]), text, completion)


def _completion(reader: Reader, row: int, log: _Log, engine: Engine, session: Session) -> DecodedCompletion:
    assert reader.finished is not None
    facts = log.facts[row, : len(reader.tokens)].double().cpu().numpy()
    guides = {name: np.full(len(facts), np.nan) for name in engine.guides}
    for guide_index, used in enumerate(session.used):
        if session.weighted[row][guide_index]:
            guides[engine.guides[used]] = facts[:, len(FACTS) + guide_index]
    return DecodedCompletion(
        text=reader.text(),
        tokens=tuple(reader.tokens),
        finished=reader.finished,
        prompt_tokens=session.prompt_tokens[row],
        guides=guides,
        **{name: facts[:, index] for index, name in enumerate(FACTS)},
    )
