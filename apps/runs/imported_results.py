"""Run folders from results of other tools: RewardBench's scores, inspect_ai logs, and JSON lines of judgments."""

import hashlib
import json
import math
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...benchmarks.evaluate import evaluate
from ...benchmarks.scorers import StoredScores
from ...benchmarks.suites.pairs import Pairs
from ...benchmarks.suites.rewardbench import SIZES, RewardBench
from ...judges.case_rows import parse_case, unique_ids
from ...judges.types import Case
from ...rm.data.conversation_split import as_completion, as_prompt, first_turn, split_conversations
from ...rm.data.messages_and_tools import check_characters
from ...rm.data.readers import Row, read_rows, source_name
from ...rm.errors import UNREADABLE, DataError
from ...rm.io.cache_folder import cache_folder, create_in_cache
from ...rm.io.checked_files import from_json
from ...rm.types import Message, user_turn
from .evaluation_files import write_evaluation
from .finished import case_hash
from .run_folder import log, run_folder, write_manifest

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0}
"""Values of inspect_ai's scorers: correct, partially correct, incorrect."""
LARGEST = 4 << 30
"""Maximum size of an unpacked inspect_ai log, in bytes."""
COLUMNS = "a row needs prompt, chosen, rejected, scores_chosen and scores_rejected, or prompt, answers, best and scores"
Scores = dict[str, dict[str, tuple[float, ...] | str]]
"""Scorer -> case id -> a score per response, or the reason for abstaining."""


class Results(NamedTuple):
    """Content of a results file: benchmark name, cases and scores."""

    benchmark: str
    cases: list[Case]
    scores: Scores


def import_results(path: Path, cache: Path | None = None) -> Path:
    """Return the run folder of a results file. The folder is cached by the hash of the file.

    Formats: RewardBench's score files (`eval-set-scores/MODEL.json`), logs of inspect_ai (`.eval`, `.json`), and JSON
    lines, JSON, CSV or Parquet with one judgment per row. Raises `DataError` for anything else.
    """
    started, digest = time.time(), hashlib.sha256(path.read_bytes()).hexdigest()
    folder = (cache or cache_folder() / "imported") / f"{source_name(path.name)[:80]}-{digest[:12]}"
    if folder.exists():
        return folder
    results = read_results(path)
    create_in_cache(folder.parent)
    log(f"{path}: {len(results.cases)} cases of {results.benchmark}, judged by {', '.join(results.scores)}")
    official = results.benchmark == RewardBench.name
    suite = RewardBench() if official else Pairs()
    suite.name = results.benchmark
    notes = [f"Imported from {path.name}; no baseline was evaluated."]
    evaluation = evaluate(suite, results.cases, stored_scorers(results), notes=notes)
    with run_folder(str(folder), {"imported": path.name, "sha256": digest}, overwrite=False) as work:
        write_evaluation(evaluation, work)
        write_manifest(work, data=[str(path)], seed=0, started=started, suite=suite.name)
    return folder


def stored_scorers(results: Results) -> list[StoredScores]:
    """Return a scorer that replays stored scores for every scorer name in the results."""
    return [StoredScores(name, scores) for name, scores in results.scores.items()]


def read_results(path: Path) -> Results:
    """Load a results file. Raise `DataError` if it cannot be parsed."""
    if path.suffix == ".eval":
        return _graded_cases(path, *_read_zip_log(path))
    if path.suffix == ".json" and (stored := _read_json_log(path)):
        return _graded_cases(path, stored, stored["samples"])
    rows = list(read_rows(str(path)))
    judged = [_judged_row(row, number) for number, row in enumerate(rows, start=1)]
    if not judged:
        raise DataError(f"{path}: the file has no row; {COLUMNS}")
    stated = [row.values.get("id") is not None for row in rows]
    indices, first_rows = _case_indices(judged, stated)
    ids = unique_ids(judged[row][0].id for row in first_rows)
    cases = [replace(judged[row][0], id=name) for name, row in zip(ids, first_rows, strict=True)]
    scores: Scores = {}
    for index, (_, by_scorer) in zip(indices, judged, strict=True):
        for name, scored in by_scorer.items():
            scores.setdefault(name or source_name(path.name), {})[cases[index].id] = scored
    if not scores:
        raise DataError(f"{path}: no row has a scorer; {COLUMNS}")
    official = {case.subset for case in cases} <= {*SIZES}
    return Results(RewardBench.name if official else "judgments", cases, scores)


