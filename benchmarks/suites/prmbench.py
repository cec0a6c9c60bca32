"""PRMBench: correct and wrong steps of solutions with inserted errors (Song et al. 2025, arXiv:2501.03124)."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import OnBadRow, check_filled, collect, column, text_list
from ...rm.types import Steps
from ..baselines import Baseline, fixed_baselines
from ..statistics.cluster_bootstrap import Cells
from ..types import RANDOM
from ._suite import ScoredSuite, case, dropped_note, one_of

SECTIONS = {
    "simplicity": ("redundency", "circular"),  # the data set's spelling
    "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
    "sensitivity": ("missing_condition", "deception", "multi_solutions"),
}
CLASSES = [name for classes in SECTIONS.values() for name in classes]
THRESHOLD = 0.5


class PRMBench(ScoredSuite):
    """Suite with the PRMScore (F1 of correct steps + F1 of wrong steps) / 2, each over the steps of all solutions.

    Response k of a case is the solution up to step k. A step with a score above the threshold is predicted to be
    correct. `multi_solutions`, without wrong steps, has the F1 of correct steps. A section is the mean of its classes.
    """

    name = "prmbench"
    hub = "hitsmy/PRMBench_Preview:train"
    measures = ("accuracy", "correct", "wrong")
    compares = False

    def __init__(self, threshold: float = THRESHOLD, on_bad_row: OnBadRow = "refuse"):
        super().__init__(on_bad_row)
        self.threshold = threshold
        if threshold != THRESHOLD:
            self.name = f"prmbench(threshold={threshold!r})"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, without repetitions of the same class and `idx`."""
        cases, rows = collect(sources, _case, self.on_bad_row)
        first = {case.id: case for case in reversed(cases)}
        notes = [f"{len(cases) - len(first)} rows with the class and idx of an earlier row are left out."]
        notes = [*dropped_note(rows), *notes * (len(first) < len(cases))]
        return [*reversed(first.values())], [*notes, f"A step with a score above {self.threshold:g} counts as correct."]

    def weights(self, case: Case) -> Sequence[float]:
        """Return the numbers of all, correct and wrong steps."""
        return len(case.values), sum(case.values), len(case.values) - sum(case.values)

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return the shares of all, correct and wrong steps that are predicted right; 0 if there are none."""
        steps, correct, wrong = self.weights(case)
        predicted = [score > self.threshold for score in scores]
        accepted = sum(label for label, above in zip(case.values, predicted, strict=True) if above)
        rejected = sum(1 - label for label, above in zip(case.values, predicted, strict=True) if not above)
        return (accepted + rejected) / steps, accepted / max(1, correct), rejected / max(1, wrong)

    def margin(self, case: Case, scores: Sequence[float]) -> float:
        """Return the smallest distance of a score from the threshold, negative on the wrong side."""
        distances = ((s - self.threshold, label) for s, label in zip(scores, case.values, strict=True))
        return min(distance if label else -distance for distance, label in distances)

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the PRMScore of all steps, of each class and of each section."""
        classes = {name: _score(cells, [name]) for name in CLASSES if name in cells.subsets}
        parts = {s: [classes[name] for name in names if name in classes] for s, names in SECTIONS.items()}
        sections = {section: np.mean(values, axis=0) for section, values in parts.items() if values}
        return {"overall": _score(cells, cells.subsets), **sections, **classes}

    def baselines(self, cases: Sequence[Case], seed: int = 0, chosen: Sequence[str] = ("all",)) -> list[Baseline]:
        """Return baselines of fixed predictions: no error, only errors, random; [] for "none"."""
        fixed: dict[str, Callable[[Case, int], bool]] = {
            "no error": lambda case, index: True,
            "only errors": lambda case, index: False,
            RANDOM: lambda case, index: hashlib.sha256(f"{seed}|{case.id}|{index}".encode()).digest()[0] < 128,
        }
        return fixed_baselines(fixed, self.threshold, chosen)


def _score(cells: Cells, subsets: Sequence[str]) -> np.ndarray:
    """Return the mean of the F1 of correct and of wrong steps: F1 = 2 TP / (2 TP + FP + FN)."""
    (correct, all_correct), (wrong, all_wrong) = (cells.sums(subsets, measure) for measure in ("correct", "wrong"))
    errors = all_correct - correct + all_wrong - wrong
    with np.errstate(invalid="ignore"):
        f1 = [2 * right / (2 * right + errors) for right in (correct, wrong)]
    return f1[0] if [*subsets] == ["multi_solutions"] else (f1[0] + f1[1]) / 2


def _case(values: Mapping[str, Any]) -> Case:
    steps = text_list(values, "modified_process")
    kind = one_of("classification", column(values, "classification"), CLASSES)
    question = column(values, "modified_question" if values.get("modified_question") else "original_question")
    wrong = {int(number) - 1 for number in text_list(values, "error_steps")}
    gold = tuple(float(index not in wrong) for index in range(len(steps)))
    prompt = as_prompt(question)
    check_filled(prompt, **{f"step {number}": step for number, step in enumerate(steps, start=1)})
    prefixes = [Steps(tuple(steps[: index + 1])) for index in range(len(steps))]
    best = [index for index, label in enumerate(gold) if label] or [0]
    original = str(values.get("original_question") or question)  # which the classes of errors share
    return replace(case(f"{kind}/{column(values, 'idx')}", prompt, prefixes, best, kind, values=gold), cluster=original)


def prmbench(threshold: float = THRESHOLD, on_bad_row: OnBadRow = "refuse") -> PRMBench:
    """Return the suite of PRMBench. `threshold` is in the unit of the scores, 1/2 for probabilities."""
    return PRMBench(threshold, on_bad_row)
