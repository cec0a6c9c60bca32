"""Jobs of the study: an encoder trained on labels of steps or of final answers, and its scores of the tests."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....rm.data.scored_rows import Judged
from ....rm.data.solutions import Solution
from ....rm.load import load_reward_model
from ....rm.types import Example, Steps, user_turn
from .._runs.job_cache import Arrays
from .._runs.saved_models import SavedModel
from .texts import Labelled, Texts, load_texts

SEPARATOR, MAX_LENGTH = "\n\n", 512
PROCESS, OUTCOME, SHUFFLED = "process", "outcome", "shuffled labels"


@dataclass(frozen=True)
class StepModel(SavedModel):
    """P(right) of the last step of a text, from labels of steps, of final answers, or of other texts (shuffled).

    MiniLM reads in both directions, so that a step's score would depend on the steps behind it: every text ends with
    the step that is labelled or scored, in training and in tests.
    """

    arm: str

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Train it; return the scores of all steps of the traces, and of the candidates' steps."""
        texts = load_texts(cache, self.texts)
        solutions = self.solutions(texts)
        settings: dict[str, Any] = {"model": self.source(), "chat_template": "plain", "max_length": MAX_LENGTH}
        settings |= {"step_separator": SEPARATOR, "aggregate": "last"}
        facts = self.train(cache, "process", settings, Judged([], [], solutions), len(solutions))
        model = load_reward_model(str(self.folder(cache)), check=False)
        scores = {
            "traces": model.rate([*trace_examples(texts)])[:, 0],
            "candidates": model.rate([*candidate_examples(texts)])[:, 0],
        }
        return facts | scores

    def solutions(self, texts: Texts) -> list[Solution]:
        """Return the labelled texts, each with a label at its last step only."""
        rows: Sequence[Labelled] = texts.labelled[OUTCOME if self.arm == OUTCOME else PROCESS]
        labels = [float(row.right) for row in rows]
        if self.arm == SHUFFLED:
            labels = [labels[index] for index in np.random.default_rng(self.seed).permutation(len(labels))]
        return [
            Solution(f"{index}", user_turn(row.problem), tuple(row.steps), (*[math.nan] * (len(row.steps) - 1), label))
            for index, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]

    @property
    def epochs(self) -> float:
        """Passes over the labels."""
        return 2.0


def prefixes(problem: str, steps: Sequence[str]) -> Iterator[Example]:
    """Yield the problem with the steps up to each one."""
    for number in range(1, len(steps) + 1):
        yield Example(user_turn(problem), Steps(tuple(steps[:number]), SEPARATOR))


def trace_examples(texts: Texts) -> Iterator[Example]:
    """Yield the texts to score of the traces of all sets, in order."""
    for traces in texts.traces.values():
        for trace in traces:
            yield from prefixes(trace.problem, trace.steps)


def candidate_examples(texts: Texts) -> Iterator[Example]:
    """Yield the texts to score of the candidates of all sets, in order."""
    for problems in texts.candidates.values():
        for problem in problems:
            for steps in problem.solutions:
                yield from prefixes(problem.problem, steps)