# ---- one judgment per row ----

Judged = tuple[Case, dict[str, tuple[float, ...] | str]]
"""Case of a row, and scorer -> scores or the reason for abstaining. A scorer without a name has the key ''."""


def _case_indices(judged: Sequence[Judged], stated: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Return the index of each row's case, and the first row of each case.

    Equal rows are one case if their scorers differ, and separate cases otherwise. `stated` says which rows have an id.
    """
    numbers: Counter[tuple[str, str]] = Counter()
    index_of: dict[tuple[str, int], int] = {}
    indices, first_rows = [], []
    for row, ((case, by_scorer), is_stated) in enumerate(zip(judged, stated, strict=True)):
        text = case_hash(case if is_stated else replace(case, id=""))
        number = max((numbers[text, scorer] for scorer in by_scorer), default=0)
        numbers.update({(text, scorer): number + 1 - numbers[text, scorer] for scorer in by_scorer})
        if (text, number) not in index_of:
            index_of[text, number] = len(first_rows)
            first_rows.append(row)
        indices.append(index_of[text, number])
    return indices, first_rows


def _judged_row(row: Row, number: int) -> Judged:
    """Return the case and the scores of a row. A pair without an id is named by the number of its row."""
    try:
        if row.error:
            raise ValueError(row.error)
        values = row.values
        check_characters([*values.values()])
        if "answers" in values:
            case, stored = parse_case(values), values["scores"]
        else:
            case, stored = _pair(values, number), [values[f"scores_{side}"] for side in ("chosen", "rejected")]
            # some pipelines store a reward as a list of one
            stored = [score[0] if isinstance(score, list) and len(score) == 1 else score for score in stored]
        by_scorer = stored if isinstance(stored, dict) else {str(values.get("model") or ""): stored}
        return case, {str(name): _scores(scores) for name, scores in by_scorer.items()}
    except KeyError as error:
        raise DataError(f"{row.location}: column {error} is missing; {COLUMNS}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{row.location}: {error}; {COLUMNS}") from error


def _pair(values: Mapping[str, Any], number: int) -> Case:
    """Return the case of a row with `chosen` and `rejected`, or RewardBench's `text_chosen` and `text_rejected`."""
    chosen, rejected = (values.get(f"text_{side}", values.get(side)) for side in ("chosen", "rejected"))
    if chosen is None or rejected is None:
        raise KeyError("chosen" if chosen is None else "rejected")
    try:
        prompt, *answers = split_conversations(values.get("prompt"), chosen, rejected)
    except ValueError:  # whole texts under a chat template that do not begin alike
        prompt, answers = user_turn(""), [as_completion(chosen, "chosen"), as_completion(rejected, "rejected")]
    stated, subset = values.get("id"), str(values.get("subset") or "")
    name = str(number if stated is None else stated)
    return Case(f"{subset}/{name}" if subset else name, prompt, tuple(answers), (0,), subset, first_turn(prompt))


def _scores(stored: Any) -> tuple[float, ...] | str:
    """Return a score per response, or the reason for abstaining if a score is None or an empty cell of a CSV file."""
    if stored is None or (isinstance(stored, list) and any(score in (None, "") for score in stored)):
        return "no score"
    if not isinstance(stored, list):
        raise ValueError(f"'scores' must be a list with a number per response, got {str(stored)[:60]!r}")
    numbers = tuple(map(float, stored))
    return numbers if all(map(math.isfinite, numbers)) else "the score is not finite"


# ---- inspect_ai ----


def _read_json_log(path: Path) -> dict[str, Any] | None:
    try:
        stored = from_json(path.read_bytes())
    except ValueError:
        return None
    is_log = isinstance(stored, dict) and isinstance(stored.get("eval"), dict) and "samples" in stored
    return stored if is_log else None


def _read_zip_log(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.filename for entry in archive.infolist()]
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                raise DataError(f"{path}: unpacks to more than {LARGEST >> 30} GiB; split the log")
            header = next((name for name in ("header.json", "_journal/start.json") if name in names), "header.json")
            samples = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
            return from_json(archive.read(header)), [from_json(archive.read(name)) for name in samples]
    except (*UNREADABLE, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: not a readable log of inspect_ai ({error}); convert it with `inspect log convert --to json`"
        ) from error


def _graded_cases(path: Path, header: Mapping[str, Any], samples: Any) -> Results:
    """Return one case per sample of an inspect_ai log: its responses are the choices, or `correct` and `incorrect`."""
    cases, scores = [], {}
    try:
        for sample in samples:
            case, by_scorer = _sample(sample)
            cases.append(case)
            for name, stored in by_scorer.items():
                scores.setdefault(name, {})[case.id] = stored
        task = str(header["eval"]["task"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not a log of inspect_ai that this version can read ({error!r})") from error
    if not scores:
        raise DataError(f"{path}: the log has no scored sample; run `inspect score` on it")
    return Results(task, cases, scores)


def _sample(sample: Mapping[str, Any]) -> tuple[Case, dict[str, tuple[float, ...] | str]]:
    """Return the case of a sample of inspect_ai, and a mapping scorer -> scores."""
    name = f"{sample['id']} (epoch {sample['epoch']})" if sample.get("epoch", 1) != 1 else str(sample["id"])
    target = sample["target"] if isinstance(sample["target"], list) else [sample["target"]]
    choices, graded = sample.get("choices") or [], sample.get("scores") or {}
    letters = [chr(ord("A") + index) for index in range(len(choices))]
    options: dict[str, Any] = {"cluster": str(sample["id"]), "reference": "\n".join(map(str, target))}
    if len(choices) > 1 and {*target} <= {*letters}:
        best = tuple(map(letters.index, target))
        case = Case(name, tuple(_messages(sample["input"])), tuple(map(str, choices)), best, **options)
        return case, {scorer: _choice_scores(score.get("answer"), letters) for scorer, score in graded.items()}
    turns = list(_messages(sample["messages"]))
    case = Case(name, tuple(turns) or user_turn(""), ("The completion is correct.", "It is not."), **options)
    return case, {scorer: _grade_scores(score.get("value")) for scorer, score in graded.items()}


def _choice_scores(answer: Any, letters: Sequence[str]) -> tuple[float, ...] | str:
    """Return a score for each choice: 1 for the choices in the model's answer, 0 for the others."""
    verdicts = {part.strip() for part in str(answer or "").split(",")}
    return (
        tuple(float(letter in verdicts) for letter in letters) if verdicts <= {*letters} else "no choice in the answer"
    )


def _grade_scores(value: Any) -> tuple[float, ...] | str:
    """Return the scores of `correct` and `incorrect` for an inspect_ai score, or the reason for abstaining.

    >>> _grade_scores("C"), _grade_scores(0.25), _grade_scores("N")
    ((1.0, 0.0), (0.25, 0.75), "the value 'N' is not a grade between 0 and 1")
    """
    number = GRADES.get(value, value) if isinstance(value, str) else value
    if isinstance(number, bool | int | float) and 0 <= number <= 1:
        return float(number), 1.0 - float(number)
    return f"the value {str(value)[:60]!r} is not a grade between 0 and 1"


def _messages(stored: Any) -> Iterator[Message]:
    """Yield messages of an inspect_ai log as plain text. Tool calls become text."""
    if isinstance(stored, str):
        yield from as_prompt(stored)
        return
    for message in stored:
        calls = [f"{call['function']}({json.dumps(call['arguments'])})" for call in message.get("tool_calls") or []]
        yield Message(role=message["role"], content="\n".join([_text(message["content"]), *calls]).strip())


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or part.get("reasoning") or f"[{part['type']}]") for part in content)
