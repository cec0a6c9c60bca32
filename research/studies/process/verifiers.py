"""Verifiers of chains: the same model trained on labels of steps, or of final answers, and what it is worth."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch

from ....benchmarks.garden.models import causal_lm, pretrain, tokenizer
from ....benchmarks.statistics.first_error import best_threshold, first_error, harmonic_mean
from ....rm.data.solutions import Solution
from ....rm.kinds.process.model import ProcessRewardModel, process_from_config
from ....rm.kinds.process.training import ProcessTask, encode_solutions
from ....tests.stand_ins.small_training import Fit, fit
from .._runs.job_cache import Arrays, Job
from .chains import SEPARATOR, VOCABULARY, draw_candidates, draw_solutions, first_errors

F1, BEST, THRESHOLD, LABELS, SOLUTIONS = "f1", "best", "threshold", "labels", "solutions"
"""Arrays of a job: F1 of first errors, best of 16, its threshold, and what it was trained on."""
PROCESS, SAME_LABELS, SAME_SOLUTIONS, SHUFFLED = (
    "process",
    "outcome, same labels",
    "outcome, same solutions",
    "shuffled labels",
)
BATCH, LEARNING_RATE = 32, 2e-3


def labelled(solutions: Sequence[Solution]) -> int:
    """Return the number of labelled steps."""
    return sum(not math.isnan(label) for solution in solutions for label in solution.labels)


def outcome(solution: Solution) -> Solution:
    """Return a solution in which only the last step is labelled: whether the final answer is right."""
    return solution._replace(labels=(*[math.nan] * (len(solution.steps) - 1), float(0.0 not in solution.labels)))


def shuffled(solutions: Sequence[Solution], seed: int) -> list[Solution]:
    """Return the solutions with the labels of others of the same length, in random order."""
    random, shuffled_solutions = Random(seed), [*solutions]
    for length in {len(solution.steps) for solution in solutions}:
        indices = [index for index, solution in enumerate(solutions) if len(solution.steps) == length]
        others = random.sample(indices, len(indices))
        for index, other in zip(indices, others, strict=True):
            shuffled_solutions[index] = solutions[index]._replace(labels=solutions[other].labels)
    return shuffled_solutions


def process_solutions(number: int, seed: int) -> list[Solution]:
    """Return solutions whose steps are labelled up to the first error."""
    return draw_solutions(number, seed, "train")


def outcome_solutions(number: int, seed: int) -> list[Solution]:
    """Return as many labels of final answers as the process arm has of steps: its solutions and further ones."""
    labels = labelled(process_solutions(number, seed))
    return [outcome(solution) for solution in draw_solutions(labels, seed, "train")]


ARMS: Mapping[str, Callable[[int, int], list[Solution]]] = {
    PROCESS: process_solutions,
    SAME_LABELS: outcome_solutions,
    SAME_SOLUTIONS: lambda number, seed: [outcome(solution) for solution in process_solutions(number, seed)],
    SHUFFLED: lambda number, seed: shuffled(process_solutions(number, seed), seed),
}
"""Arm -> (number of solutions of the process arm, seed) -> training data."""


@dataclass(frozen=True)
class Backbone(Job):
    """A language model of right solutions, from whose weights all arms of a seed start."""

    seed: int
    texts: int = 20_000
    """Number of drawn solutions, of which the right ones are read."""
    steps: int = 600

    def work(self, cache: Path) -> Arrays:
        """Train it, and return its weights by name."""
        drawn = draw_solutions(self.texts, self.seed, "text")
        words = tokenizer(VOCABULARY)
        model = causal_lm(words, seed=self.seed)
        right = [solution.example(SEPARATOR) for solution in drawn if 0.0 not in solution.labels]
        pretrain(model, words, right, steps=self.steps, seed=self.seed)
        return {name: weight.numpy() for name, weight in model.base_model.state_dict().items()}

    def load(self, cache: Path) -> ProcessRewardModel:
        """Return a process reward model on its weights, with a new head."""
        model = untrained(self.seed)
        weights = {name: torch.from_numpy(weight) for name, weight in self.result(cache).items()}
        model.model.base_model.load_state_dict(weights)
        return model


@dataclass(frozen=True)
class Verifier(Job):
    """A token classifier trained on one arm's labels, measured on unseen problems.

    All arms of a seed have the same model, initial weights, loss and number of steps; they differ in solutions and
    labels. Best of 16 takes the aggregate that fits the labels: the minimum over steps, or the last step for outcomes.
    """

    arm: str
    backbone: Backbone
    solutions: int
    steps: int
    tested: int
    """Number of solutions on which thresholds are chosen, and of others on which first errors are found."""
    problems: int
    """Number of problems with 16 solutions each."""

    @property
    def seed(self) -> int:
        """Return the seed of its data and its backbone."""
        return self.backbone.seed

    def work(self, cache: Path) -> Arrays:
        """Train and measure."""
        data = ARMS[self.arm](self.solutions, self.seed)
        model = self.backbone.load(cache)
        fit(
            model,
            ProcessTask(),
            encode_solutions(model.encoder, data).rows,
            Fit(self.steps, LEARNING_RATE, BATCH, self.seed),
        )
        f1, threshold = first_error_f1(model, self.tested, self.seed)
        best = best_of_16(model.with_aggregate("last" if "outcome" in self.arm else "min"), self.problems, self.seed)
        sizes = {LABELS: np.array(labelled(data)), SOLUTIONS: np.array(len(data))}
        return {F1: np.array(f1), THRESHOLD: np.array(threshold), BEST: np.array(best)} | sizes


def untrained(seed: int) -> ProcessRewardModel:
    """Return a model of about 100,000 random weights for the words of the chains."""
    words = tokenizer(VOCABULARY)
    return process_from_config(causal_lm(words).config, words, step_separator=SEPARATOR, seed=seed)


def step_scores(model: ProcessRewardModel, solutions: Sequence[Solution]) -> list[np.ndarray]:
    """Return the scores of the steps of each solution."""
    return [scores[:, 0] for scores in model.step_scores([solution.example(SEPARATOR) for solution in solutions])]


def first_error_f1(model: ProcessRewardModel, number: int, seed: int) -> tuple[float, float]:
    """Return F1 on test solutions at the threshold that is best on as many others, and the threshold."""
    chosen_on, test = (draw_solutions(number, seed, split) for split in ("valid", "test"))
    threshold = best_threshold(step_scores(model, chosen_on), first_errors(chosen_on)).value
    labels = np.array(first_errors(test))
    predicted = np.array([first_error(scores, threshold) for scores in step_scores(model, test)])
    right, wrong = predicted == labels, labels >= 0
    return float(harmonic_mean(right[wrong].mean(), right[~wrong].mean())), threshold


def best_of_16(model: ProcessRewardModel, problems: int, seed: int) -> float:
    """Return how often the solution with the highest reward is right, of 16 of which at least one is, and one is not.

    All right solutions of a problem have the same text, and so the same reward.
    """
    candidates = [some for some in draw_candidates(problems, 16, seed) if len({0.0 in s.labels for s in some}) == 2]
    rewards = model.rate([solution.example(SEPARATOR) for some in candidates for solution in some])
    picks = rewards.reshape(len(candidates), 16).argmax(axis=1)
    return float(np.mean([0.0 not in some[pick].labels for some, pick in zip(candidates, picks, strict=True)]))
