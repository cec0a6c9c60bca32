"""Contamination check with an encoder: rows of preference data whose prompts resemble benchmark prompts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..judges.retrieval.index import Hit, VectorIndex, search
from ..rm.errors import UsageError
from ..rm.registry import load
from ..rm.types import PreferencePair


def split_name(text: str) -> tuple[str, str]:
    """Split NAME or NAME=FILE into benchmark and file. The file is empty if the text has none."""
    name, _, source = text.partition("=")
    return name, source


def benchmark_prompts(against: Sequence[str]) -> dict[str, list[str]]:
    """Return the user turns of each benchmark's prompts, with repetitions. `against` has items NAME or NAME=FILE."""
    prompts: dict[str, list[str]] = {}
    for name, source in map(split_name, against):
        suite = load("benchmarks.suites", name)(on_bad_row="skip")
        if not (source or suite.hub):
            raise UsageError(f"--against {name}: this benchmark has no data set on the Hub; write {name}=FILE")
        cases, _ = suite.cases([source or suite.hub])
        turns = [turn["content"] for case in cases for turn in case.prompt if turn["role"] == "user"]
        prompts.setdefault(name, []).extend(turns)
    return prompts


def nearest_prompts(
    pairs: Sequence[PreferencePair], benchmarks: Mapping[str, Sequence[str]], encoder: Any
) -> Iterator[tuple[str, dict[int, Hit]]]:
    """Yield each benchmark's name and a mapping row -> hit: the benchmark prompt nearest to any user turn of the row.

        max_{u, b} sim(u, b) over the user turns u of a row and the prompts b of a benchmark, in [-1, 1]

    with `judges.retrieval.pooling.similarity` as sim. Unlike the search for shared words in
    `rm.data.contamination`, the encoder can find paraphrased prompts.
    """
    turns = [(row, turn["content"]) for row, pair in enumerate(pairs) for turn in pair.prompt if turn["role"] == "user"]
    for name, repeated in benchmarks.items():
        prompts = [*dict.fromkeys(repeated)]
        hits = search(VectorIndex(encoder, prompts, prompts), [text for _, text in turns], 1)
        nearest: dict[int, Hit] = {}
        for (row, _), (hit,) in zip(turns, hits, strict=True):
            nearest[row] = max(hit, nearest.get(row, hit), key=lambda candidate: candidate.score)
        yield name, nearest
