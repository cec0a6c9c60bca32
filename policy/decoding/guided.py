"""Guided decoding of a batch of requests: incremental detokenization, and the loop from logits to completions."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from .engines import Engine
from .requests import FACTS, DecodedCompletion, Finish, Request
from .static.steps import DecodingSteps, Session

CHARACTER = 4  # maximum number of tokens for one character: one per byte of UTF-8


class TextStream:
    """Incremental text of a growing token sequence; each chunk is decoded once, together with the previous chunk."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        """Text of complete characters."""
        self._context: list[int] = []  # the last tokens with text: the first space of a decoded sequence may be lost
        self._pending: list[int] = []
        self._length = 0  # number of characters of the context that the text contains

    def add(self, tokens: Sequence[int]) -> None:
        """Append tokens. The bytes of an incomplete character are held back for up to `CHARACTER` tokens."""
        self.tokens += tokens
        self._pending += tokens
        size = len(self._pending)
        ends = range(size, max(0, size - CHARACTER), -1)
        windows = {end: self.decode(self._context + self._pending[:end]) for end in ends}
        complete = [end for end, window in windows.items() if not window.endswith("�")]
        if complete:
            self._release(windows[complete[0]], complete[0], held=0)
        elif size >= CHARACTER:
            self._release(windows[size], size, held=CHARACTER - 1)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _release(self, window: str, end: int, held: int) -> None:
        """Append the window's new text except its last `held` characters; `end` pending tokens become the context.

        Tokens without text (special ones) leave the context as it is.
        """
        news = window[self._length : max(0, len(window) - held)]
        if not news and held:
            return
        self.text += news
        if news or not self.text:
            self._context = self._pending[:end]
            self._length = len(self.decode(self._context)) - held
        self._pending = self._pending[end:]


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds: the name of a special token, `·` for a token within a character."""
    stream, texts = TextStream(tokenizer), []
    special = {*tokenizer.all_special_ids}
    for id in ids:
        before = len(stream.text)
        stream.add([id])
        text = stream.text[before:]
        texts.append(text or (str(tokenizer.convert_ids_to_tokens(id)) if id in special else "·"))
    return texts


# ---- ends ----


class CompletionReader:
    """Incremental reader of a request's tokens: detects the end, and returns text that later tokens cannot change."""

    def __init__(self, request: Request, tokenizer: Any, eos: frozenset[int], capacity: int):
        self.request = request
        self.finished: Finish | None = None
        self.room = capacity
        """Number of tokens that fit into the context."""
        self._stream = TextStream(tokenizer)
        self._eos = frozenset() if request.ignore_eos else eos
        added = tokenizer.get_added_vocab()
        self._stop_ids = {added[stop] for stop in request.stop if stop in added}
        self._returned = 0
        """Number of characters that `read` has returned."""

    @property
    def tokens(self) -> list[int]:
        """Token ids of the completion up to its end."""
        return self._stream.tokens

    @property
    def budget(self) -> int:
        """Maximum number of tokens."""
        return min(self.request.max_new_tokens, self.room)

    def read(self, tokens: Sequence[int]) -> str:
        """Append tokens up to the end of the completion. Return the new text that later tokens cannot change."""
        chunk = self._until_end(tokens)
        if self.request.stop:
            self._read_for_stops(chunk)
        else:
            self._stream.add(chunk)
        text = self.text() if self.finished else self._stream.text
        # a suffix that may be the start of a stop string is held back
        end = len(text) if self.finished else len(text) - _stop_prefix_length(text, self.request.stop)
        news, self._returned = text[self._returned : end], max(self._returned, end)
        return news

    def text(self) -> str:
        """Return the full text up to the stop string."""
        full_text = self._stream.decode(self.tokens)
        starts = [start for start in map(full_text.find, self.request.stop) if start >= 0]
        return full_text[: min(starts, default=len(full_text))]

    def completion(
        self, prompt_tokens: int, guides: Mapping[str, np.ndarray], facts: Sequence[np.ndarray]
    ) -> DecodedCompletion:
        """Return the completion with the statistics `FACTS` of its tokens. If it has no end, `finished` is "length"."""
        by_name = dict(zip(FACTS, facts, strict=True))
        end = self.finished or "length"
        return DecodedCompletion(self.text(), tuple(self.tokens), end, prompt_tokens, guides=guides, **by_name)

    def _until_end(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens up to an end-of-sequence token or to the maximum number of tokens."""
        chunk = list(tokens[: self.budget - len(self.tokens)])
        ends = [index for index, token in enumerate(chunk) if token in self._eos or token in self._stop_ids]
        if ends:
            chunk = chunk[: ends[0] + 1]
            self.finished = "eos" if chunk[-1] in self._eos else "stop"
        elif len(self.tokens) + len(chunk) == self.budget:
            self.finished = "length" if self.budget == self.request.max_new_tokens else "context"
        return chunk

    def _read_for_stops(self, chunk: list[int]) -> None:
        """Read token by token, so that the end does not depend on the size of the chunks."""
        longest = max(map(len, self.request.stop))
        for token in chunk:
            before = len(self._stream.text)
            self._stream.add([token])
            tail = self._stream.text[max(0, before - longest + 1) :]
            if any(stop in tail for stop in self.request.stop):
                self.finished = "stop"
                return


def _stop_prefix_length(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest suffix that may be the start of a stop string.

    >>> _stop_prefix_length("one two\\nQ", ["\\nQuestion"])
    2
    """
    sizes = (size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size]))
    return max(sizes, default=0)


# ---- decoding ----


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
        log = DecodingSteps(session, requests, steps, guide_logprobs=guide_logprobs)
        every = POLL.get(session.weights.device.type, 16)
        for first in range(0, steps, every):
            log.advance(min(every, steps - first))
            yield from _pieces(token_readers, log, first, engine, session)
            if all(reader.finished for reader in token_readers):
                return


def _pieces(
    token_readers: Sequence[CompletionReader], log: DecodingSteps, first: int, engine: Engine, session: Session
) -> Iterator[TextPiece]:
    """Yield the pieces of the steps from `first` on, for rows that were not finished before."""
    for row, tokens in enumerate(log.tokens[:, first : log.done].tolist()):
        reader = token_readers[row]
        if reader.finished:
            continue
        before = len(reader.tokens)
        text = reader.read(tokens)
        completion = _completion(reader, row, log, engine, session) if reader.finished else None
        yield TextPiece(row, tuple(reader.tokens[before:]), text, completion)


def _completion(
    reader: CompletionReader, row: int, log: DecodingSteps, engine: Engine, session: Session
) -> DecodedCompletion:
    """Return a row's completion with its token statistics; NaN for guides that were not run."""
    facts = log.facts[row, : len(reader.tokens)].double().cpu().numpy()
    guides = {name: np.full(len(facts), np.nan) for name in engine.guides}
    for guide_index, used in enumerate(session.used):
        if session.weighted[row][guide_index] and log.guide_logprobs:
            guides[engine.guides[used]] = facts[:, len(FACTS) + guide_index]
    return reader.completion(session.prompt_tokens[row], guides, facts.T[: len(FACTS)])
