"""Cases of JudgeBench with stored judgments: reward models as cheap judges, a language model as the strong one."""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....benchmarks.scorers import load_stored
from ....benchmarks.suites.judgebench import judgebench
from ....judges.kinds.route import is_right
from ....judges.types import Case, Judgment
from ....rm.types import content_hash

CASES = "judgebench/gpt-4o.jsonl.gz"
GOLDEN = "judgebench/golden/gpt-4o."
STRONG = "o1-mini"
STRONG_FILE = f"{GOLDEN}arena_hard.o1-mini-2024-09-12.jsonl.gz"
REWARD_MODELS = {
    "InternLM2 7B": f"{GOLDEN}reward_model.internlm_internlm2-7b-reward.jsonl.gz",
    "Skywork 8B": f"{GOLDEN}reward_model.Skywork_Skywork-Reward-Llama-3.1-8B.jsonl.gz",
    "Skywork 27B": f"{GOLDEN}reward_model.Skywork_Skywork-Reward-Gemma-2-27B.jsonl.gz",
}
"""From the smallest to the largest."""
COMBINED = "7B + 8B"
CHEAP = (*REWARD_MODELS, COMBINED)
OTHER = dict(zip(CHEAP, ("Skywork 8B", "InternLM2 7B", "InternLM2 7B", "Skywork 27B"), strict=True))
"""Cheap judge -> the smallest reward model that is no part of it."""


class Stored(NamedTuple):
    """The data of the study as a folder, with a hash of the files; `rows` spaces out that many cases, for a dry run."""

    folder: str
    digest: str
    rows: int | None = None

    @property
    def files(self) -> list[str]:
        """Return the files."""
        return [str(Path(self.folder, file)) for file in (CASES, STRONG_FILE, *REWARD_MODELS.values())]


def stored(folder: Path, rows: int | None = None) -> Stored:
    """Return the data below a folder."""
    data = Stored(str(folder), "", rows)
    return data._replace(
        digest=content_hash([hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in data.files])
    )


class Judged(NamedTuple):
    """M cases, the margins of every cheap judge, and the credits of all judges."""

    cases: list[Case]
    margins: Mapping[str, np.ndarray]
    """Score of the first response minus that of the second [M], over its root mean square."""
    cheap: Mapping[str, np.ndarray]
    """1 where a judge is right, else 0 [M]; a tie is wrong."""
    strong: np.ndarray

    def needed(self, cheap: str) -> np.ndarray:
        """Return the labels z [M]: the cheap judge is wrong and the strong one right."""
        return ((self.strong == 1) & (self.cheap[cheap] == 0)).astype(int)


@lru_cache
def judged(data: Stored) -> Judged:
    """Load cases and stored judgments. The strong judge has a vote in each order, the combination the mean margin."""
    suite = judgebench()
    cases, _ = suite.cases([str(Path(data.folder, CASES))])
    cases = cases[:: max(1, len(cases) // data.rows)] if data.rows else cases
    files = {STRONG: STRONG_FILE, **REWARD_MODELS}
    judgments = {name: load_stored(str(Path(data.folder, file)), suite, cases)(cases) for name, file in files.items()}
    margins = {name: standardised(judgments[name]) for name in REWARD_MODELS}
    margins[COMBINED] = np.mean([margins[name] for name in [*REWARD_MODELS][:2]], axis=0)
    judgments[COMBINED] = [
        Judgment(case.id, scores=(float(margin), 0.0)) for case, margin in zip(cases, margins[COMBINED], strict=True)
    ]
    credits = {
        name: np.array([float(is_right(*pair)) for pair in zip(cases, of_judge, strict=True)])
        for name, of_judge in judgments.items()
    }
    return Judged(cases, margins, {name: credits[name] for name in CHEAP}, credits[STRONG])


def standardised(judgments: list[Judgment]) -> np.ndarray:
    """Return the margins [M] of two responses over their root mean square; no label is used."""
    margins = np.array([judgment.scores[0] - judgment.scores[1] for judgment in judgments])
    return margins / np.sqrt(np.mean(margins**2))
