"""Majority rewards: whether a completion has the most frequent answer of its group; no reference is needed."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from ._answers import BOXED, answer_reader, majority_answer
from ._open import RunFacts


def majority(
    *, run: RunFacts, answer: str = BOXED, cross: bool = False, least: float = 0.0, most: float = 1.0
) -> "MajorityReward":
    """r_i = 1[a_i = most frequent answer of the prompt's completions]                  MM-UPT 2025, arXiv:2505.22453

    a_i is the last match of the pattern `answer`; a completion without an answer does not count and has r_i = 0. Of
    equally frequent answers the first is the majority, as in the released code. With `cross`, the answer is that of
    the completions of the other variants of the prompt (column prompt_variants): Co-Reward 2025, arXiv:2508.00410,
    where the two variants are the question and a paraphrase. Ours: the reward is missing if the share of the majority
    lies outside [`least`, `most`], since training on a wrong consensus strengthens it.
    """
    if not 0 <= least <= most <= 1:
        raise UsageError(f"majority: 0 <= least <= most <= 1, got least={least} and most={most}")
    if cross and not any(row.variants for row in run.table):
        raise UsageError("majority: cross compares variants of a prompt; add the column prompt_variants to the data")
    return MajorityReward(answer, cross, least, most)


@dataclass(frozen=True)
class MajorityReward:
    """Reward source that compares the answers of all completions of a data row."""

    pattern: str
    cross: bool = False
    least: float = 0.0
    most: float = 1.0
    compares = True
    reads_rows = True

    def __call__(self, examples: Sequence[Example], rows: Sequence[int]) -> list[float | None]:
        """Return 1.0 or 0.0 by completion, or None for a majority that is too small or too large."""
        read = answer_reader(self.pattern)
        answers = [(read(example.text) or [""])[-1] for example in examples]
        prompts = [prompt_text(example.prompt) for example in examples]
        rewards: list[float | None] = []
        for answer, prompt, row in zip(answers, prompts, rows, strict=True):
            voters = zip(answers, prompts, rows, strict=True)
            label, share = majority_answer(a for a, p, r in voters if r == row and not (self.cross and p == prompt))
            rewards.append(float(answer == label != "") if self.least <= share <= self.most else None)
        return rewards
