"""The world of checks: a simulated judge that goes by retrieved rubrics, or learns from retrieved examples."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from ....judges.backends.chat import Arrived, Ask, Reply
from ....judges.cdrrm.requests import read_part
from ....judges.judge import ExampleSource
from ....judges.kinds.pairwise import pairwise
from ....judges.prompts import part
from ....judges.retrieval.index import TextIndex, VectorIndex
from ....judges.retrieval.lexical import Bm25Index, TfidfIndex
from ....judges.retrieval.selection import RANDOM, RETRIEVED, Collection, Selection
from ....judges.retrieval.sources import RetrievedExamples, RetrievedRubrics, collection_of, example_text
from ....judges.retrieval.training import TextPair, pairs_within
from ....judges.rubrics.rubric import Rubric, render
from ....judges.types import Case, Judgment
from ....rm.types import Message, PreferencePair, prompt_text
from ....tests.stand_ins.checks import CHECKS, demanded
from ....tests.stand_ins.simulated_judge import SimulatedJudge, rubric_of
from ....tests.stand_ins.verifiable_prompts import pairs
from .._runs.job_cache import Arrays, Job
from .encoders import FACETS, MEAN, Training, measured

SHOTS = 8
ORACLE, NONE = "oracle", "none"
LEXICAL = {"TF-IDF": TfidfIndex, "BM25": Bm25Index}
ARMS = (FACETS, MEAN, *LEXICAL, RANDOM, ORACLE)
EXAMPLE = re.compile(r"Answer 1:\n(.*?)\n\nAnswer 2:\n(.*?)\n\nBest: answer ([12])(?=\n\nExample |\Z)", re.DOTALL)


# ---- a judge that learns from examples ----


def learned_checks(examples: str, least: int = 2) -> list[str]:
    """Return the checks that separate the better from the other answer in at least `least` more examples than not.

    That is what a reader can learn from labels alone; it is an assumption about the judge.
    """
    votes: Counter[str] = Counter()
    for first, second, best in EXAMPLE.findall(examples):
        better, other = (first, second) if best == "1" else (second, first)
        for name, check in CHECKS.items():
            votes[name] += check.passes(better) - check.passes(other)
    return [name for name in CHECKS if votes[name] >= least]


@dataclass(frozen=True)
class ExampleReader:
    """A simulated judge that takes the checks which it learns from the examples for its rubric."""

    judge: SimulatedJudge

    @property
    def name(self) -> str:
        """Name of the judge behind it."""
        return f"{self.judge.name} that reads examples"

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Return the replies; see `Chat`."""
        return self.judge.ask([self._with_rubric(asked) for asked in asks], arrived)

    def _with_rubric(self, asked: Ask) -> Ask:
        *before, last = asked.messages
        learned = learned_checks(read_part(last["content"], "examples") or "")
        rubric = part("rubric", render(rubric_of(learned))) if learned else ""
        text = last["content"][last["content"].find("<instruction>") :]
        return asked._replace(
            messages=(*before, Message(role="user", content="\n\n".join(filter(None, [rubric, text]))))
        )


# ---- materials ----


def as_case(pair: PreferencePair) -> Case:
    """Return a pair as a case, its right answer first or second by a coin."""
    first = Random(pair.id).random() < 0.5
    answers = (pair.chosen, pair.rejected) if first else (pair.rejected, pair.chosen)
    return Case(pair.id, pair.prompt, answers, (0 if first else 1,), pair.subset)


def accuracy(cases: Sequence[Case], judgments: Sequence[Judgment]) -> float:
    """Return the share of answered cases whose right answer has the higher score; a tie counts half."""
    credits = [
        1.0 if judgment.scores[case.best[0]] > 0.5 else 0.5 if judgment.scores[0] == 0.5 else 0.0
        for case, judgment in zip(cases, judgments, strict=True)
        if judgment.scores
    ]
    return float(np.mean(credits))


@dataclass(frozen=True)
class ChecksArm(Job):
    """Accuracy of the simulated judge with what one arm retrieves, on the test pairs of a seed."""

    arm: str
    seed: int
    training: Training = field(default_factory=lambda: Training(steps=45, batch=32, max_length=96))
    collection: int = 400
    cases: int = 512

    def __str__(self) -> str:
        return f"world of checks, {self.arm}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the accuracy with rubrics and with examples, and how many demands the rubrics share with the case."""
        labelled = [as_case(pair) for pair in pairs(self.collection, self.seed)]
        cases = [as_case(pair) for pair in pairs(self.cases, self.seed, "test")]
        judge = SimulatedJudge(seed=self.seed)
        if self.arm == NONE:
            bare = accuracy(cases, pairwise(judge)(cases))
            return measured({"rubrics": bare, "examples": bare, "shared demands": 0.0})
        rubrics, examples = self._sources(labelled)
        given = rubrics(cases)
        return measured(
            {
                "rubrics": accuracy(cases, pairwise(judge, rubric=rubrics)(cases)),
                "examples": accuracy(cases, pairwise(ExampleReader(judge), examples=examples)(cases)),
                "shared demands": float(np.mean([*map(_shared, cases, given)])),
            }
        )

    def _sources(self, labelled: list[Case]):
        if self.arm == ORACLE:
            return _own_demands, _same_check(labelled)
        collection = collection_of(labelled)
        rubrics = [rubric_of(demanded(text)) for text in collection.prompts]
        index = None if self.arm == RANDOM else self._index(collection, rubrics)
        how = RANDOM if index is None else RETRIEVED
        prompts = Collection(collection.ids, collection.prompts)
        near = 0.9  # prompts of this world share most of their words
        nearest, several = (
            Selection(entries, how, k, index=index, seed=self.seed, near=near)
            for entries, k in ((prompts, 1), (collection, SHOTS))
        )
        return RetrievedRubrics(nearest, rubrics), RetrievedExamples(several, labelled)

    def _index(self, collection: Collection, rubrics: Sequence[Rubric]) -> TextIndex:
        if self.arm in LEXICAL:
            return LEXICAL[self.arm](collection.ids, collection.prompts)
        questions = [TextPair(text, render(rubric)) for text, rubric in zip(collection.prompts, rubrics, strict=True)]
        demands = [demanded(text)[0] for text in collection.prompts]
        compared = pairs_within(collection.prompts, demands, seed=self.seed)
        encoder = self.training.encoder(self.arm, questions, compared, self.seed)
        return VectorIndex(encoder, collection.ids, collection.prompts)


def _shared(case: Case, rubric: Rubric | None) -> float:
    """Return the share of a prompt's demands that are among the rules of the rubric."""
    demands = demanded(prompt_text(case.prompt))
    criteria = {rule.criterion for rule in rubric.rules} if rubric else set()
    return float(np.mean([CHECKS[name].criterion in criteria for name in demands]))


def _own_demands(cases: Sequence[Case]) -> list[Rubric]:
    return [rubric_of(demanded(prompt_text(case.prompt))) for case in cases]


def _same_check(labelled: Sequence[Case]) -> ExampleSource:
    """Return examples whose worse answer fails the same check as the case's, which no judge can know."""

    def source(cases: Sequence[Case]) -> list[str]:
        return [_examples([example for example in labelled if example.subset == case.subset][:SHOTS]) for case in cases]

    return source


def _examples(chosen: Sequence[Case]) -> str:
    return "\n\n".join(example_text(example, number) for number, example in enumerate(chosen, start=1))
