"""Selection of a collection's entries for a case, without near-duplicates: nearest, random, or with the same prompt."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from ...rm.data.contamination import near_duplicates
from ...rm.data.conversation_split import normal_prompt
from ...rm.data.text_style import word_count
from ...rm.errors import UsageError
from ...rm.types import content_hash, prompt_text
from ..types import Case
from .index import TextIndex, collection_hash, search
from .settings import ORACLE, RANDOM, RETRIEVED, SELECTIONS

FEWEST_WORDS = 8
"""Minimum number of words for near-duplicates. Shorter responses may be equal by chance."""


class Collection(NamedTuple):
    """Entries of a collection: ids, prompts as text, and the responses of each entry (empty for rubrics)."""

    ids: Sequence[str]
    prompts: Sequence[str]
    answers: Sequence[Sequence[str]] = ()

    def texts(self) -> list[str]:
        """Return the text of each entry, for a hash of the collection."""
        answers = self.answers or [()] * len(self.ids)
        return ["\n".join([prompt, *of_entry]) for prompt, of_entry in zip(self.prompts, answers, strict=True)]


def without_duplicates(cases: Sequence[Case], collection: Collection, near: float = 0.7) -> Bool[np.ndarray, "Q N"]:
    """Return which entries are allowed for each case: neither the case itself nor its near-duplicates.

    An entry is a near-duplicate if its prompt or one of its responses equals the case's, or nearly so
    (`rm.data.contamination`: the share of common 3-word shingles is at least `near`, in either direction). Responses of
    fewer than 8 words are not compared.
    """
    allowed = np.ones((len(cases), len(collection.ids)), bool)
    for index, entry in _near_pairs([prompt_text(case.prompt) for case in cases], collection.prompts, near):
        allowed[index, entry] = False
    answers = _comparable_responses([case.texts for case in cases])
    entries = _comparable_responses(collection.answers)
    for index, entry in _near_pairs([text for _, text in answers], [text for _, text in entries], near):
        allowed[answers[index][0], entries[entry][0]] = False
    return allowed


def _near_pairs(texts: Sequence[str], others: Sequence[str], near: float) -> set[tuple[int, int]]:
    reverse = {(index, entry) for entry, index in near_duplicates(others, texts, near)}
    return {*near_duplicates(texts, others, near)} | reverse


def _comparable_responses(answers: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Return the responses with enough words to be compared, with the index of their case."""
    return [
        (index, text) for index, of_case in enumerate(answers) for text in of_case if word_count(text) >= FEWEST_WORDS
    ]


class Selection:
    """Choose up to k entries of a collection for each case.

    `retrieved`: the k nearest entries by an index of the prompts, best first, without near-duplicates of the case.
    `random`: k random entries among the same candidates, by seed and prompt. This is the control without retrieval.
    `oracle`: up to k entries with the case's own prompt, which the other methods exclude. This is the upper bound.
    """

    def __init__(
        self,
        collection: Collection,
        how: str,
        k: int = 1,
        *,
        index: TextIndex | None = None,
        near: float = 0.7,
        seed: int = 0,
    ):
        if how not in SELECTIONS:
            raise UsageError(f"the selection must be one of {', '.join(SELECTIONS)}, got '{how}'")
        if k < 1:
            raise UsageError(f"the number of entries to show must be >= 1, got {k}")
        if (index is None) == (how == RETRIEVED):
            raise UsageError("the selection 'retrieved' requires an index; other selections accept none")
        self.collection, self.how, self.k, self.index, self.near, self.seed = collection, how, k, index, near, seed
        settings = {"how": how, "k": k, "near": near, "index": index.contract if index else None}
        settings |= {"seed": seed} if how == RANDOM else {}
        self.contract = content_hash([settings, collection_hash(collection.ids, collection.texts())])
        self._known: dict[str, list[int]] = {}

    def __call__(self, cases: Sequence[Case]) -> list[list[int]]:
        """Return the indices of the entries for each case. Fewer than k if fewer are allowed."""
        keys = [content_hash([prompt_text(case.prompt), list(case.texts)]) for case in cases]
        new = {key: case for key, case in zip(keys, cases, strict=True) if key not in self._known}
        if new:
            self._known |= dict(zip(new, self._select_entries([*new.values()]), strict=True))
        return [self._known[key] for key in keys]

    def ids(self, cases: Sequence[Case]) -> list[tuple[str, ...]]:
        """Return the ids of the entries for each case."""
        return [tuple(self.collection.ids[index] for index in chosen) for chosen in self(cases)]

    def _select_entries(self, cases: Sequence[Case]) -> list[list[int]]:
        if self.how == ORACLE:
            prompts = [normal_prompt(prompt) for prompt in self.collection.prompts]
            queries = [normal_prompt(prompt_text(case.prompt)) for case in cases]
            return [[index for index, prompt in enumerate(prompts) if prompt == text][: self.k] for text in queries]
        allowed = without_duplicates(cases, self.collection, self.near)
        texts = [prompt_text(case.prompt) for case in cases]
        if self.index is None:
            return [self._sample(text, np.flatnonzero(row)) for text, row in zip(texts, allowed, strict=True)]
        position = {name: index for index, name in enumerate(self.collection.ids)}
        return [[position[hit.id] for hit in hits] for hits in search(self.index, texts, self.k, allowed)]

    def _sample(self, text: str, permitted: np.ndarray) -> list[int]:
        rng = Random(f"{self.seed} {text}")
        return rng.sample(permitted.tolist(), min(self.k, len(permitted)))
