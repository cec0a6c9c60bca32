"""Prompts of benchmarks, and rows of preference data that are similar to one of them by an encoder."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..judges.retrieval.index import Hit, VectorIndex, search
from ..rm.errors import UsageError
from ..rm.registry import load
from ..rm.types import PreferencePair


def split_name(text: str) -> tuple[str, str]:
    """Return the benchmark and the file of NAME or NAME=FILE; the file is empty where none is named."""
    name, _, source = text.partition("=")
    return name, source


def benchmark_prompts(against: Sequence[str]) -> dict[str, list[str]]:
    """Return benchmark -> the user turns of its prompts, from NAME or NAME=FILE, each possibly repeated."""
    prompts: dict[str, list[str]] = {}
    for name, source in map(split_name, against):
        suite = load("benchmarks.suites", name)(on_bad_row="skip")
        if not (source or suite.hub):
            raise UsageError(f"--against {name}: it has no data set of its own on the Hub; write {name}=FILE")
        cases, _ = suite.cases([source or suite.hub])
        turns = [turn["content"] for case in cases for turn in case.prompt if turn["role"] == "user"]
        prompts.setdefault(name, []).extend(turns)
    return prompts


def nearest_prompts(
    pairs: Sequence[PreferencePair], benchmarks: Mapping[str, Sequence[str]], encoder: Any
) -> Iterator[tuple[str, dict[int, Hit]]]:
    """Yield each benchmark with the prompt that is nearest to a user turn of each row, and its similarity.

        max_{u, b} sim(u, b) over the user turns u of a row and the prompts b of a benchmark, in [-1, 1]

    with `judges.retrieval.pooling.similarity`. Beside the shared words of `rm.data.contamination` it finds prompts in
    other words, as far as the encoder knows what they mean.
    """
    turns = [(row, turn["content"]) for row, pair in enumerate(pairs) for turn in pair.prompt if turn["role"] == "user"]
    for name, repeated in benchmarks.items():
        prompts = [*dict.fromkeys(repeated)]
        hits = search(VectorIndex(encoder, prompts, prompts), [text for _, text in turns], 1)
        nearest: dict[int, Hit] = {}
        for (row, _), (hit,) in zip(turns, hits, strict=True):
            nearest[row] = max(hit, nearest.get(row, hit), key=lambda candidate: candidate.score)
        yield name, nearest
