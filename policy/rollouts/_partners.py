"""Partner models of a policy: loading by path, prompts with roles and thoughts, and conversations in turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trl import GRPOConfig

from ...rm.backbones.loading import load_causal_lm, load_tokenizer
from ...rm.data.messages_and_tools import with_tools
from ...rm.errors import DataError, UsageError
from ...rm.io.hub_names import absolute_name
from ...rm.types import Message, Messages, content_hash, tools_of
from ..decoding.engines import DecodingModel, SeparateModels, decoding_model, end_tokens
from ..decoding.guided import decode
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


def with_role(prompt: Messages, role: str) -> Messages:
    """Return the prompt with the role as its only system message; an empty role leaves it unchanged.

    >>> [turn["content"] for turn in with_role(({"role": "user", "content": "2 + 2?"},), "Give ideas, no answer.")]
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
    """Load a frozen language model, or an adapter with its base model; `chat_template` is a Jinja file, or `plain`."""
    source = absolute_name(source)  # an adapter stores the name of its base
    tokenizer = load_tokenizer(source, chat_template=chat_template, **loading)
    model = load_causal_lm(source, tokenizer, device=device, **loading)
    return decoding_model(model.requires_grad_(False), tokenizer)


def sample_texts(model: DecodingModel, prompts: Sequence[Messages], seeds: Sequence[int], longest: int) -> list[str]:
    """Generate one completion per prompt at temperature 1, of at most `longest` tokens, determined by its seed."""
    pairs = zip(prompts, seeds, strict=True)
    requests = [Request(prompt, seed=seed, max_new_tokens=longest) for prompt, seed in pairs]
    completions = decode(SeparateModels(model), requests, batch_size=BATCH_SIZE, progress=False)
    return [completion.text for completion in completions]


def sampling_arguments(args: GRPOConfig) -> dict[str, Any]:
    """Return TRL's sampling settings as arguments of `Request`; raise `UsageError` for unsupported settings."""
    if args.repetition_penalty != 1 or args.generation_kwargs:
        raise UsageError("these --rollouts support no repetition_penalty and no generation_kwargs; remove both")
    return {
        "temperature": args.temperature,
        "top_k": max(args.top_k or 0, 0),
        "top_p": args.top_p,
        "min_p": args.min_p or 0.0,
        "max_new_tokens": args.max_completion_length,
    }


def group_size(args: GRPOConfig, *, training: bool) -> int:
    """Return the number of completions (consecutive rows) per prompt, in training or in evaluation."""
    size = int(args.num_generations or 1)
    return size if training else int(args.num_generations_eval or size)


def with_samples(trainer: Any, ids: Sequence[list[int]], tokens_by_row: dict[int, list[int]]) -> dict[str, Any]:
    """Return the columns of a rollout: `tokens_by_row`, and completions that the trainer samples for other rows."""
    others = [row for row in range(len(ids)) if row not in tokens_by_row]
    if others:
        samples = trainer._generate_single_turn([ids[row] for row in others], None, {}, num_generations=1)[0]
        tokens_by_row = tokens_by_row | dict(zip(others, samples, strict=True))
    return {"prompt_ids": ids, "completion_ids": [tokens_by_row[row] for row in range(len(ids))], "logprobs": None}


def seeds_of(seed: int, request: object, number: int) -> list[int]:
    """Derive seeds from the run's seed, the request (a JSON value) and the index, for callers that lack a step."""
    step = int(content_hash(request), 16)
    return [derived(seed, step, index) for index in range(number)]


# ---- turns ----


class Exchange(NamedTuple):
    """Turns of a dialogue between two agents, by row. The policy is the first agent, its partner the second."""

    prompts: tuple[Messages, ...]
    completions: tuple[list[str], list[str]]
    critiques: tuple[list[str], list[str]]
    """Each agent's critique of the other's completion."""
    rewrites: tuple[list[str], list[str]]
    """Each agent's rewrite of its own completion, after the other's critique."""


class Side:
    """Conversations of one agent: the tokens after each prompt, and a mask of the tokens that the agent generated."""

    def __init__(self, model: DecodingModel, prompts: Sequence[Messages], **sampling: Any):
        self.model, self.prompts, self.sampling = model, prompts, sampling
        """`sampling` are arguments of `Request`."""
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self.mask: list[list[int]] = [[] for _ in prompts]
        """1 for tokens that the agent generated, 0 for tokens of the other's turns."""

    def generate(self, seeds: Sequence[int]) -> list[str]:
        """Generate the agent's next turn in every conversation, as a continuation of its exact tokens."""
        requests = [
            Request(prompt, prefix=tuple(tokens), seed=seed, **self.sampling)
            for prompt, tokens, seed in zip(self.prompts, self.tokens, seeds, strict=True)
        ]
        completions = decode(SeparateModels(self.model), requests, batch_size=BATCH_SIZE, progress=False)
        for index, completion in enumerate(completions):
            self.tokens[index] += completion.tokens
            self.mask[index] += [1] * len(completion.tokens)
        return [completion.text for completion in completions]

    def append_turn(self, texts: Sequence[str]) -> None:
        """Append a user turn to every conversation, up to the beginning of the agent's next turn."""
        ends = end_tokens(self.model)
        for index, (prompt, text) in enumerate(zip(self.prompts, texts, strict=True)):
            next_prompt = turn_between(self.model, prompt, text)
            if self.tokens[index][-1] in ends and next_prompt[:1] and next_prompt[0] in ends:
                next_prompt = next_prompt[1:]  # the agent has generated the end of its turn itself
            self.tokens[index] += next_prompt
            self.mask[index] += [0] * len(next_prompt)


def turn_between(model: DecodingModel, prompt: Messages, text: str) -> list[int]:
    """Return the tokens between one reply and the next in the chat template: the end of the first, and a user turn."""
    turns = [*prompt, Message(role="assistant", content=MARK), Message(role="user", content=text)]
    encoder = model.encoder
    text = encoder.render_turns(turns, add_generation_prompt=True)
    return encoder.tokenizer(text.partition(MARK)[2], add_special_tokens=False, verbose=False).input_ids
