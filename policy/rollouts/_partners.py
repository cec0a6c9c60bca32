"""Partner models of a policy: loading by path, prompts with roles and thoughts, and conversations in turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...rm.backbones.loading import load_causal_lm, load_tokenizer
from ...rm.data.messages_and_tools import with_tools
from ...rm.errors import DataError
from ...rm.io.hub_names import whole_name
from ...rm.types import Message, Messages, content_hash, tools_of
from ..decoding.engines import SeparateModels
from ..decoding.guided import decode
from ..decoding.language_models import DecodingModel, decoding_model, end_tokens
from ..decoding.requests import Request
from ..decoding.search import derived

BATCH_SIZE = 64
MARK = "0f1e2d3c4b5a"
"""Placeholder for a reply, to find the text that the chat template writes after it."""

# ---- prompts ----


def with_thought(prompt: Messages, thought: str) -> Messages:
    """Return the prompt with a thought appended to its last user turn.

    >>> with_thought(({"role": "user", "content": "2 + 2?"},), "Count on.")[0]["content"]
    '2 + 2?\\n\\nThoughts of a colleague:\\nCount on.'
    """
    message = f"Thoughts of a colleague:\n{thought}"
    if prompt[-1]["role"] != "user":
        return (*prompt, Message(role="user", content=message))
    return (*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}\n\n{message}"})


def in_role(prompt: Messages, role: str) -> Messages:
    """Return the prompt with the role as its only system message; an empty role leaves it unchanged.

    >>> [turn["content"] for turn in in_role(({"role": "user", "content": "2 + 2?"},), "Give ideas, no answer.")]
    ['Give ideas, no answer.', '2 + 2?']
    """
    if not role:
        return prompt
    others = (turn for turn in prompt if turn["role"] not in ("system", "developer"))
    return with_tools((Message(role="system", content=role), *others), tools_of(prompt))


def read_role(path: str) -> str:
    """Read a role's text from a file; an empty path gives an empty role."""
    if not path:
        return ""
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file; a role is the path of a text file, such as role=solver.txt")
    return Path(path).read_text(encoding="utf-8").strip()


# ---- partner models ----


def open_partner(
    source: str, *, device: str | None = None, chat_template: str | None = None, **loading: Any
) -> DecodingModel:
    """Load a frozen language model, or an adapter over one; `chat_template` is a Jinja file, or `plain`."""
    source = whole_name(source)  # an adapter stores the name of its base
    tokenizer = load_tokenizer(source, chat_template=chat_template, **loading)
    model = load_causal_lm(source, tokenizer, device=device, **loading)
    return decoding_model(model.requires_grad_(False), tokenizer)


def sample_texts(who: DecodingModel, prompts: Sequence[Messages], seeds: Sequence[int], longest: int) -> list[str]:
    """Generate one completion per prompt at temperature 1, of at most `longest` tokens, determined by its seed."""
    asked = [Request(prompt, seed=seed, max_new_tokens=longest) for prompt, seed in zip(prompts, seeds, strict=True)]
    return [completion.text for completion in decode(SeparateModels(who), asked, batch_size=BATCH_SIZE, progress=False)]


def sampling_of(trainer: Any) -> dict[str, Any]:
    """Return the run's sampling settings as arguments of `Request`."""
    return {
        "temperature": trainer.temperature,
        "top_k": trainer.top_k or 0,
        "top_p": trainer.top_p,
        "min_p": trainer.min_p or 0.0,
        "max_new_tokens": trainer.max_completion_length,
    }


def seeds_of(seed: int, asked: object, number: int) -> list[int]:
    """Derive seeds from the run's seed, the request (a JSON value) and the index, for callers without a step."""
    step = int(content_hash(asked), 16)
    return [derived(seed, step, index) for index in range(number)]


# ---- turns ----


class Exchange(NamedTuple):
    """Turns of two agents by row: the policy's first, its partner's second."""

    prompts: tuple[Messages, ...]
    completions: tuple[list[str], list[str]]
    critiques: tuple[list[str], list[str]]
    """Each agent's critique of the other's completion."""
    rewrites: tuple[list[str], list[str]]
    """Each agent's rewrite of its own completion, after the other's critique."""


class Side:
    """One agent's conversations: the tokens after each prompt, and a mask of those that it generated."""

    def __init__(self, who: DecodingModel, prompts: Sequence[Messages], **drawn: Any):
        self.who, self.prompts, self.drawn = who, prompts, drawn
        """`drawn` are sampling arguments of `Request`."""
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self.own: list[list[int]] = [[] for _ in prompts]
        """1 for tokens that the agent generated, 0 for tokens of the other's turns."""

    def generate(self, seeds: Sequence[int]) -> list[str]:
        """Generate the agent's next turn in every conversation, as a continuation of exactly its tokens."""
        asked = [
            Request(prompt, prefix=tuple(tokens), seed=seed, **self.drawn)
            for prompt, tokens, seed in zip(self.prompts, self.tokens, seeds, strict=True)
        ]
        completions = decode(SeparateModels(self.who), asked, batch_size=BATCH_SIZE, progress=False)
        for index, partner_completion in enumerate(completions):
            self.tokens[index] += partner_completion.tokens
            self.own[index] += [1] * len(partner_completion.tokens)
        return [completion.text for completion in completions]

    def hear(self, texts: Sequence[str]) -> None:
        """Append a user turn to every conversation, up to the beginning of the agent's next turn."""
        ends = end_tokens(self.who)
        for index, (prompt, text) in enumerate(zip(self.prompts, texts, strict=True)):
            next_prompt = turn_behind(self.who, prompt, text)
            if self.tokens[index][-1] in ends and next_prompt[:1] and next_prompt[0] in ends:
                next_prompt = next_prompt[1:]  # the agent has generated the end of its turn itself
            self.tokens[index] += next_prompt
            self.own[index] += [0] * len(next_prompt)


def turn_behind(who: DecodingModel, prompt: Messages, text: str) -> list[int]:
    """Return the tokens between one reply and the next in the chat template: the end of the first, and a user turn."""
    turns = [*prompt, Message(role="assistant", content=MARK), Message(role="user", content=text)]
    encoder = who.encoder
    written = encoder.render_turns(turns, add_generation_prompt=True)
    return encoder.tokenizer(written.partition(MARK)[2], add_special_tokens=False, verbose=False).input_ids
