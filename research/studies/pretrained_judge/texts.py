"""Pairs of the study: Auto-J's critiques of two responses to one query, short training pairs, and Auto-J's test.

They are written to one file in the cache, named by its hash, so that jobs need no data.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....judges.types import Case
from ....rm.data.conversation_split import normal_prompt
from ....rm.data.pairs import load_pairs
from ....rm.data.readers import read_rows
from ....rm.types import prompt_text, user_turn
from .._runs.texts_file import store_texts, stored_texts
from ..pretrained.texts import SOURCES, at_most, decided

CRITIQUES, TEST = "data/auto_j/single_traindata.jsonl.gz", "data/auto_j/testdata_pairwise.jsonl.gz"
TRAINED_ON = ("UltraFeedback", "arena", "HH helpful")
FORM = re.compile(r"\[Query\]: (.*?)\n\*\*\*\n\[Response\]: (.*?)\n\*\*\*\n\[END DATA\]", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])\s+")
LONGEST = 900
"""Characters of a prompt with both responses."""
FIRST, SECOND = 0, 1


class Trace(NamedTuple):
    """A query with two responses, the first sentence of Auto-J's critique of each, and the better one's index."""

    query: str
    responses: tuple[str, str]
    critiques: tuple[str, str]
    better: int


class Pair(NamedTuple):
    """A prompt with two responses, and the better one's index."""

    prompt: str
    responses: tuple[str, str]
    better: int

    def case(self, name: str) -> Case:
        """Return the pair as a case."""
        return Case(name, user_turn(self.prompt), tuple(self.responses), best=(self.better,))


class Texts(NamedTuple):
    """Traces, pairs of policy training and pairs of the test; none has a prompt of another."""

    traces: Sequence[Trace]
    training: Sequence[Pair]
    test: Sequence[Pair]


def prepared(data: Path, cache: Path, training: int, tested: int, seed: int) -> str:
    """Write the texts to the cache and return their name."""
    draw = np.random.default_rng(seed)
    test = _sample(draw, [*_test_pairs(data)], tested)
    excluded = {normal_prompt(pair.prompt) for pair in test}
    traces = [trace for trace in _traces(data) if normal_prompt(trace.query) not in excluded]
    excluded |= {normal_prompt(trace.query) for trace in traces}
    pairs = [pair for pair in _training_pairs(data, draw) if normal_prompt(pair.prompt) not in excluded]
    return store_texts(cache, Texts(traces, _sample(draw, pairs, training), test))


@lru_cache(maxsize=1)
def load_texts(cache: Path, name: str) -> Texts:
    """Read the texts of a name."""
    traces, training, test = stored_texts(cache, name)
    return Texts([Trace(*row) for row in traces], [Pair(*row) for row in training], [Pair(*row) for row in test])


def _traces(data: Path) -> Iterator[Trace]:
    """Yield every two rated responses to one query whose ratings differ by 1 at least."""
    by_query: dict[str, list[tuple[str, float, str]]] = {}
    for row in _rows(data / CRITIQUES):
        if match := FORM.search(row["usrmsg"]):
            first = SENTENCE.split(row["target_output"].strip())[0]
            by_query.setdefault(match[1], []).append((match[2], float(row["pred_score"]), first))
    for query, rated in by_query.items():
        for (one, worth, critique), (other, other_worth, other_critique) in combinations(rated, 2):
            if abs(worth - other_worth) >= 1 and len(query) + len(one) + len(other) <= 2 * LONGEST:
                yield Trace(query, (one, other), (critique, other_critique), FIRST if worth > other_worth else SECOND)


def _training_pairs(data: Path, draw: np.random.Generator) -> Iterator[Pair]:
    """Yield short labelled pairs with a single user turn, the better response first or second by a coin."""
    for source in TRAINED_ON:
        pairs, _ = load_pairs([str(data / file) for file in SOURCES["dialogue"][source]], on_bad_row="skip")
        for pair in at_most(decided(pairs), 1):
            prompt = prompt_text(pair.prompt)
            if len(pair.prompt) == 1 and len(prompt) + sum(map(len, pair.texts)) <= LONGEST:
                yield Pair(prompt, *_ordered(*pair.texts, int(draw.integers(2))))


def _ordered(chosen: str, rejected: str, better: int) -> tuple[tuple[str, str], int]:
    return ((chosen, rejected) if better == FIRST else (rejected, chosen)), better


def _test_pairs(data: Path) -> Iterator[Pair]:
    """Yield Auto-J's short test pairs without a tie."""
    for row in _rows(data / TEST):
        responses = row["response 1"], row["response 2"]
        if row["label"] in (FIRST, SECOND) and len(row["prompt"]) + sum(map(len, responses)) <= LONGEST:
            yield Pair(row["prompt"], responses, row["label"])


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    return (row.values for row in read_rows(str(file)))


def _sample(draw: np.random.Generator, values: Sequence[Any], number: int) -> list[Any]:
    return [values[index] for index in draw.permutation(len(values))[:number]]
