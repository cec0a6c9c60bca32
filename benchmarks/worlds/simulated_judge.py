"""A simulated judge for the world of checks: it reads requests as a language model would and has biases of known size.

Nothing here is a language model. The constants are assumptions, so what is measured with them is reported as a sweep
over them and called simulated.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import NamedTuple

from ...judges.backends.chat import Arrived, Ask, Reply
from ...judges.cdrrm.generator import rubric_json
from ...judges.cdrrm.requests import read_part
from ...judges.rubrics.rubric import Rubric, Rule
from ..statistics.style import markdown_marks
from .checks import CHECKS, demanded

CRITERIA = {check.criterion: check for check in CHECKS.values()}
STATED = re.compile("|".join(re.escape(criterion) for criterion in CRITERIA))
FORBIDS = re.compile(r"\b(?:forbid|must not)\b", re.IGNORECASE)
NAMED = re.compile(r"\[([^\]]+)\]")
USUAL_WORDS = 50


@dataclass(frozen=True)
class Biases:
    """What moves the simulated judge; utilities are in standard deviations of its own noise on a pair."""

    reads: float = 0.4
    """κ, how much it reads the prompt: each demand that an answer satisfies is worth 2κ."""
    position: float = 0.4
    """What standing first is worth."""
    length: float = 1.0
    """What a doubling of words is worth."""
    style: float = 0.4
    """What Markdown is worth."""
    error: float = 0.1
    """ε, the chance of misjudging one rule on one answer."""
    failure: float = 0.01
    """The chance of a reply without a verdict."""


def utility(biases: Biases, prompt: str, answer: str, first: bool, noise: float) -> float:
    """What the bare judge makes of an answer.

    u = 2κ · demands satisfied + b_pos · [first] + b_len · log2(words / 50) + b_style · [Markdown] + z / √2

    with z ~ N(0, 1), so that the noise on a pair's difference has variance 1.
    """
    satisfied = sum(CHECKS[name].passes(answer) for name in demanded(prompt))
    return (
        2 * biases.reads * satisfied
        + biases.position * first
        + biases.length * math.log2(max(1, len(answer.split())) / USUAL_WORDS)
        + biases.style * (markdown_marks(answer) > 0)
        + noise / math.sqrt(2)
    )


class Stated(NamedTuple):
    """A rule as the simulated judge understands it."""

    id: str
    criterion: str
    forbids: bool

    def met(self, answer: str) -> bool:
        """Whether an answer has what the rule demands, or lacks what it forbids."""
        return CRITERIA[self.criterion].found(answer) != self.forbids


def stated_rules(rubric: str) -> list[Stated]:
    """The rules of a rendered rubric, one a line; a line about no check of the world says nothing to this judge."""
    return [
        Stated(_id(line), match[0], bool(FORBIDS.search(line[: match.start()])))
        for line in rubric.splitlines()
        if (match := STATED.search(line))
    ]


@dataclass(frozen=True)
class SimulatedJudge:
    """A chat that decides pairs and checks rules; a reply follows from its seed and the request's content.

    Under a rubric it checks every rule on both answers and goes by the number of rules met; its own taste, with all
    biases, decides ties.
    """

    biases: Biases = Biases()
    seed: int = 0

    @property
    def name(self) -> str:
        """Says that it is simulated, and its constants."""
        return f"simulated judge {json.dumps(asdict(self.biases))} {self.seed}"

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        return answered(self._reply, asks, arrived)

    def _reply(self, asked: Ask) -> str:
        text = asked.messages[-1]["content"]
        rng = Random(f"{self.seed} {text}")
        prompt, rubric = read_part(text, "instruction") or "", read_part(text, "rubric")
        rules = stated_rules(rubric or "")
        single = read_part(text, "answer")
        if single is not None:
            return self._checked(rng, rules, single)
        answers = [read_part(text, name) or "" for name in ("answer_a", "answer_b")]
        met = [[self._met(rng, rule, answer) for rule in rules] for answer in answers]
        lines = [
            f"{rule.id} | A: {_verdict_word(a)} | B: {_verdict_word(b)}" for rule, a, b in zip(rules, *met, strict=True)
        ]
        if rng.random() < self.biases.failure:
            return "\n".join([*lines, "I would have to know more about this."])
        tastes = [
            utility(self.biases, prompt, answer, index == 0, rng.gauss(0, 1)) for index, answer in enumerate(answers)
        ]
        a, b = ((sum(each), taste) for each, taste in zip(met, tastes, strict=True))
        return "\n".join([*lines, f"Winner: {'A' if a > b else 'B'}"])

    def _met(self, rng: Random, rule: Stated, answer: str) -> bool:
        return rule.met(answer) != (rng.random() < self.biases.error)

    def _checked(self, rng: Random, rules: Sequence[Stated], answer: str) -> str:
        if rng.random() < self.biases.failure:
            return '{"rules": ['
        marks = [{"id": rule.id, "met": self._met(rng, rule, answer), "evidence": ""} for rule in rules]
        return json.dumps({"rules": marks})


def _id(line: str) -> str:
    """The name in brackets by which a rendered rule goes."""
    named = NAMED.search(line)
    return named[1] if named else ""


def _verdict_word(met: bool) -> str:
    return "met" if met else "missed"


def answered(reply, asks: Sequence[Ask], arrived: Arrived | None) -> list[Reply]:
    """Replies from a function of the request, a token a word."""
    replies = []
    for index, asked in enumerate(asks):
        text = reply(asked)
        words = sum(len(turn["content"].split()) for turn in asked.messages)
        replies.append(Reply(text, "stop", words, len(text.split())))
        if arrived is not None:
            arrived(index, replies[-1])
    return replies


def rule_for(name: str, number: int = 1) -> Rule:
    """A check as a rule."""
    check = CHECKS[name]
    verb = "none of it" if check.forbids else "that it is there"
    return Rule(f"r{number}", "forbid" if check.forbids else "must", check.criterion, f"Read the answer for {verb}.")


def rubric_of(names: Sequence[str]) -> Rubric:
    """Checks as a rubric, in their order."""
    return Rubric(tuple(rule_for(name, index) for index, name in enumerate(names, start=1)), ())


def written(names: Sequence[str]) -> str:
    """What a writer of rubrics replies who has these checks in mind; with none it has no rule to offer."""
    return rubric_json(rubric_of(names)) if names else json.dumps({"rules": [], "principles": []})
