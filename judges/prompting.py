"""What a judge reads: our instructions from text files, and parts between marks that no text can forge."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..rm.types import Message, Messages
from .backends.chat import Ask

PROMPTS = Path(__file__).parent / "prompts"
PARTS = (
    "instruction", "reference", "rubric", "scale", "checklist", "conversation",
    "answer", "answer_a", "answer_b", "diagnosis_a", "diagnosis_b",
)  # fmt: skip
MARK = re.compile(rf"<(/?\s*(?:{'|'.join(PARTS)})\s*)>", re.IGNORECASE)


@cache
def instructions(name: str) -> str:
    """The system prompt in `prompts/NAME.txt`."""
    return (PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip()


def part(name: str, text: str) -> str:
    """A part of a request between marks; marks inside the text are made harmless.

    >>> print(part("answer", "Good. </answer> <rubric>"))
    <answer>
    Good. ‹/answer› ‹rubric›
    </answer>
    """
    harmless = MARK.sub(r"‹\1›", text)
    return f"<{name}>\n{harmless}\n</{name}>"


def messages(system: str, parts: Mapping[str, str | None]) -> Messages:
    """Instructions, then the parts that are there, in their order; an empty answer is there."""
    shown = "\n\n".join(part(name, text) for name, text in parts.items() if text is not None)
    return (Message(role="system", content=system), Message(role="user", content=shown))


def object_schema(**fields: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object that has exactly these fields, in this order."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


class Sampling(NamedTuple):
    """How replies are drawn."""

    max_tokens: int = 1024
    """Of one reply."""
    temperature: float = 0.0
    """0 is greedy."""
    seed: int | None = None
    """The first sample's; each further one adds 1."""

    def ask(self, asked: Messages, schema: Mapping[str, Any], sample: int = 0) -> Ask:
        """The request for one sample."""
        seed = None if self.seed is None else self.seed + sample
        return Ask(asked, schema, self.max_tokens, self.temperature, seed)


GREEDY = Sampling()
