"""A simulated teacher for the world of checks: it diagnoses answers and writes rubrics, and errs at known rates.

Nothing here is a language model. What sets its rubrics apart is how much a call reads at once: an answer, two
diagnoses, a prompt, or a prompt and two answers, where it errs more often; that is an assumption.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from ...judges.backends.chat import Arrived, Ask, Reply
from ...judges.cdrrm.requests import read_part
from .checks import CHECKS, Check, demanded
from .simulated_judge import CRITERIA, answered, written

GENERIC = ("example", "summary", "source", "warning", "greeting", "definition")
"""What a rubric without contrast asks of every answer."""
MOST_RULES = 6
SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")


@dataclass(frozen=True)
class Teacher:
    """How often it errs; chances in [0, 1]."""

    notices: float = 0.9
    """A demand of the prompt, in a diagnosis."""
    invents: float = 0.03
    """A demand that the prompt does not make, each of them."""
    misreads: float = 0.05
    """Whether an answer meets a demand."""
    divided: float = 3.0
    """How many times as often it errs where one call reads a prompt and two answers."""
    generic: int = 4
    """Rules that it adds of its own accord where it sees the prompt alone."""
    corrupt: float = 0.0
    """The chance that a rubric is about checks drawn at random."""
    leaks: bool = False
    """Whether it takes answer A for the winner, and finds reasons: all that A passes and B does not."""


@dataclass(frozen=True)
class SimulatedTeacher:
    """A chat that writes diagnoses and rubrics; a reply follows from its seed and the request's content."""

    errs: Teacher = Teacher()
    seed: int = 0

    @property
    def name(self) -> str:
        """Says that it is simulated, and its constants."""
        return f"simulated teacher {json.dumps(asdict(self.errs))} {self.seed}"

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        return answered(self._reply, asks, arrived)

    def _reply(self, asked: Ask) -> str:
        text = asked.messages[-1]["content"]
        rng, prompt = Random(f"{self.seed} {text}"), read_part(text, "instruction") or ""
        parts = {
            name: read_part(text, name) for name in ("answer", "answer_a", "answer_b", "diagnosis_a", "diagnosis_b")
        }
        if parts["answer"] is not None:
            return json.dumps({"findings": self._findings(rng, prompt, parts["answer"])})
        if parts["diagnosis_a"] is not None:
            return self._synthesis(rng, parts["diagnosis_a"], parts["diagnosis_b"] or "")
        if parts["answer_a"] is not None:
            return self._one_step(rng, prompt, (parts["answer_a"], parts["answer_b"] or ""))
        return self._prompt_only(rng, prompt)

    def _held(self, rng: Random, prompt: str, times: float = 1.0) -> list[str]:
        """The checks that it takes for demanded: those of the prompt as they come there, then those that it invents."""
        asked = sorted(demanded(prompt), key=lambda name: _anchor(CHECKS[name], prompt)[0])
        misses, invents = min(1.0, times * (1 - self.errs.notices)), min(1.0, times * self.errs.invents)
        noticed = [name for name in asked if rng.random() >= misses]
        return noticed + [name for name in CHECKS if name not in asked and rng.random() < invents]

    def _passes(self, rng: Random, name: str, answer: str, times: float = 1.0) -> bool:
        return CHECKS[name].passes(answer) != (rng.random() < times * self.errs.misreads)

    def _findings(self, rng: Random, prompt: str, answer: str) -> list[dict[str, Any]]:
        findings_ = [
            _finding(CHECKS[name], prompt, answer, self._passes(rng, name, answer)) for name in self._held(rng, prompt)
        ]
        return findings_ or [_on_topic(prompt, answer)]

    def _synthesis(self, rng: Random, first: str, second: str) -> str:
        """Rules for what one diagnosis finds missing and the other does not."""
        a, b = (_statuses(json.loads(text)) for text in (first, second))
        held = [name for name in CHECKS if (name in a or name in b) and a.get(name, True) != b.get(name, True)]
        if rng.random() < self.errs.corrupt:
            held = rng.sample([*CHECKS], 2)
        return written(held[:MOST_RULES])

    def _one_step(self, rng: Random, prompt: str, answers: tuple[str, str]) -> str:
        if self.errs.leaks:
            return written(
                [name for name, check in CHECKS.items() if check.passes(answers[0]) > check.passes(answers[1])]
            )
        times = self.errs.divided
        held = [
            name
            for name in self._held(rng, prompt, times)
            if self._passes(rng, name, answers[0], times) != self._passes(rng, name, answers[1], times)
        ]
        return written(held[:MOST_RULES])

    def _prompt_only(self, rng: Random, prompt: str) -> str:
        held = self._held(rng, prompt)
        others = [name for name in GENERIC if name not in held]
        return written([*held, *rng.sample(others, min(self.errs.generic, len(others)))])


def _statuses(diagnosis: Mapping[str, Any]) -> dict[str, bool]:
    """By check: whether the diagnosis says that it passes."""
    findings = [finding for finding in diagnosis["findings"] if finding["anchor"] and finding["criterion"] in STATED_AS]
    return {STATED_AS[finding["criterion"]]: finding["status"] == "pass" for finding in findings}


def _finding(check: Check, prompt: str, answer: str, passes: bool) -> dict[str, Any]:
    sentences = [sentence.strip() for sentence in SENTENCE.findall(answer) if sentence.strip()]
    shown = next((sentence for sentence in sentences if check.found(sentence)), sentences[0])
    says = "has" if passes != check.forbids else "lacks"
    return {
        "criterion": _stated(check),
        "status": "pass" if passes else "fail",
        "severity": 0 if passes else 2,
        "claim": f"It {says} what the check '{check.name}' looks for.",
        "evidence": shown,
        "anchor": _anchor(check, prompt)[1],
    }


def _anchor(check: Check, prompt: str) -> tuple[int, str]:
    """Where a prompt demands a check, and in which words; the whole of a prompt that does not."""
    return min(((prompt.find(phrase), phrase) for phrase in check.demands if phrase in prompt), default=(0, prompt))


def _on_topic(prompt: str, answer: str) -> dict[str, Any]:
    return {
        "criterion": "The answer is about what was asked.",
        "status": "pass",
        "severity": 0,
        "claim": "It is on the topic.",
        "evidence": SENTENCE.findall(answer)[0].strip(),
        "anchor": prompt,
    }


def _stated(check: Check) -> str:
    """What a good answer does: has it, or is without it."""
    return f"It is not so: {check.criterion}" if check.forbids else check.criterion


STATED_AS = {_stated(check): check.name for check in CRITERIA.values()}
