"""Conversion of conversations, rendered texts and token ids to queue items by the model's scoring contract."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...rm.backbones.loading import embedding_rows
from ...rm.backbones.tokenization import Encoded, Encoder
from ...rm.contract.readings import encoders_of
from ...rm.data.conversation_split import as_completion
from ...rm.data.messages_and_tools import as_message, as_tools, with_tools
from ...rm.errors import DataError
from ...rm.types import Example, RewardModel, ScoresSteps, ScoresTokens, prompt_text, tools_of, user_turn
from .protocol import ClassifyRequest, PoolingRequest, RewardRequest, ScoreRequest, Turn
from .refusals import Refused
from .settings import ServeConfig

MESSAGE_LENGTH = 300  # characters of a template's own words


class Item(NamedTuple):
    """A conversation or token sequence to score."""

    content: Example | list[int]
    """A conversation, or token ids."""
    cost: int
    """Number of tokens after truncation. Without a tokenizer, a quarter of the number of characters."""
    tokens: int | None = None
    """Number of tokens that the model reads. None if it is unknown."""
    truncated: bool | None = None
    omitted: str | None = None
    """A text of the conversation that the chat template omits. None if the template omits nothing."""


class RequestParser:
    """Converts requests for one model in a single thread. Raises `Refused` for requests that cannot be scored."""

    def __init__(self, model: RewardModel, config: ServeConfig):
        self.encoders = [copy.deepcopy(encoder) for encoder in encoders_of(model)]  # the scoring thread has its own
        per_token = isinstance(model, ScoresSteps)
        rows = embedding_rows(model.model) if isinstance(model, ScoresTokens | ScoresSteps) else None
        self.vocabulary, self.token_vocabulary = (None, rows) if per_token else (rows, None)
        self.config = config

    def score(self, body: ScoreRequest) -> list[Item]:
        """Return the items of `POST /score`."""
        if body.tokens is not None:
            return self._ids(body.tokens, body.truncate, self.vocabulary)
        return self._conversations(body.conversations or [], body.tools, body.truncate)

    def classify(self, body: ClassifyRequest) -> list[Item]:
        """Return the items of `POST /classify`."""
        truncate = body.truncate_prompt_tokens is not None
        if body.messages is not None:
            return self._conversations([body.messages], body.tools, truncate)
        inputs = [body.input] if isinstance(body.input, str) else body.input or []
        if inputs and isinstance(inputs[0], int):
            inputs = [inputs]
        if all(isinstance(item, str) for item in inputs):
            return self._texts(inputs, truncate)
        return self._ids(inputs, truncate, self.vocabulary)

    def pooling(self, body: PoolingRequest) -> list[Item]:
        """Return the items of `POST /pooling`."""
        if self.token_vocabulary is None:
            raise Refused(422, "this model does not score single tokens; send conversations to /score")
        rows = body.input if body.input and isinstance(body.input[0], list) else [body.input]
        return self._ids(rows, body.truncate_prompt_tokens is not None, self.token_vocabulary)  # type: ignore[arg-type]

    def get_reward(self, body: RewardRequest) -> list[Item]:
        """Return the items of `POST /get_reward`, truncated by the scoring contract, as in OpenRLHF's server."""
        if self.vocabulary is not None:
            return self._texts(body.query, True)
        if body.prompts is None:
            raise Refused(422, "this model reads prompt and response separately; add prompts to the request")
        for index, (prompt, query) in enumerate(zip(body.prompts, body.query, strict=True)):
            if not query.startswith(prompt):
                raise Refused(422, f"query.{index} does not begin with its prompt, so there is no response to score")
        pairs = zip(body.prompts, body.query, strict=True)
        return self._examples([Example(user_turn(prompt), query[len(prompt) :]) for prompt, query in pairs], True)

    # ---- three kinds of input ----

    def _conversations(self, conversations: Sequence[Sequence[Turn]], tools: Any, truncate: bool) -> list[Item]:
        return self._examples([_example(turns, tools, index) for index, turns in enumerate(conversations)], truncate)

    def _examples(self, examples: Sequence[Example], truncate: bool) -> list[Item]:
        self._check_conversation_count(examples)
        if not self.encoders:
            sizes = [len(prompt_text(example.prompt)) + len(example.text) for example in examples]
            items = [Item(example, size // 4 + 1) for example, size in zip(examples, sizes, strict=True)]
            return self._check_token_counts(items, [])
        readings = [*zip(*(_read(encoder, examples) for encoder in self.encoders), strict=True)]
        lengths = [max(encoded.length for encoded in some) for some in readings]
        read_lengths = [max(len(encoded.ids) for encoded in some) for some in readings]
        cut = [any(len(encoded.ids) < encoded.length for encoded in some) for some in readings]
        self._check_truncation(lengths, cut, truncate)
        omitted = [
            next((encoded.omitted[:MESSAGE_LENGTH] for encoded in some if encoded.omitted), None) for some in readings
        ]
        facts = zip(examples, read_lengths, read_lengths, cut, omitted, strict=True)
        items = [Item(*values) for values in facts]
        return self._check_token_counts(items, lengths)

    def _texts(self, texts: Sequence[str], truncate: bool) -> list[Item]:
        if self.vocabulary is None:
            raise Refused(422, "this model does not score rendered text; send conversations to /score")
        self._check_conversation_count(texts)
        encoder = self.encoders[0]
        read = encoder.tokenizer([*texts], add_special_tokens=False, verbose=False).input_ids if texts else []
        return self._sequences([encoder.with_edges(ids) for ids in read], truncate)

    def _ids(self, rows: Sequence[list[int]], truncate: bool, vocabulary: int | None) -> list[Item]:
        if vocabulary is None:
            raise Refused(422, "this model does not score token ids; send conversations to /score")
        self._check_conversation_count(rows)
        for index, ids in enumerate(rows):
            if any(not 0 <= token_id < vocabulary for token_id in ids):
                raise Refused(422, f"sequence {index} has an invalid token id; ids are 0 to {vocabulary - 1}")
        return self._sequences(rows, truncate)

    def _sequences(self, rows: Sequence[list[int]], truncate: bool) -> list[Item]:
        """Return the items of sequences of token ids. With `truncate`, truncate them by the scoring contract."""
        lengths = [len(ids) for ids in rows]
        truncated = [self.encoders[0].truncated(ids) for ids in rows]
        cut = [len(ids) < length for ids, length in zip(truncated, lengths, strict=True)]
        self._check_truncation(lengths, cut, truncate)
        items = [Item(ids, len(ids), len(ids), short) for ids, short in zip(truncated, cut, strict=True)]
        return self._check_token_counts(items, lengths)

    # ---- limits ----

    def _check_conversation_count(self, rows: Sequence[Any]) -> None:
        if len(rows) > (most := self.config.request_items):
            raise Refused(422, f"{len(rows)} conversations in one request; the limit is {most}; split it", limit=most)

    def _check_truncation(self, lengths: Sequence[int], cut: Sequence[bool], truncate: bool) -> None:
        if any(cut) and not truncate:
            limit = min(encoder.contract.max_length or max(lengths) for encoder in self.encoders)
            raise Refused(
                422,
                f"{sum(cut)} of {len(cut)} conversations are longer than the {limit} tokens that the model reads; "
                "shorten them, or set truncate",
                lengths=[*lengths],
                limit=limit,
            )

    def _check_token_counts(self, items: list[Item], lengths: Sequence[int]) -> list[Item]:
        most = self.config.item_tokens
        for position, length in enumerate(lengths or [item.cost for item in items]):
            if length > most:
                raise Refused(422, f"conversation {position} has {length} tokens, but the limit is {most}", limit=most)
        if empty := [index for index, item in enumerate(items) if not item.cost]:
            raise Refused(422, f"conversation {empty[0]} has no tokens for the model to read")
        if (total := sum(item.cost for item in items)) > (most := self.config.request_tokens):
            raise Refused(422, f"{total} tokens in one request, but the limit is {most}; split it", limit=most)
        return items


def _example(turns: Sequence[Turn], tools: Any, index: int) -> Example:
    """Split a conversation into prompt and completion. `tools` are added if the conversation declares no tools."""
    if not turns or turns[-1].role != "assistant":
        raise Refused(422, f"conversation {index} does not end with a response of the assistant")
    start = next((number for number, turn in enumerate(turns) if turn.begins_completion), len(turns) - 1)
    try:
        prompt = tuple(as_message(turn.raw(), "messages") for turn in turns[:start])
        answer = as_completion([turn.raw() for turn in turns[start:]], "messages")
        if prompt and not tools_of(prompt):
            prompt = with_tools(prompt, as_tools(tools))
        return Example(prompt, answer)
    except ValueError as error:
        raise Refused(422, f"conversation {index}: {error}"[:MESSAGE_LENGTH]) from None


def _read(encoder: Encoder, examples: Sequence[Example]) -> list[Encoded]:
    """Encode conversations. Raise `Refused` if the chat template raises an error."""
    try:
        return encoder.encode_all(examples)
    except DataError as error:
        raise Refused(422, str(error)[:MESSAGE_LENGTH]) from None
