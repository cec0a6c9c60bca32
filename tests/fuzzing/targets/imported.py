"""Results of other tools, as the inspector opens them."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from rewardlab.apps.runs.imported_results import read_results, stored_scorers
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.suites.pairs import Pairs

from tests.fuzzing.shapes import JSON, JSON_LINES
from tests.fuzzing.target import Target
from tests.fuzzing.targets.preferences import lines

TURN = {"role": "user", "content": "Name a bird"}
CALL = {"id": "1", "function": "look", "arguments": {"at": 1}}
REPLY = {"role": "assistant", "content": [{"type": "text", "text": "heron"}], "tool_calls": [CALL]}
SAMPLES: list[dict[str, Any]] = [
    {"id": 1, "epoch": 2, "input": "Name", "target": "heron", "messages": [TURN, REPLY],
     "scores": {"m": {"value": "C"}}},
    {"id": 2, "input": [TURN], "target": "B", "choices": ["newt", "owl"], "messages": [TURN],
     "scores": {"m": {"value": 0, "answer": "A"}}},
]  # fmt: skip
LOG = {"eval": {"task": "birds"}, "samples": SAMPLES}
COLUMNS = {
    "text_chosen": ["<|user|> Name a bird: heron", "so it is"], "scores_chosen": [[1.5], 0.25], "model": "org/rm",
    "text_rejected": ["<|user|> Name a bird: newt", "so be it"], "scores_rejected": [[0.5], None],
    "subset": ["alpacaeval-easy", "math-prm"], "id": [3, 3],
}  # fmt: skip
JUDGMENTS = [
    {"id": "1", "prompt": [TURN], "answers": ["newt", "heron"], "best": [1], "scores": {"a": [0.0, 2.0], "b": None}},
    {"prompt": "p", "chosen": "c", "rejected": "r", "scores_chosen": 1, "scores_rejected": 0, "model": "c"},
]


def imported() -> list[Target]:
    return [
        Target("imported/rewardbench.json", "scores.json", (json.dumps(COLUMNS).encode(),), _read, JSON),
        Target("imported/judgments.jsonl", "judgments.jsonl", (lines(JUDGMENTS),), _read, JSON_LINES),
        Target("imported/inspect.json", "log.json", (json.dumps(LOG).encode(),), _read, JSON),
        Target("imported/inspect.eval", "log.eval", (_zipped(),), _read),
    ]


def _read(path: Path) -> None:
    results = read_results(path)
    evaluate(Pairs(), results.cases, stored_scorers(results), samples=10)


def _zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": LOG["eval"]}))
        for index, sample in enumerate(SAMPLES):
            archive.writestr(f"samples/{index}_epoch_1.json", json.dumps(sample))
    return file.getvalue()
