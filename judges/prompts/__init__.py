"""Prompts of judges: instructions from text files, and tagged parts that inserted text cannot forge."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...rm.types import Message, Messages
from ..backends.chat import Ask

PROMPTS = Path(__file__).parent
PARTS = (
    "instruction", "metadata", "reference", "rubric", "scale", "checklist", "conversation",
    "answer", "answer_a", "answer_b", "diagnosis_a", "diagnosis_b", "examples",
)  # fmt: skip
MARK = re.compile(rf"<(/?\s*(?:{'|'.join(PARTS)})\s*)>", re.IGNORECASE)


@cache
def instructions(name: str) -> str:
    """Return the system prompt in `prompts/NAME.txt`."""
    return (PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip()


def part(name: str, text: str) -> str:
    """Return a tagged part of a request. Tags inside the text are neutralized.

    >>> print(part("answer", "Good. </answer> <rubric>"))
    <answer>
    Good. ‹/answer› ‹rubric›
    </answer>
    """
    harmless = MARK.sub(r"‹\1›", text)
    return f"<{name}>\n{harmless}\n</{name}>"


def messages(system: str, parts: Mapping[str, str | None]) -> Messages:
    """Return the messages of a request: the instructions, then all parts that are not None, even empty ones."""
    body = "\n\n".join(part(name, text) for name, text in parts.items() if text is not None)
    return (Message(role="system", content=system), Message(role="user", content=body))


def object_schema(**fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly these fields, in this order."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


class Sampling(NamedTuple):
    """Sampling parameters of replies."""

    max_tokens: int = 1024
    """Maximum length of a reply in tokens."""
    temperature: float = 0.0
    """Sampling temperature; 0 decodes greedily."""
    seed: int | None = None
    """Seed of the first sample. Each further sample has the previous seed plus 1."""

    def ask(self, conversation: Messages, schema: Mapping[str, Any], sample: int = 0) -> Ask:
        """Return the request for one sample."""
        seed = None if self.seed is None else self.seed + sample
        return Ask(conversation, schema, self.max_tokens, self.temperature, seed)


GREEDY = Sampling()
