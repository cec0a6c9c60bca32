"""Majority rewards: whether a completion has the most frequent answer of its group; no reference is needed."""

from collections.abc import Callable, Sequence

from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from ._answers import BOXED, last_answer, majority_answer
from ._open import RunFacts


def majority(
    *, run: RunFacts, answer: str = BOXED, cross: bool = False, least: float = 0.0, most: float = 1.0
) -> Callable[..., list[float | None]]:
    """r_i = 1[a_i = most frequent answer of the prompt's completions]                  MM-UPT 2025, arXiv:2505.22453

    a_i is the last match of the pattern `answer`; a completion without an answer does not count and has r_i = 0. Of
    equally frequent answers the first is the majority, as in the released code. With `cross`, the majority is that of
    the completions of the other variants of the prompt (column prompt_variants): Co-Reward 2025, arXiv:2508.00410,
    where the two variants are the question and a paraphrase. Ours: the reward is missing if the share of the majority
    lies outside [`least`, `most`], since training on a wrong consensus strengthens it.
    """
    if not 0 <= least <= most <= 1:
        raise UsageError(f"majority: 0 <= least <= most <= 1 must hold, got least={least} and most={most}")
    if cross and not any(row.variants for row in run.table):
        raise UsageError("majority: cross compares variants of a prompt; add the column prompt_variants to the data")
    read = last_answer(answer)

    def rate(examples: Sequence[Example], rows: Sequence[int]) -> list[float | None]:
        pairs = zip(examples, rows, strict=True)
        voters = [(read(example.text), prompt_text(example.prompt), row) for example, row in pairs]
        rewards: list[float | None] = []
        for final, prompt, row in voters:
            label, share = majority_answer(a for a, p, r in voters if r == row and not (cross and p == prompt))
            rewards.append(float(final == label != "") if least <= share <= most else None)
        return rewards

    rate.compares = rate.reads_rows = True  # type: ignore[attr-defined]
    return rate
