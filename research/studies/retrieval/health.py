"""HealthBench: the rubric of a prompt among those of other prompts, and prompts of the same theme."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ....judges.retrieval.index import TextIndex, VectorIndex
from ....judges.retrieval.lexical import Bm25Index, TfidfIndex
from ....judges.retrieval.training import TextPair, pairs_within
from ....rm.data.pairs import row_prompt
from ....rm.data.readers import read_rows
from ....rm.types import prompt_text
from .._runs.job_cache import Arrays, Job
from .encoders import Training, measured
from .metrics import mean_reciprocal_rank, precision_at, ranks, recall_at

FILE = "healthbench_rubrics/val.jsonl.gz"
THEMES = (
    "communication", "hedging", "health_data_tasks", "global_health", "complex_responses", "context_seeking",
    "emergency_referrals",
)  # fmt: skip
LEXICAL = {"TF-IDF": TfidfIndex, "BM25": Bm25Index}
HELD_OUT = 100
NEIGHBOURS = 5


class Prompt(NamedTuple):
    """A prompt with the criteria that were written for it alone, and its theme."""

    text: str
    rubric: str
    theme: str
    """Empty for a prompt without criteria of a theme."""


@lru_cache(maxsize=1)
def read_prompts(path: str, rows: int | None = None) -> list[Prompt]:
    """Load the prompts that have criteria of their own.

    Criteria of a theme have the same words for all of its prompts, so they are in no rubric here: they would give the
    theme away. Their tags (`cluster:THEME_...`) name it.
    """
    prompts = [_prompt(row.values) for row in read_rows(path)]
    return [prompt for prompt in prompts if prompt.rubric][:rows]


def _prompt(values: Mapping[str, Any]) -> Prompt:
    criteria = values["rubrics"]
    tags = {tag.removeprefix("cluster:") for criterion in criteria for tag in criterion["tags"] if "cluster:" in tag}
    theme = next((theme for theme in THEMES if any(tag.startswith(theme) for tag in tags)), "")
    texts = [criterion["criterion"] for criterion in criteria if "level:example" in criterion["tags"]]
    return Prompt(prompt_text(row_prompt(values)), "\n".join(texts), theme)


def split(prompts: list[Prompt], seed: int, held_out: int) -> tuple[list[Prompt], list[Prompt]]:
    """Return the training and the held-out prompts of a seed."""
    order = Random(f"health {seed}").sample(prompts, len(prompts))
    return order[held_out:], order[:held_out]


@dataclass(frozen=True)
class HealthArm(Job):
    """Retrieval by one arm, measured on the held-out prompts of a seed."""

    data: str
    arm: str
    seed: int
    training: Training = field(default_factory=Training)
    held_out: int = HELD_OUT
    rows: int | None = None

    def __str__(self) -> str:
        return f"HealthBench, {self.arm}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return recall, mean reciprocal rank of prompt -> rubric, and precision among a prompt's neighbours."""
        train, held_out = split(read_prompts(str(Path(self.data) / FILE), self.rows), self.seed, self.held_out)
        texts, rubrics = ([getattr(prompt, name) for prompt in held_out] for name in ("text", "rubric"))
        by_rubric, by_prompt = self._indices(train, rubrics, texts)
        rank = ranks(np.round(by_rubric.scores(texts), 5), np.arange(len(texts)))
        neighbours = np.round(by_prompt.scores(texts), 5)
        return measured(
            {
                "recall@1": recall_at(rank, 1),
                "recall@10": recall_at(rank, 10),
                "mrr": mean_reciprocal_rank(rank),
                "theme": precision_at(neighbours, [prompt.theme for prompt in held_out], NEIGHBOURS),
            }
        )

    def _indices(self, train: list[Prompt], rubrics: list[str], texts: list[str]) -> tuple[TextIndex, TextIndex]:
        ids = [str(number) for number in range(len(texts))]
        if self.arm in LEXICAL:
            return LEXICAL[self.arm](ids, rubrics), LEXICAL[self.arm](ids, texts)
        encoder = self.training.encoder(self.arm, *training_pairs(train, self.seed), self.seed)
        return VectorIndex(encoder, ids, rubrics), VectorIndex(encoder, ids, texts)


def training_pairs(train: list[Prompt], seed: int) -> tuple[list[TextPair], list[TextPair]]:
    """Return prompt -> rubric pairs, and pairs of prompts of the same theme."""
    questions = [TextPair(prompt.text, prompt.rubric) for prompt in train]
    themes = [prompt.theme for prompt in train]
    return questions, pairs_within([prompt.text for prompt in train], themes, per_text=2, seed=seed)
