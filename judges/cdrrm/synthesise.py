"""Rubric synthesis: a few rules that distinguish two diagnoses, written without the label.

Liu et al. 2026, arXiv:2603.08035, section on rubric synthesis. In the released code, response A is always the preferred
one. Here the texts alone determine the slots, so that no request depends on the label.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...rm.types import Example, Messages, PreferencePair, content_hash, prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..rubrics.rubric import SCHEMA, SIDES, Rubric, from_values
from .profile import Profile, profile
from .requests import Rejected, ask, json_object

NAMES_A_WINNER = re.compile(
    r"\b(?:winner|loser|(?:chosen|rejected|preferred|winning|losing|better|worse) (?:answer|response))\b", re.IGNORECASE
)


class Sides(NamedTuple):
    """A pair of responses in slots A and B. `preferred` is the label, which no request contains."""

    prompt: Messages
    a: str
    b: str
    preferred: Literal["A", "B"]

    @property
    def answers(self) -> tuple[str, str]:
        """The responses in slots A and B."""
        return self.a, self.b

    def swapped(self) -> "Sides":
        """Return the pair with the slots swapped."""
        return Sides(self.prompt, self.b, self.a, "A" if self.preferred == "B" else "B")


def sides(pair: PreferencePair, seed: int = 0) -> Sides:
    """Assign the slots by a hash of seed, prompt and both texts, without the label."""
    texts = sorted(pair.texts)
    heads = int(content_hash([seed, prompt_text(pair.prompt), texts]), 16) % 2
    a, b = texts[heads], texts[1 - heads]
    return Sides(pair.prompt, a, b, "A" if a == pair.texts[0] else "B")


def synthesis_request(prompt: Messages, diagnoses: tuple[Profile, Profile]) -> Ask:
    """Return the request to write a rubric from the instruction and two diagnoses, without responses and label."""
    texts = [json.dumps(diagnose.as_json(), ensure_ascii=False) for diagnose in diagnoses]
    parts = {"instruction": prompt_text(prompt), "diagnosis_a": texts[0], "diagnosis_b": texts[1]}
    return ask("synthesise", parts, SCHEMA)


def read_rubric(reply: Reply) -> Rubric | Rejected:
    """Parse the rubric of a reply. Reject it if it has no rules or names a slot or a winner."""
    values = json_object(reply)
    if isinstance(values, Rejected):
        return values
    if not values.get("rules"):
        return Rejected("no rules")
    try:
        rubric = from_values(values)
    except ValueError as error:
        return Rejected("wrong form", str(error))
    for text in wording(rubric):
        if SIDES.search(text):
            return Rejected("names a side", text[:80])
        if NAMES_A_WINNER.search(text):
            return Rejected("names a winner", text[:80])
    return rubric


def wording(rubric: Rubric) -> list[str]:
    """Return all texts of a rubric."""
    rules = [text for rule in rubric.rules for text in (rule.criterion, rule.test)]
    return rules + [principle.description for principle in rubric.principles]


class Synthesis(NamedTuple):
    """Result for a pair: two diagnoses, and the rubric or the reason why there is no rubric."""

    rubric: Rubric | Rejected
    diagnoses: tuple[Profile, Profile] | None = None


def synthesise(chat: Chat, pairs: Sequence[Sides]) -> list[Synthesis]:
    """Diagnose both responses of every pair, then write a rubric from the two diagnoses."""
    diagnosed = profile(chat, [Example(pair.prompt, answer) for pair in pairs for answer in pair.answers])
    syntheses: list[Synthesis] = []
    asks: dict[int, Ask] = {}
    for index, pair in enumerate(pairs):
        first, second = diagnosed[2 * index : 2 * index + 2]
        if isinstance(first, Rejected) or isinstance(second, Rejected):
            syntheses.append(Synthesis(first if isinstance(first, Rejected) else second))
        else:
            syntheses.append(Synthesis(Rejected("not asked"), (first, second)))
            asks[index] = synthesis_request(pair.prompt, (first, second))
    for index, reply in zip(asks, chat.ask([*asks.values()]), strict=True):
        syntheses[index] = syntheses[index]._replace(rubric=read_rubric(reply))
    return syntheses


def contrast(diagnoses: tuple[Profile, Profile]) -> str:
    """Return two diagnoses side by side, one criterion per line, as a generator may write them before its rubric.

    >>> from .profile import CriterionFinding
    >>> one, two = (CriterionFinding("Cites a source.", said, 0, "", "", "") for said in ("pass", "fail"))
    >>> contrast((Profile((one,)), Profile((two,))))
    'Cites a source. | A: pass | B: fail'
    """
    statuses = [{finding.criterion: finding.status for finding in each.findings} for each in diagnoses]
    a, b = statuses
    return "\n".join(f"{name} | A: {a.get(name, 'not said')} | B: {b.get(name, 'not said')}" for name in {**a, **b})
