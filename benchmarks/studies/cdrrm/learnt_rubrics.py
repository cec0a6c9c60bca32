"""A rubric generator for the world of checks that is learnt in seconds: logistic regressions, one a check."""

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
from ...worlds.checks import CHECKS
from ...worlds.simulated_judge import answered, written
from ...worlds.simulated_teacher import MOST_RULES

NAMES = tuple(CHECKS)
PLACES = {check.criterion: index for index, check in enumerate(CHECKS.values())}


class Shown(NamedTuple):
    """What the generator sees of a pair: the prompt's text and both answers."""

    prompt: str
    a: str
    b: str


def as_shown(pair: Sides) -> Shown:
    """A pair without what is recorded of it."""
    return Shown(prompt_text(pair.prompt), pair.a, pair.b)


class LearntGenerator:
    """A chat that writes the checks on which the answers differ and which it has learnt that such prompts demand.

    For each check: P(in the rubric | the words of the prompt, which answer passes), where the answers differ on it.
    What a prompt demands is learnt; what an answer passes is computed.
    """

    def __init__(self, pairs: Sequence[Shown], rubrics: Sequence[Rubric], name: str = "learnt generator"):
        self.name = name
        self.words = CountVectorizer(binary=True, token_pattern=r"[\w-]+").fit([pair.prompt for pair in pairs])
        features, signs = self._features(pairs), _signs(pairs)
        labels = np.zeros(signs.shape, bool)
        for row, rubric in enumerate(rubrics):
            labels[row, [PLACES[rule.criterion] for rule in rubric.rules]] = True
        self.models = [_fitted(features, signs[:, check], labels[:, check]) for check in range(len(NAMES))]

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`; what is asked is a rubric for two answers."""
        texts = [asked.messages[-1]["content"] for asked in asks]
        pairs = [
            Shown(*(read_part(text, part) or "" for part in ("instruction", "answer_a", "answer_b"))) for text in texts
        ]
        chances = iter(self.chances(pairs))
        return answered(lambda _: _chosen(next(chances)), asks, arrived)

    def chances(self, pairs: Sequence[Shown]) -> np.ndarray:
        """P(check in the rubric) [N, C]; 0 where the answers do not differ."""
        features, signs = self._features(pairs), _signs(pairs)
        found = np.zeros(signs.shape)
        for check, model in enumerate(self.models):
            rows = np.flatnonzero(signs[:, check])
            if len(rows):
                found[rows, check] = _chance(model, _with_sign(features[rows], signs[rows, check]))
        return found

    def _features(self, pairs: Sequence[Shown]) -> sparse.csr_matrix:
        return sparse.csr_matrix(self.words.transform([pair.prompt for pair in pairs]), dtype=float)


def _signs(pairs: Sequence[Shown]) -> np.ndarray:
    """[N, C]: 1 where A passes a check and B does not, -1 the other way round, else 0."""
    return np.array([[check.passes(pair.a) - check.passes(pair.b) for check in CHECKS.values()] for pair in pairs])


def _with_sign(features: sparse.csr_matrix, signs: np.ndarray) -> sparse.csr_matrix:
    return sparse.csr_matrix(sparse.hstack([features, signs[:, None]]))


def _fitted(features: sparse.csr_matrix, signs: np.ndarray, labels: np.ndarray) -> LogisticRegression | float:
    """On the pairs that differ; where their labels are all alike, the share that has them."""
    rows = np.flatnonzero(signs)
    if not len(rows) or labels[rows].all() or not labels[rows].any():
        return float(labels[rows].mean()) if len(rows) else 0.0
    return LogisticRegression(C=10.0, max_iter=500).fit(_with_sign(features[rows], signs[rows]), labels[rows])


def _chance(model: LogisticRegression | float, features: sparse.csr_matrix) -> np.ndarray | float:
    return model.predict_proba(features)[:, 1] if isinstance(model, LogisticRegression) else model


def _chosen(chances: np.ndarray) -> str:
    """The checks that are more likely in than out, likeliest first."""
    order = np.argsort(-chances, kind="stable")[:MOST_RULES]
    return written([NAMES[place] for place in order if chances[place] > 0.5])
