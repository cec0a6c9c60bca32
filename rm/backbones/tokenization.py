"""Encoder from conversations to token ids, shared by training, evaluation, reinforcement learning and serving."""

from collections.abc import Sequence
from functools import cached_property
from operator import is_
from os.path import commonprefix
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..contract.scoring_contract import Edge, ScoringContract
from ..errors import DataError, UsageError
from ..types import Example, Message, Messages, completion_turns, content_hash, prompt_text, tools_of
from .chat_templates import check_growth, check_template
from .hub import text_option
from .unrendered_parts import has_parts, omissions, omits_system, omitted_part, system_in_user, unrendered, write_out


class Rendered(NamedTuple):
    """A conversation as text for the model, and the first text of the conversation that the chat template omits."""

    text: str
    omitted: str = ""


class Encoded(NamedTuple):
    """Token ids after truncation, the length before truncation, and a text that the chat template omits, if any."""

    ids: list[int]
    length: int
    omitted: str = ""


class EncodedCompletion(NamedTuple):
    """Token ids after truncation, the length before truncation, and the index of the completion's first token."""

    ids: list[int]
    length: int
    start: int
    tool_results: tuple[range, ...] = ()
    """Index ranges of completion tokens that the assistant did not write: results of its tool calls."""
    omitted: str = ""
    """A text of the conversation that the chat template omits, if any."""


class Batch(NamedTuple):
    """Right-padded tokens [N, L] and their attention mask [N, L]."""

    tokens: Int[Tensor, "N L"]
    attention: Bool[Tensor, "N L"]


def edge_tokens(tokenizer: Any) -> tuple[str | None, str | None]:
    """Return the tokens before and after a text: BOS and EOS, or an encoder's CLS and SEP."""
    return tokenizer.bos_token or tokenizer.cls_token, tokenizer.eos_token or tokenizer.sep_token


def end_token_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end a text, according to config, generation config and tokenizer."""
    # configs of Transformers state any of these, as one id or several
    stated = [getattr(config, "eos_token_id", None) for config in (model.config, model.generation_config, tokenizer)]
    lists = [ids if isinstance(ids, list) else [ids] for ids in stated]
    return frozenset(id_ for ids in lists for id_ in ids if id_ is not None)


def control_tokens(tokenizer: Any) -> list[str]:
    """Return the texts that a tokenizer encodes as control tokens at any position, longest first.

    Tokens that mark turns are often only added special tokens, without a role such as EOS.
    """
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({token for token in [*added, *tokenizer.all_special_tokens] if len(token) > 2}, key=len, reverse=True)


def context_length(model: Any, tokenizer: Any) -> int:
    """Return the maximum number of tokens of prompt and completion together."""
    return min(position_limit(model.config) or 2**31, tokenizer.model_max_length)


def position_limit(config: Any) -> int | None:
    """Return the number of positions that a config of Transformers states; None if it states none."""
    return text_option(config, "max_position_embeddings")


def describe_tokenizer(
    tokenizer: PreTrainedTokenizerBase, bos: Edge | None = None, eos: Edge | None = None
) -> dict[str, str | None]:
    """Return the contract fields that a tokenizer determines: vocabulary, template, BOS and EOS policy.

    By default BOS is prepended once if the tokenizer would do so itself (Llama, Gemma), and never twice; EOS is
    appended once if the template does not close completions (plain text), and templates that close their turns are
    unchanged. Raises `UsageError` where a token is to be added once and the tokenizer has none.
    """
    before, after = edge_tokens(tokenizer)
    for name, policy, token in (("bos", bos, before), ("eos", eos, after)):
        if policy == "once" and token is None:
            raise UsageError(f"--{name} once: the tokenizer of '{tokenizer.name_or_path}' has no {name.upper()} token")
    adds_bos = before is not None and tokenizer("a").input_ids[:1] == [tokenizer.convert_tokens_to_ids(before)]
    return {
        "tokenizer": content_hash(sorted(tokenizer.get_vocab().items())),
        "template": None if tokenizer.chat_template is None else content_hash(tokenizer.chat_template),
        "bos": bos or ("once" if adds_bos else "template"),
        "eos": eos or ("template" if after is None or _closes_turns(tokenizer) else "once"),
    }


def _closes_turns(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template writes something after a completion that marks its end."""
    turns = [Message(role="user", content="question"), Message(role="assistant", content="answer")]
    check_template(tokenizer.chat_template, tokenizer.name_or_path)
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False)) if tokenizer.chat_template else "answer"
    except Exception as error:  # Jinja's errors, and anything that the template itself raises
        raise DataError(f"the chat template of '{tokenizer.name_or_path}' does not render a reply: {error}") from error
    return not text.rstrip().endswith("answer")


