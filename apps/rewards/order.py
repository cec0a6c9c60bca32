"""MR-RLVR: a self-supervised reward for the order of shuffled reasoning steps."""

import re
from collections.abc import Sequence
from itertools import combinations

from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ._answers import last_answer
from ._open import RunFacts, per_completion

LAST_LINE = r"([\d ,>-]+)\s*$"


def order(*, run: RunFacts, steps: str = "order", answer: str = LAST_LINE, by: str = "positions") -> RewardFunction:
    """r = 1/S Σ_s 1[π_s = π*_s], the share of steps at the right position            MR-RLVR 2025, arXiv:2511.17473

    The prompt has the S steps of a solution in random order and asks for the right order π*, a list of their numbers in
    column `steps`; π are the numbers in the last match of the pattern `answer`. Ours, as no code is released:
    by="kendall" rewards the share of pairs of steps in the right order. r is 0 unless π contains each step once. The
    paper's other task, masked formulas, is `rlvrr` with one keyword, or any rule that compares with a reference.
    """
    if by not in SCORES:
        raise UsageError(f"order: by must be one of {', '.join(SCORES)}, got '{by}'")
    orders, read = run.numbers_by_prompt(steps), last_answer(answer)

    def score(text: str, right: list[int]) -> float:
        numbers = [int(number) for number in re.findall(r"\d+", read(text))]
        return SCORES[by](numbers, right) if sorted(numbers) == sorted(right) else 0.0

    return per_completion(orders, score)


def positions_share(numbers: Sequence[int], right: Sequence[int]) -> float:
    """Return the share of steps at the right position.

    >>> positions_share([1, 3, 2, 4], [1, 2, 3, 4])
    0.5
    """
    return sum(a == b for a, b in zip(numbers, right, strict=True)) / max(len(right), 1)


def pairs_share(numbers: Sequence[int], right: Sequence[int]) -> float:
    """Return (1 + Kendall's tau) / 2.

    >>> pairs_share([1, 3, 2], [1, 2, 3])
    0.6666666666666666
    """
    index_of = {step: index for index, step in enumerate(numbers)}
    pairs = [*combinations(right, 2)]
    return sum(index_of[a] < index_of[b] for a, b in pairs) / len(pairs) if pairs else 1.0


SCORES = {"positions": positions_share, "kendall": pairs_share}
