"""LongRLVR: a reward for the answer and for the cited chunks of a long context."""

import re
from collections.abc import Callable, Sequence

from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from ._open import RunFacts, open_rate

CITED = re.compile(r"<useful_chunks>(.*?)</useful_chunks>", re.DOTALL)
CHUNK = re.compile(r"<CHUNK_(\d+)>")


def context(
    *, run: RunFacts, reward: str, chunks: str = "chunks", beta: float = 2.0, alone: float = 0.1, joint: float = 0.9
) -> Callable[..., list[float]]:
    """r = r_ans + η F_β + (1 - η) r_ans F_β                                            LongRLVR 2026, arXiv:2603.02146

    r_ans is the reward by `reward`, a source of --reward with one component. F_β (`f_score`) compares the chunks that
    the completion cites, as <CHUNK_3> in a single block <useful_chunks>, with those in column `chunks` (a list of
    numbers). β = 2, η = `alone` and 1 - η = `joint` are those of the released code. F_β is 0 without the block.
    """
    if beta <= 0 or min(alone, joint) < 0:
        raise UsageError(f"context: beta must be > 0, alone and joint must be >= 0, got {beta}, {alone} and {joint}")
    gold = run.numbers_by_prompt(chunks)
    rate = open_rate(reward, run)

    def score(examples: Sequence[Example], rows: Sequence[int] = ()) -> list[float]:
        return [
            r + alone * f + joint * r * f
            for r, example in zip(rate(examples, rows).tolist(), examples, strict=True)
            for f in [f_score(cited_chunks(example.text), gold[prompt_text(example.prompt)], beta)]
        ]

    score.reads_rows = True  # type: ignore[attr-defined]
    return score


def cited_chunks(text: str) -> list[int]:
    """Return the numbers of the cited chunks, or [] unless there is exactly one block of citations.

    >>> cited_chunks("<useful_chunks><CHUNK_2>, <CHUNK_5></useful_chunks> It is wax.")
    [2, 5]
    """
    blocks = CITED.findall(text)
    return [int(chunk) for chunk in CHUNK.findall(blocks[0])] if len(blocks) == 1 else []


def f_score(cited: Sequence[int], gold: Sequence[int], beta: float) -> float:
    """F_β = (1 + β²) P R / (β² P + R), with P = |cited ∩ gold| / |cited| and R = |cited ∩ gold| / |gold|.

    A repeated citation counts in |cited|, as in the released code.

    >>> f_score([1, 2], [1, 3, 4], 1.0)
    0.4
    """
    common = len({*cited} & {*gold})
    precision, recall = common / max(len(cited), 1), common / max(len({*gold}), 1)
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall) if common else 0.0