def check_renders(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `DataError` for a tokenizer without a chat template, or with one that inserts the current date."""
    if tokenizer.chat_template is None:
        raise DataError(
            f"the tokenizer of '{tokenizer.name_or_path}' has no chat template to render messages with; give one "
            "with --chat_template FILE, or --chat_template plain to join the turns with blank lines"
        )
    if "strftime_now" in str(tokenizer.chat_template) and "date_string" not in str(tokenizer.chat_template):
        raise DataError(
            f"the chat template of '{tokenizer.name_or_path}' writes today's date, so a score would change "
            "tomorrow; give one that does not with --chat_template FILE"
        )
    check_template(tokenizer.chat_template, tokenizer.name_or_path)


def single_token_id(tokenizer: Any, token: str, setting: str) -> int:
    """Return the id of a token that is given as text or as in the vocabulary; raise `UsageError` naming the setting."""
    ids = tokenizer(token, add_special_tokens=False).input_ids
    if len(ids) == 1:
        return ids[0]
    if token in tokenizer.get_vocab():
        return tokenizer.convert_tokens_to_ids(token)
    raise UsageError(
        f"--{setting} {token}: {len(ids)} tokens for this tokenizer, not one; give a token of its vocabulary"
    )


def pad(rows: Sequence[Sequence[int]], filler: int = 0) -> Batch:
    """Pad rows on the right. The filler's value has no effect, since positions are selected by the attention mask."""
    width = max((len(row) for row in rows), default=0)
    tokens = torch.full((len(rows), width), filler, dtype=torch.long)
    attention = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.tensor(row, dtype=torch.long)
        attention[index, : len(row)] = True
    return Batch(tokens, attention)


def right_padded(tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> Batch:
    """Return the same sequences with all padding on the right, so that no score depends on the padding side.

    >>> right_padded(torch.tensor([[9, 9, 5, 6]]), torch.tensor([[0, 0, 1, 1]])).tokens.tolist()
    [[5, 6, 9, 9]]
    """
    attention = attention.bool()
    order = (~attention).to(torch.uint8).argsort(dim=1, stable=True)
    return Batch(tokens.gather(1, order), attention.gather(1, order))


class Encoder:
    """Encodes conversations as token ids under a scoring contract."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, contract: ScoringContract):
        described = describe_tokenizer(tokenizer)
        for name, trained in (("tokenizer", contract.tokenizer), ("template", contract.template)):
            if described[name] != trained:
                raise DataError(
                    f"the {name} of '{tokenizer.name_or_path}' ({described[name]}) is not the one that the model was "
                    f"trained with ({trained}); load the tokenizer from the model's own folder"
                )
        self.tokenizer = tokenizer
        self.contract = contract
        self._latest: tuple[list[Example], list[Encoded]] = ([], [])
        self._edges: list[Any] = [
            None if token is None else tokenizer.convert_tokens_to_ids(token) for token in edge_tokens(tokenizer)
        ]
        check_renders(tokenizer)

    def render(self, example: Example) -> str:
        """Return the text of a conversation that the model reads."""
        return self.render_turns(example.turns)

    @cached_property
    def unrendered_parts(self) -> frozenset[str]:
        """Parts of a conversation that the chat template does not render, and that are written as text instead."""
        return unrendered(self._template)

    def render_turns(self, turns: Sequence[Message], **options: Any) -> str:
        """Render messages as `rendered` does, without reporting what the chat template omits."""
        return self.rendered(turns, **options).text

    def rendered(self, turns: Sequence[Message], **options: Any) -> Rendered:
        """Render messages with the chat template; tools, calls, reasoning or system turns that it omits become text.

        Reports other texts that it omits, such as reasoning within a content. Raises `DataError` if a tool, a call, a
        result or the last message's reasoning is lost nevertheless. `options` are those of `apply_chat_template`.
        """
        plain, tools = list(turns), []
        if has_parts(turns):
            developer = "developer" in str(self.tokenizer.chat_template)
            plain, tools = write_out(turns, tools_of(turns), self.unrendered_parts, developer)
            if part := omitted_part(self._template, plain, tools):
                raise self._omission_error(part, plain)
        text = self._rendered(plain, tools, turns, options)
        omitted = omissions(plain, text)
        if omits_system(plain, omitted):
            plain = system_in_user(plain)
            text = self._rendered(plain, tools, turns, options)
            omitted = omissions(plain, text)
        reasoning = turns[-1].get("reasoning_content", "") if turns else ""
        if any(omission.turn == len(plain) - 1 and omission.text in reasoning for omission in omitted):
            raise self._omission_error("reasoning", turns)
        return Rendered(text, omitted[0].text if omitted else "")

    def _rendered(
        self,
        plain: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        turns: Sequence[Message],
        options: dict[str, Any],
    ) -> str:
        """Return the rendered messages; raise `DataError` with their roles if the template refuses them."""
        try:
            text = self._template(plain, tools, **options)
            check_growth(text, turns)
            return text
        except Exception as error:  # templates raise arbitrary errors for roles and orders that they do not support
            roles = [turn["role"] for turn in turns]
            raise DataError(
                f"the chat template of '{self.tokenizer.name_or_path}' refuses roles {roles}: {error}"
            ) from error

    def _template(self, turns: Sequence[Message], tools: Sequence[dict[str, Any]], **options: Any) -> str:
        options |= {"tools": list(tools)} if tools else {}
        date = self.contract.date_string
        return str(self.tokenizer.apply_chat_template(list(turns), tokenize=False, date_string=date, **options))

    def _omission_error(self, part: str, turns: Sequence[Message]) -> DataError:
        return DataError(
            f"the chat template of '{self.tokenizer.name_or_path}' leaves out {part} in "
            f"{prompt_text(turns)[:60]!r}; give one that renders it with --chat_template FILE, or "
            "--chat_template plain"
        )

    def encode(self, example: Example) -> Encoded:
        """Return the token ids of one example."""
        return self.encode_all([example])[0]

    def encode_all(self, examples: Sequence[Example]) -> list[Encoded]:
        """Return the token ids of many examples, each encoded independently.

        The latest result is cached, because scoring needs it again after `readings` of the same examples.
        """
        examples = [*examples]
        if len(examples) != len(self._latest[0]) or not all(map(is_, examples, self._latest[0])):
            self._latest = (examples, self._encode_all(examples))
        return self._latest[1]

    def _encode_all(self, examples: Sequence[Example]) -> list[Encoded]:
        rendered = [self.rendered(example.turns) for example in examples]
        texts = [text for text, _ in rendered]
        rows = self.tokenizer(texts, add_special_tokens=False, verbose=False).input_ids if texts else []
        return [self._encoded(ids, omitted) for ids, (_, omitted) in zip(rows, rendered, strict=True)]

    def encode_completion(self, example: Example) -> EncodedCompletion:
        """Return the ids of `encode` and the index of the completion's first token; the completion extends to the end.

        The completion starts where the rendered prompt (with the generation prompt) ends; EOS and what the template
        writes after a completion belong to it. A token that spans the boundary belongs to the completion.
        """
        text, omitted = self.rendered(example.turns)
        prompt = self.render_turns(example.prompt, add_generation_prompt=True)
        if not text.startswith(prompt):
            raise self._no_completion_error(prompt)
        bounds = self._bounds_of_results(example, text)
        rows = self.tokenizer([text, prompt, *bounds], add_special_tokens=False, verbose=False).input_ids
        sequence, *heads = map(self._with_bos, rows)
        shared, *cuts = (len(commonprefix([sequence, head])) for head in heads)
        ids, length, _ = self._encoded(rows[0])
        first_kept = min(shared, int(ids[:1] == [self._edges[0]]))  # left truncation keeps a leading BOS

        def moved(token_position: int) -> int:
            """Return a token's position after truncation."""
            right = self.contract.truncation == "right"
            return min(token_position, len(ids)) if right else max(token_position - (length - len(ids)), first_kept)

        spans = tuple(range(moved(a), moved(b)) for a, b in zip(cuts[::2], cuts[1::2], strict=True))
        return EncodedCompletion(ids, length, moved(shared), spans, omitted)

    def _no_completion_error(self, before: str) -> DataError:
        return DataError(
            f"the chat template of '{self.tokenizer.name_or_path}' opens a reply with '{before[-40:]}' but "
            "renders no completion after it; give one that does with --chat_template FILE"
        )

    def _bounds_of_results(self, example: Example, text: str) -> list[str]:
        """Return the prefixes of a rendered conversation that end before and after each run of tool results."""
        completion = completion_turns(example.completion)
        results, heads = [turn["role"] == "tool" for turn in completion], []
        for index in range(1, len(completion)):
            if results[index] != results[index - 1]:
                turns = [*example.prompt, *completion[:index]]
                heads.append(self.render_turns(turns, add_generation_prompt=not results[index]))
        if not all(text.startswith(head) for head in heads):
            raise DataError(
                f"the chat template of '{self.tokenizer.name_or_path}' renders the beginning of a conversation "
                "differently once turns follow, so tool results cannot be located; give another one with "
                "--chat_template FILE"
            )
        return heads

    def encode_prompt(self, prompt: Messages) -> list[int]:
        """Return the ids of prompt and generation prompt, untruncated; raise `DataError` if nothing is rendered."""
        text = self.render_turns(prompt, add_generation_prompt=True)
        ids = self._with_bos(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
        if not ids:
            raise DataError(f"the chat template of '{self.tokenizer.name_or_path}' renders nothing of {prompt}")
        return ids

    def _with_bos(self, ids: list[int]) -> list[int]:
        before = self._edges[0]
        return [before, *ids] if self.contract.bos == "once" and ids[:1] != [before] else ids

    def with_edges(self, ids: list[int]) -> list[int]:
        """Return the ids of a rendered text with the contract's BOS and EOS, before truncation."""
        after = self._edges[1]
        ids = self._with_bos(ids)
        return [*ids, after] if self.contract.eos == "once" and ids[-1:] != [after] else ids

    def _encoded(self, ids: list[int], omitted: str = "") -> Encoded:
        """Return the ids with the contract's BOS and EOS, truncated."""
        finished = self.with_edges(ids)
        return Encoded(self.truncated(finished), len(finished), omitted)

    def truncated(self, ids: list[int]) -> list[int]:
        """Truncate ids as the contract requires; left truncation keeps a leading BOS."""
        limit = self.contract.max_length
        if limit is None or len(ids) <= limit:
            return ids
        if self.contract.truncation == "right":
            return ids[:limit]
        return [ids[0], *ids[len(ids) - limit + 1 :]] if ids[0] == self._edges[0] else ids[-limit:]
