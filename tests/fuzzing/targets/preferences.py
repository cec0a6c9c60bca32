"""Preference data, conversations, scored answers, stored scores and cases, in every format that is read."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardlab.benchmarks.scorers import load_stored
from rewardlab.benchmarks.suites.pairs import CaseFile, pairs
from rewardlab.rm.data.lint import lint
from rewardlab.rm.data.pairs import load_examples, load_pairs, read_prompts
from rewardlab.rm.data.scored_rows import load_judged

from tests.fuzzing.shapes import JSON, JSON_LINES, PARQUET, Shape
from tests.fuzzing.target import Target

TURNS = [{"role": "user", "content": "Which is longer?"}]
PAIRS: Sequence[Mapping[str, Any]] = (
    {"prompt": "What is 2+2?", "chosen": "It is 4.", "rejected": "It is 5.", "margin": 1.5, "subset": "a", "id": "1"},
    {"prompt": TURNS, "chosen": "A", "rejected": "B", "wins": {"overall": 0.75}},
    {f"{side}": [*TURNS, {"role": "assistant", "content": side}] for side in ("chosen", "rejected")},
    {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi\n\nAssistant: Go away."},
    {"prompt": "p", "chosen": "c", "rejected": "r", "score_chosen": 8.0, "score_rejected": 7.5, "gaps": {"a": 0.5}},
    {"prompt": "p", "chosen": "c", "rejected": "d", "metadata": {"score_chosen": 2, "score_rejected": 1}},
    {"prompt": "p", "chosen": "c", "rejected": "d", "unique_id": 3},
)
EXAMPLES = (
    {"id": "a", "prompt": "p", "completion": "c"},
    {"messages": [*TURNS, {"role": "assistant", "content": "x"}]},
    {"prompt": TURNS, "response": "r"},
)
SCORED = (
    {"prompt": "p", "response": "r", "helpfulness": 3, "correctness": None},
    {"prompt": "p", "response": "s", "scores": {"helpfulness": 4.0}},
    {"prompt": "p", "chosen": "c", "rejected": "d", "scores_chosen": {"helpfulness": 1}, "scores_rejected": None},
)
STORED = ({"case": "1", "scores": [1.0, 0.5]}, {"id": "2", "score_chosen": 1, "score_rejected": 0})
CASES = (
    {"id": "1", "prompt": "p", "answers": ["a", "b", "c"], "best": [0, 2], "subset": "s", "authors": ["x", "y", "z"]},
    {"prompt": TURNS, "answers": ["a", "b"], "best": 1},
    dict(PAIRS[0]) | {"chosen_model": "m", "rejected_model": "n"},
)
CSV = b"""id,prompt,chosen,rejected,subset
1,What?,"It is 4, ""yes"".",5,
2,"two
lines",a,b,x
"""


def lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return PARQUET.write([dict(row) for row in rows])


def alone(rows: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    return (*(lines([row]) for row in rows), lines(rows))


def preferences() -> list[Target]:
    read = _skipping(load_pairs)
    whole, plain = lines(PAIRS), [row for row in PAIRS if isinstance(row.get("prompt"), str)]

    def target(name: str, file: str, seeds: tuple[bytes, ...], opens: Any, shape: Shape | None) -> Target:
        return Target(f"data/{name}", file, seeds, opens, shape)

    def scored(path: Path) -> None:
        load_judged(str(path), ["helpfulness", "correctness"], on_bad_row="skip")

    return [
        target("pairs.jsonl", "pairs.jsonl", alone(PAIRS), read, JSON_LINES),
        target("pairs.json", "pairs.json", (json.dumps(PAIRS).encode(), json.dumps({"a": PAIRS}).encode()), read, JSON),
        target("pairs.parquet", "pairs.parquet", (*map(parquet, (plain, PAIRS[:1], PAIRS[2:3])),), read, PARQUET),
        target("pairs.csv", "pairs.csv", (CSV,), read, None),
        target("pairs.jsonl.gz", "pairs.jsonl.gz", (gzip.compress(whole, mtime=0),), read, None),
        target("lint", "p.jsonl", (whole,), lambda path: lint(load_pairs(str(path), on_bad_row="skip")[0]), JSON_LINES),
        target("examples.jsonl", "examples.jsonl", alone(EXAMPLES), _skipping(load_examples), JSON_LINES),
        target("scored.jsonl", "scored.jsonl", alone(SCORED), scored, JSON_LINES),
        target("stored scores", "s.jsonl", alone(STORED), lambda path: load_stored(str(path), pairs(), []), JSON_LINES),
        target("cases", "cases.jsonl", alone(CASES), lambda path: CaseFile().cases([str(path)]), JSON_LINES),
        target("prompts.jsonl", "p.jsonl", alone(EXAMPLES[::2]), lambda path: read_prompts(str(path)), JSON_LINES),
    ]


def _skipping(load: Callable[..., Any]) -> Callable[[Path], None]:
    """Bad rows are skipped, and once more refused."""

    def opens(path: Path) -> None:
        load(str(path), on_bad_row="skip")
        load(str(path))

    return opens
