"""A simulated judge for the world of checks: it parses the same requests as a language model and has known biases.

No language model is involved. The constants are assumptions, so results are reported as a sweep over them and are
labelled as simulated.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import NamedTuple

from ...judges.backends.chat import Arrived, Ask, Reply
from ...judges.cdrrm.requests import read_part
from ...judges.rubrics.rubric import Rubric, Rule, rubric_json
from ...rm.data.text_style import markdown_marks
from .checks import CHECKS, demanded

CRITERIA = {check.criterion: check for check in CHECKS.values()}
STATED = re.compile("|".join(re.escape(criterion) for criterion in CRITERIA))
FORBIDS = re.compile(r"\b(?:forbid|must not)\b", re.IGNORECASE)
NAMED = re.compile(r"\[([^\]]+)\]")
USUAL_WORDS = 50


@dataclass(frozen=True)
class Biases:
    """Biases of the simulated judge; utilities are in standard deviations of its noise on a pair."""

    reads: float = 0.4
    """κ, sensitivity to the prompt: each demand that a response satisfies adds 2κ."""
    position: float = 0.4
    """Utility of the first position."""
    length: float = 1.0
    """Utility of a doubling of words."""
    style: float = 0.4
    """Utility of Markdown."""
    error: float = 0.1
    """ε, the probability of misjudging one rule on one response."""
    failure: float = 0.01
    """Probability of a reply without a verdict."""


def utility(biases: Biases, prompt: str, answer: str, first: bool, noise: float) -> float:
    """Compute the utility of a response to the judge without a rubric.

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
    """A rule as parsed by the simulated judge."""

    id: str
    criterion: str
    forbids: bool

    def met(self, answer: str) -> bool:
        """Return whether a response has what the rule demands, or lacks what it forbids."""
        return CRITERIA[self.criterion].detects(answer) != self.forbids


def stated_rules(rubric: str) -> list[Stated]:
    """Return the rules of a rendered rubric, one per line; lines without a check of this world are ignored."""
    return [
        Stated(_id(line), match[0], bool(FORBIDS.search(line[: match.start()])))
        for line in rubric.splitlines()
        if (match := STATED.search(line))
    ]


@dataclass(frozen=True)
class SimulatedJudge:
    """A chat that decides pairs and checks rules; a reply is a function of the seed and the request's content.

    Under a rubric it checks every rule on both responses and compares the numbers of rules met; ties are decided by its
    utility, with all biases.
    """

    biases: Biases = Biases()
    seed: int = 0

    @property
    def name(self) -> str:
        """Name that states that the judge is simulated, and its constants."""
        return f"simulated judge {json.dumps(asdict(self.biases))} {self.seed}"

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Return the replies; see `Chat`."""
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
    """Return the name in brackets that identifies a rendered rule."""
    named = NAMED.search(line)
    return named[1] if named else ""


def _verdict_word(met: bool) -> str:
    return "met" if met else "missed"


def answered(reply, asks: Sequence[Ask], arrived: Arrived | None) -> list[Reply]:
    """Return replies computed by a function of the request, counting one token per word."""
    replies = []
    for index, asked in enumerate(asks):
        text = reply(asked)
        words = sum(len(turn["content"].split()) for turn in asked.messages)
        replies.append(Reply(text, "stop", words, len(text.split())))
        if arrived is not None:
            arrived(index, replies[-1])
    return replies


def rule_for(name: str, number: int = 1) -> Rule:
    """Convert a check to a rule."""
    check = CHECKS[name]
    verb = "none of it" if check.forbids else "that it is there"
    return Rule(f"r{number}", "forbid" if check.forbids else "must", check.criterion, f"Read the answer for {verb}.")


def rubric_of(names: Sequence[str]) -> Rubric:
    """Convert checks to a rubric, in their order."""
    return Rubric(tuple(rule_for(name, index) for index, name in enumerate(names, start=1)), ())


def written(names: Sequence[str]) -> str:
    """Return the reply of a rubric writer that has these checks in mind; without checks it has no rules."""
    return rubric_json(rubric_of(names)) if names else json.dumps({"rules": [], "principles": []})
