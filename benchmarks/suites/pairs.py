"""Any preference file as a benchmark: the chosen answer must score higher; subsets are the file's own."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...judges.types import Case
from ...rm.data import OnBadRow, first_turn, load_pairs
from ...rm.errors import DataError
from ...rm.types import OVERALL, PreferencePair

VERSION = "1"


def strictly_best(case: Case, scores: Sequence[float]) -> float:
    """1 if every right answer scores above every wrong one, else 0: a tie is wrong."""
    wrong = max(score for place, score in enumerate(scores) if place not in case.best)
    return float(min(scores[place] for place in case.best) > wrong)


def as_cases(pairs: Sequence[PreferencePair], objective: str = OVERALL) -> tuple[list[Case], int]:
    """Pairs as cases whose right answer is the one more likely to win, and how many had no preference.

    Ids are made unique by subset and, where a file repeats one, by a number.
    """
    cases, seen, undecided = [], Counter(), 0
    for pair in pairs:
        chance = pair.chance(objective)
        if not chance > 0.5 and not chance < 0.5:
            undecided += 1
            continue
        name = f"{pair.subset}/{pair.id}" if pair.subset else pair.id
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        best = (0,) if chance > 0.5 else (1,)
        cases.append(
            Case(unique, pair.prompt, (pair.chosen, pair.rejected), best, pair.subset, first_turn(pair.prompt))
        )
    return cases, undecided


class Pairs:
    """One case per pair; the overall figure is the mean over all of them."""

    name = "pairs"
    version = VERSION
    hub = ""
    sections: Mapping[str, Mapping[str, float]] = {}
    credit = staticmethod(strictly_best)

    def __init__(self, objective: str = OVERALL, on_bad_row: OnBadRow = "refuse"):
        self.objective, self.on_bad_row = objective, on_bad_row

    def cases(self, source: str) -> tuple[list[Case], list[str]]:
        """Cases of a preference file; rows without a preference are left out and counted."""
        pairs, rows = load_pairs(source, on_bad_row=self.on_bad_row)
        cases, undecided = as_cases(pairs, self.objective)
        if not cases:
            raise DataError(f"{source}: none of {len(pairs)} pairs has a preference for '{self.objective}'")
        notes = [f"{undecided} of {len(pairs)} pairs have no preference and are left out."] if undecided else []
        if rows.dropped:
            notes.append(f"{len(rows.dropped)} of {rows.read} rows dropped: {rows.reasons}.")
        return cases, notes


def pairs(objective: str = OVERALL, on_bad_row: OnBadRow = "refuse") -> Pairs:
    """The suite of any preference file."""
    return Pairs(objective, on_bad_row)
