"""ProcessBench: the first wrong step of a solution, if any (Zheng et al. 2024, arXiv:2412.06559)."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case, Judgment
from ...rm.data.pairs import OnBadRow
from ...rm.data.solutions import parse_first_error
from ...rm.errors import DataError
from ...rm.types import Steps
from ..baselines import Baseline, fixed_baselines
from ..statistics.cluster_bootstrap import Cells
from ..statistics.first_error import NONE, best_threshold, first_error, harmonic_mean
from ..types import RANDOM
from ._suite import StrictSuite, case, read_cases

WRONG, RIGHT = "erroneous", "correct"
THRESHOLD = 0.5


class ProcessBench(StrictSuite):
    """Suite with credit 1 if the first step with a score below the threshold is the labelled first error.

    Response k of a case is the solution up to step k. A section is a group of problems; its figure is F1, the harmonic
    mean of the accuracies on erroneous and on correct solutions. The overall figure is the mean over the groups.
    """

    name = "processbench"
    hub = ""
    compares = False

    def __init__(self, threshold: float = THRESHOLD, on_bad_row: OnBadRow = "refuse"):
        super().__init__(on_bad_row)
        self.threshold = threshold
        if threshold != THRESHOLD:
            self.name = f"processbench(threshold={threshold!r})"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases. Raise an error unless every group has erroneous and correct solutions."""
        cases, notes = read_cases(sources, _case, self.on_bad_row)
        sizes = Counter(case.subset for case in cases)
        for group in sorted({_group(name) for name in sizes}):
            if absent := [kind for kind in (WRONG, RIGHT) if not sizes[_subset(group, kind)]]:
                raise DataError(
                    f"{', '.join(sources)}: no {absent[0]} solution{f' of {group}' if group else ''}, but F1 needs "
                    "erroneous and correct solutions; add some"
                )
        return cases, [*notes, f"A step with a score below {self.threshold:g} is predicted to be wrong."]

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return 1 if the predicted first error equals the label, or if both are absent, else 0."""
        return (float(first_error(scores, self.threshold) == label_of(case)),)

    def margin(self, case: Case, scores: Sequence[float]) -> float:
        """Return the smallest distance of a score from the threshold, up to the first wrong step.

        It is negative for a score on the wrong side: the first wrong step must score below, earlier steps above.
        """
        label = label_of(case)
        until = len(scores) if label == NONE else label
        distances = [score - self.threshold for score in scores[:until]]
        return min([*distances, *(self.threshold - score for score in scores[until : until + 1])])

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the F1 of each group, and their mean."""
        groups = sorted({_group(name) for name in cells.subsets})
        means = {group: [cells.mean([_subset(group, kind)]) for kind in (WRONG, RIGHT)] for group in groups}
        f1 = {group or "F1": harmonic_mean(*both) for group, both in means.items()}
        return {"overall": np.mean([*f1.values()], axis=0)} | (f1 if len(groups) > 1 else {})

    def baselines(self, cases: Sequence[Case], seed: int = 0, chosen: Sequence[str] = ("all",)) -> list[Baseline]:
        """Return baselines of fixed predictions: no error, first step, last step, random; [] for "none"."""
        fixed: dict[str, Callable[[Case, int], bool]] = {
            "no error": lambda case, index: True,
            "first step": lambda case, index: index != 0,
            "last step": lambda case, index: index != len(case.answers) - 1,
            RANDOM: lambda case, index: index != _random_answer(case, seed),
        }
        return fixed_baselines(fixed, self.threshold, chosen)

    def remarks(self, name: str, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[str]:
        """Return a finding with the threshold that would have had the highest F1 on these solutions."""
        judged = [(some, label_of(case)) for case, some in zip(cases, judgments, strict=True) if some.scores]
        best = best_threshold([some.scores for some, _ in judged], [label for _, label in judged])
        if np.isnan(best.value):
            return []
        return [
            f"{name}: over all solutions together F1 is highest, {100 * best.f1:.1f}, at a threshold of "
            f"{best.value:.3g}; use it on other solutions, as processbench(threshold={best.value:.3g})."
        ]


def label_of(case: Case) -> int:
    """Return the index of a case's first wrong step; -1 if all steps are right."""
    return first_error(case.values, 1.0)


def _case(values: Mapping[str, Any]) -> Case:
    solution, label = parse_first_error(values)
    steps = solution.steps
    prefixes = [Steps(steps[: index + 1]) for index in range(len(steps))]
    free = len(steps) if label == NONE else label  # number of prefixes without an error
    group = solution.id.rpartition("-")[0]
    best, kind = (range(len(steps)), RIGHT) if label == NONE else ((label,), WRONG)
    gold = tuple(float(index < free) for index in range(len(steps)))
    return case(solution.id, solution.prompt, prefixes, best, _subset(group, kind), values=gold)


def _subset(group: str, kind: str) -> str:
    """Return the name of a group's erroneous or correct solutions."""
    return f"{group}/{kind}" if group else kind


def _group(subset: str) -> str:
    return subset.rpartition("/")[0]


def _random_answer(case: Case, seed: int) -> int:
    """Return a uniformly random step index, or -1 for no error."""
    digest = hashlib.sha256(f"{seed}|{case.id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (len(case.answers) + 1) - 1


def processbench(threshold: float = THRESHOLD, on_bad_row: OnBadRow = "refuse") -> ProcessBench:
    """Return the suite of ProcessBench. `threshold` is in the unit of the scores, 1/2 for probabilities.

    The paper chooses each model's threshold on the solutions of GSM8K and uses it for all groups.
    """
    return ProcessBench(threshold, on_bad_row)
