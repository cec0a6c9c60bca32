"""A simulated teacher for the world of checks: it diagnoses responses and writes rubrics, with known error rates.

No language model is involved. Its rubrics differ by how much one call reads: a response, two diagnoses, a prompt, or a
prompt and two responses, where errors are more frequent; that is an assumption.
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
"""Demands of a rubric that is written without contrast, whatever the response."""
MOST_RULES = 6
SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")


@dataclass(frozen=True)
class Teacher:
    """Error rates; probabilities in [0, 1]."""

    notices: float = 0.9
    """Probability that a diagnosis includes a demand of the prompt."""
    invents: float = 0.03
    """Probability, for each demand that the prompt does not make, that a diagnosis includes it."""
    misreads: float = 0.05
    """Probability of misjudging whether a response meets a demand."""
    divided: float = 3.0
    """Factor on error rates where one call reads a prompt and two responses."""
    generic: int = 4
    """Number of generic rules that it adds where it sees the prompt alone."""
    corrupt: float = 0.0
    """Probability that a rubric is about randomly drawn checks."""
    leaks: bool = False
    """Whether it assumes that response A won, and writes rules for all checks that A passes and B does not."""


@dataclass(frozen=True)
class SimulatedTeacher:
    """A chat that writes diagnoses and rubrics; a reply is a function of the seed and the request's content."""

    errs: Teacher = Teacher()
    seed: int = 0

    @property
    def name(self) -> str:
        """Name that states that the teacher is simulated, and its constants."""
        return f"simulated teacher {json.dumps(asdict(self.errs))} {self.seed}"

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Return the replies; see `Chat`."""
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
        """Return the checks taken for demanded: those noticed in the prompt, in its order, then those invented."""
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
        """Write rules for the checks that pass in one diagnosis and fail in the other."""
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
    """Return whether each check passes according to the diagnosis."""
    findings = [finding for finding in diagnosis["findings"] if finding["anchor"] and finding["criterion"] in STATED_AS]
    return {STATED_AS[finding["criterion"]]: finding["status"] == "pass" for finding in findings}


def _finding(check: Check, prompt: str, answer: str, passes: bool) -> dict[str, Any]:
    sentences = [sentence.strip() for sentence in SENTENCE.findall(answer) if sentence.strip()]
    shown = next((sentence for sentence in sentences if check.detects(sentence)), sentences[0])
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
    """Return the position and the words of a prompt's demand for a check; the whole prompt if there is none."""
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
    """Return what a good response does: has the property, or lacks it."""
    return f"It is not so: {check.criterion}" if check.forbids else check.criterion


STATED_AS = {_stated(check): check.name for check in CRITERIA.values()}
