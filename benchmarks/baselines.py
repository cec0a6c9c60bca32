"""Baselines: scorers that do not read the prompt, for comparison with a model's accuracy."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from ..judges.types import Case, Judgment
from ..rm.errors import DataError
from .types import RANDOM, TFIDF

FOLDS = 5


@dataclass
class Baseline:
    """A scorer that is not a model, for comparison."""

    name: str
    judge: Callable[[Sequence[Case]], list[Judgment]]
    role = "baseline"
    contract = ""

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case."""
        return self.judge(cases)


def judge_by_response(score: Callable[[Case, int], float]) -> Callable[[Sequence[Case]], list[Judgment]]:
    """Return a judge that scores each response by `score(case, index)`."""
    return lambda cases: [
        Judgment(case.id, scores=tuple(score(case, index) for index in range(len(case.answers)))) for case in cases
    ]


def fixed_baselines(
    predictions: Mapping[str, Callable[[Case, int], bool]], threshold: float, chosen: Sequence[str]
) -> list[Baseline]:
    """Return the baselines named in `chosen`. Steps predicted right score above the threshold, other steps below."""

    def judge(is_right: Callable[[Case, int], bool]) -> Callable[[Sequence[Case]], list[Judgment]]:
        return judge_by_response(lambda case, index: threshold + (1.0 if is_right(case, index) else -1.0))

    names = [name for name in predictions if ("all" in chosen or name in chosen) and "none" not in chosen]
    return [Baseline(name, judge(predictions[name])) for name in names]


def longest() -> Baseline:
    """Return the baseline that prefers the longest response, in characters."""
    return Baseline("longest", judge_by_response(lambda case, index: float(len(case.texts[index]))))


def shortest() -> Baseline:
    """Return the baseline that prefers the shortest response, in characters."""
    return Baseline("shortest", judge_by_response(lambda case, index: -float(len(case.texts[index]))))


def random_guess(seed: int = 0) -> Baseline:
    """Return the baseline that scores at random.

    The score is a hash of seed, case id and index, so it does not depend on the run or on the order of the cases.
    """

    def score(case: Case, index: int) -> float:
        digest = hashlib.sha256(f"{seed}|{case.id}|{index}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    return Baseline(RANDOM, judge_by_response(score))


def majority() -> Baseline:
    """Return the baseline that ranks positions by how often they hold the right response.

    Positions are counted over the judged cases; the gain over chance shows how far positions reveal the labels.
    """
    return Baseline("majority", _position_judgments)


def _position_judgments(cases: Sequence[Case]) -> list[Judgment]:
    """Score each response by how often its position holds the right one. Abstain if that is always one position."""
    right_indices = _right_positions(cases)
    if len(right_indices) < 2:
        always = [f"the right response is always at position {index + 1}" for index in right_indices]
        note = "".join(always) or "no case has one right"
        return [Judgment(case.id, abstained=f"{note}, so there is no baseline by position") for case in cases]
    order = sorted(range(max(len(case.answers) for case in cases)), key=lambda index: (-right_indices[index], index))
    ranks = {index: float(-rank) for rank, index in enumerate(order)}
    return [Judgment(case.id, scores=tuple(ranks[index] for index in range(len(case.answers)))) for case in cases]


def _right_positions(cases: Sequence[Case]) -> Counter[int]:
    """Return how often each position holds the right response, over the cases with one right response."""
    return Counter(case.best[0] for case in cases if len(case.best) == 1)


def tfidf(seed: int = 0) -> Baseline:
    """Return the baseline of a linear TF-IDF reward model of the response, cross-fitted over five folds.

    Each fold is scored by a model fitted on the other folds; the accuracy shows how far responses reveal the labels.
    """
    return Baseline(TFIDF, lambda cases: _cross_fitted(cases, seed))


def _cross_fitted(cases: Sequence[Case], seed: int) -> list[Judgment]:
    """Score the responses of each fold by a model fitted on the other folds."""
    from sklearn.model_selection import GroupKFold

    from ..rm.kinds.linear.model import CountedCompletions

    groups = [case.cluster or case.id for case in cases]
    folds = min(FOLDS, len(set(groups)))
    if folds < 2:
        return [Judgment(case.id, abstained="one prompt cannot be split into folds") for case in cases]
    first = np.cumsum([0, *(len(case.answers) for case in cases)])  # index of each case's first answer
    pairs = [first[index] + _pairs(case) for index, case in enumerate(cases)]
    counts = CountedCompletions([answer for case in cases for answer in case.texts], np.concatenate(pairs))
    judged: list[Judgment | None] = [None] * len(cases)
    splits = GroupKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(cases)), groups=groups)
    for train, held_out in tqdm(splits, total=folds, desc=f"{TFIDF}: folds", disable=None, delay=1):
        rated = np.concatenate([np.arange(first[index], first[index + 1]) for index in held_out])
        try:
            rewards = iter(counts.fit_and_rate(np.concatenate([pairs[index] for index in train]), rated).tolist())
        except DataError as error:
            for index in held_out:
                judged[index] = Judgment(cases[index].id, abstained=str(error))
            continue
        for index in held_out:
            judged[index] = Judgment(cases[index].id, scores=tuple(next(rewards) for _ in cases[index].answers))
    return judged  # type: ignore[return-value]


def _pairs(case: Case) -> np.ndarray:
    """Return the indices [B, 2] of all B pairs (right, wrong), or (better, worse), of a case's responses."""
    if case.preferences:
        return np.array(case.preferences)
    others = [index for index in range(len(case.answers)) if index not in case.best]
    return np.array([(best, other) for best in case.best for other in others], int).reshape(-1, 2)


def all_baselines(seed: int = 0) -> list[Baseline]:
    """Return the default baselines of a report."""
    return [longest(), shortest(), random_guess(seed), tfidf(seed)]


def baselines_for(cases: Sequence[Case], seed: int = 0, chosen: Sequence[str] = ("all",)) -> list[Baseline]:
    """Return the named baselines of `types.BASELINES`. `majority` requires right responses at several indices."""
    baselines = [*all_baselines(seed), *([majority()] if len(_right_positions(cases)) > 1 else [])]
    names = {TFIDF if name == "tfidf" else name for name in chosen}
    return [baseline for baseline in baselines if "all" in names or baseline.name in names]
