"""Prompts and completions from text and messages, and the prompt that two conversations share."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import Any

from ..types import AnyCompletion, Completion, Message, Messages, completion, user_turn
from .messages_and_tools import as_message, parsed_messages


def split_conversations(prompt: Any, chosen: Any, rejected: Any) -> tuple[Messages, AnyCompletion, AnyCompletion]:
    """Return prompt, chosen and rejected completion.

    Without `prompt`, the prompt is the conversations' common beginning.
    """
    chosen, rejected = parsed_messages(chosen, "chosen"), parsed_messages(rejected, "rejected")
    if isinstance(chosen, str) != isinstance(rejected, str):
        raise ValueError("one of chosen and rejected is text and the other is messages")
    if prompt is not None:
        turns = as_prompt(prompt)
        completions = [
            completion if isinstance(completion, str) else as_reply(_after(turns, as_turns(completion, name)), name)
            for name, completion in (("chosen", chosen), ("rejected", rejected))
        ]
    elif isinstance(chosen, str) and not chosen.lstrip().startswith("Human:"):
        turns, *completions = _common_text(chosen, rejected)
    else:
        read = dialogue if isinstance(chosen, str) else as_turns
        turns, *completions = _common_turns(read(chosen, "chosen"), read(rejected, "rejected"))
    return turns, completions[0], completions[1]


def as_turns(value: Any, name: str) -> list[Message]:
    """Return a list of messages, which may be stored as JSON text; raise `ValueError` for anything else."""
    turns = parsed_messages(value, name)
    if not isinstance(turns, list | tuple) or not turns:
        raise ValueError(f"'{name}' is not text and not a list of messages: {type(value).__name__}")
    return [as_message(turn, name) for turn in turns]


def as_prompt(value: Any) -> Messages:
    """Return a text as one user turn, or a list of messages, which may be stored as JSON text."""
    turns = parsed_messages(value, "prompt")
    return user_turn(turns) if isinstance(turns, str) else tuple(as_turns(turns, "prompt"))


def as_completion(value: Any, name: str) -> str | Completion:
    """Return a text or a list of messages, which may be stored as JSON text, as a completion."""
    turns = parsed_messages(value, name)
    return turns if isinstance(turns, str) else as_reply(as_turns(turns, name), name)


def as_reply(turns: Sequence[Message], name: str) -> str | Completion:
    """Return assistant turns and tool results as a completion; raise `ValueError` for other turns."""
    if not _is_reply(turns):
        raise ValueError(
            f"'{name}' must be one assistant turn after the prompt, or tool calls, their results and an assistant turn"
        )
    return completion(turns)


def completion_start(turns: Sequence[Message]) -> int:
    """Return the index where the last completion starts, in a conversation that ends with an assistant turn."""
    return next(start for start in range(len(turns)) if _is_reply(turns[start:]))


def _is_reply(turns: Sequence[Message]) -> bool:
    """Return whether the turns are assistant turns separated by tool results, ending with an assistant turn."""
    roles = [turn["role"] for turn in turns]
    if not roles or not {*roles} <= {"assistant", "tool"} or roles[0] == "tool" or roles[-1] == "tool":
        return False
    return all(
        before.get("tool_calls") or "tool" in (before["role"], after["role"]) for before, after in pairwise(turns)
    )


def _after(prompt: Messages, turns: list[Message]) -> list[Message]:
    """Return the turns without the prompt, which some data sets repeat at the start of each completion."""
    return turns[len(prompt) :] if tuple(turns[: len(prompt)]) == prompt else turns


def _common_turns(chosen: list[Message], rejected: list[Message]) -> tuple[Messages, AnyCompletion, AnyCompletion]:
    shared = next((i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), -1)
    if shared == -1:
        shared = min(len(chosen), len(rejected)) - 1
    while shared and "tool" in (chosen[shared]["role"], rejected[shared]["role"]):
        shared -= 1  # a tool result must stay with the call before it
    if not _is_reply(chosen[shared:]) or not _is_reply(rejected[shared:]):
        raise ValueError("chosen and rejected differ before their last turn")
    return tuple(chosen[:shared]), completion(chosen[shared:]), completion(rejected[shared:])


def _common_text(chosen: str, rejected: str) -> tuple[Messages, str, str]:
    """Return the prompt (the words with which both texts begin), and the rest of each text."""
    prefix = commonprefix([chosen, rejected])
    prefix = prefix[: len(prefix) - len(re.split(r"\s", prefix)[-1])]
    if not prefix.strip():
        raise ValueError("no column 'prompt', and the two texts have no common beginning")
    return user_turn(prefix.rstrip()), chosen[len(prefix) :].lstrip(), rejected[len(prefix) :].lstrip()


def dialogue(text: str, name: str = "text") -> list[Message]:
    r"""Parse an HH dialogue into messages.

    >>> dialogue("\n\nHuman: Hi\n\nAssistant: Hello!")
    [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello!'}]
    """
    turns: list[Message] = []
    before, *pieces = ("\n\n" + text.lstrip()).split("\n\nHuman:")
    if pieces and before.strip():
        raise ValueError(f"'{name}' has text before its first 'Human:': {before.strip()[:60]!r}")
    for piece in pieces:
        question, *completions = piece.split("\n\nAssistant:")
        turns.append(Message(role="user", content=question.strip()))
        turns.extend(Message(role="assistant", content=completion.strip()) for completion in completions)
    if not turns:
        raise ValueError(f"'{name}' is not a dialogue of 'Human:' and 'Assistant:' turns")
    return turns


class _NormalCharacters(dict[int, str]):
    """Maps letters, digits and combining marks to themselves, a symbol x to " x ", all others to " "."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        is_symbol = category in ("Sm", "Sc", "So") or char == "^"  # the other characters of Sk are quotes and accents
        self[code] = char if category[0] in "LNM" else f" {char} " if is_symbol else " "
        return self[code]


_NORMAL = _NormalCharacters()
_OPERATOR = re.compile(r"(?<=\d) ?[-*/] ?(?=\d)|(?<![\w-])-(?=\d)")
_SYMBOLS = str.maketrans("-*/", "−∗∕")  # the mathematical signs are symbols, the ASCII ones punctuation


def normal_prompt(text: str) -> str:
    """Return a prompt in lower case, without punctuation and repeated blanks, so that copies are equal.

    Letters with combining marks, digits and symbols (🙂, $, +, <) are kept, and also -, * and / between numbers and a
    minus sign before a number. If a text has only punctuation, only its blanks are normalised.

    >>> normal_prompt("How do I detail  a car?")
    'how do i detail a car'
    >>> normal_prompt("3+4?") == normal_prompt("3 + 4"), normal_prompt("3 - 4") == normal_prompt("3 + 4")
    (True, False)
    """
    signs = _OPERATOR.sub(lambda match: match.group().translate(_SYMBOLS), text.lower())
    return " ".join(signs.translate(_NORMAL).split()) or " ".join(text.split())


def first_turn(prompt: Messages) -> str:
    """Return letters and digits of the first user turn in lower case, as a coarse key for splits and clusters."""
    text = next((turn["content"] for turn in prompt if turn["role"] == "user"), prompt[0]["content"])
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
