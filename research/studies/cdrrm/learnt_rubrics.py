"""A rubric generator for the world of checks: one logistic regression per check, trained in seconds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from ....judges.backends.chat import Arrived, Ask, Reply
from ....judges.cdrrm.requests import read_part
from ....judges.cdrrm.synthesise import Sides
from ....judges.rubrics.rubric import Rubric
from ....rm.types import prompt_text
from ....tests.stand_ins.checks import CHECKS
from ....tests.stand_ins.simulated_judge import answered, written
from ....tests.stand_ins.simulated_teacher import MOST_RULES

NAMES = tuple(CHECKS)
CHECK_INDEX = {check.criterion: index for index, check in enumerate(CHECKS.values())}


class Shown(NamedTuple):
    """Input of the generator: the prompt's text and both responses."""

    prompt: str
    a: str
    b: str


def as_shown(pair: Sides) -> Shown:
    """Convert a pair to the generator's input, without its label."""
    return Shown(prompt_text(pair.prompt), pair.a, pair.b)


class LearntGenerator:
    """A chat that writes rubrics of the checks on which the responses differ and which it predicts to be demanded.

    For each check: P(in the rubric | words of the prompt, which response passes), if the responses differ on it. The
    demands of a prompt are learnt; the checks that a response passes are computed.
    """

    def __init__(self, pairs: Sequence[Shown], rubrics: Sequence[Rubric], name: str = "learnt generator"):
        self.name = name
        self.words = CountVectorizer(binary=True, token_pattern=r"[\w-]+").fit([pair.prompt for pair in pairs])
        features, signs = self._features(pairs), _signs(pairs)
        labels = np.zeros(signs.shape, bool)
        for row, rubric in enumerate(rubrics):
            labels[row, [CHECK_INDEX[rule.criterion] for rule in rubric.rules]] = True
        self.models = [_fitted(features, signs[:, check], labels[:, check]) for check in range(len(NAMES))]

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Write a rubric for the two responses of each request; see `Chat`."""
        texts = [asked.messages[-1]["content"] for asked in asks]
        pairs = [
            Shown(*(read_part(text, part) or "" for part in ("instruction", "answer_a", "answer_b"))) for text in texts
        ]
        chances = iter(self.chances(pairs))
        return answered(lambda _: _chosen(next(chances)), asks, arrived)

    def chances(self, pairs: Sequence[Shown]) -> np.ndarray:
        """Return P(check in the rubric) [N, C]; 0 where the responses do not differ."""
        features, signs = self._features(pairs), _signs(pairs)
        chances = np.zeros(signs.shape)
        for check, model in enumerate(self.models):
            rows = np.flatnonzero(signs[:, check])
            if len(rows):
                chances[rows, check] = _chance(model, _with_sign(features[rows], signs[rows, check]))
        return chances

    def _features(self, pairs: Sequence[Shown]) -> sparse.csr_matrix:
        return sparse.csr_matrix(self.words.transform([pair.prompt for pair in pairs]), dtype=float)


def _signs(pairs: Sequence[Shown]) -> np.ndarray:
    """Return [N, C]: 1 where A passes a check and B does not, -1 for the reverse, else 0."""
    return np.array([[check.passes(pair.a) - check.passes(pair.b) for check in CHECKS.values()] for pair in pairs])


def _with_sign(features: sparse.csr_matrix, signs: np.ndarray) -> sparse.csr_matrix:
    return sparse.csr_matrix(sparse.hstack([features, signs[:, None]]))


def _fitted(features: sparse.csr_matrix, signs: np.ndarray, labels: np.ndarray) -> LogisticRegression | float:
    """Fit on the pairs that differ; if their labels are all equal, return the share of positive labels."""
    rows = np.flatnonzero(signs)
    if not len(rows) or labels[rows].all() or not labels[rows].any():
        return float(labels[rows].mean()) if len(rows) else 0.0
    return LogisticRegression(C=10.0, max_iter=500).fit(_with_sign(features[rows], signs[rows]), labels[rows])


def _chance(model: LogisticRegression | float, features: sparse.csr_matrix) -> np.ndarray | float:
    return model.predict_proba(features)[:, 1] if isinstance(model, LogisticRegression) else model


def _chosen(chances: np.ndarray) -> str:
    """Write the checks with a probability above ½, most probable first."""
    order = np.argsort(-chances, kind="stable")[:MOST_RULES]
    return written([NAMES[index] for index in order if chances[index] > 0.5])
