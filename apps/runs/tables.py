"""Cases and scores as two Parquet tables joined by `case`, read by the inspector and by re-scoring.

This module also defines the names of files that one verb writes and another verb reads.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ...judges.types import Case, Judgment
from ...rm.data.conversation_split import as_completion, as_prompt
from ...rm.errors import UNREADABLE, DataError
from ...rm.io.checked_files import from_json
from ...rm.io.reading_faults import reading_fault
from ...rm.types import AnyCompletion, Messages, Steps, completion_json, prompt_text

if TYPE_CHECKING:
    from ...benchmarks.evaluate import Evaluation

T = TypeVar("T")
ITEMS, SCORES, JUDGMENTS = "items.parquet", "scores.parquet", "judgments.parquet"
STEPS = "steps.jsonl"
"""File in the run folder of policy training, one line per step."""
PROGRESS, PLAN = "progress", "plan.json"
"""Folder with the chunks of an unfinished run, and the file in this folder with the numbers of cases and scorers."""
CHUNK = 256
"""Judgments of a chunk."""
ROWS = 8192
"""Rows per Parquet row group. To read one row, its entire row group must be read."""
ITEM_COLUMNS = pa.schema(
    {name: pa.string() for name in ("case", "subset", "cluster", "prompt", "messages")}
    | {"answers": pa.list_(pa.string()), "lengths": pa.list_(pa.int64())}
    | {"best": pa.list_(pa.int64()), "values": pa.list_(pa.float64()), "sets": pa.list_(pa.int64())}
    | {"preferences": pa.list_(pa.list_(pa.int64()))}
)


def write_items(evaluation: "Evaluation", folder: Path) -> None:
    """Write one row per case: texts, lengths of the responses in characters, correct responses, subset and cluster."""
    with pq.ParquetWriter(folder / ITEMS, ITEM_COLUMNS) as writer:
        for start in range(0, len(evaluation.cases), ROWS):
            rows = [_item(case) for case in evaluation.cases[start : start + ROWS]]
            writer.write_table(pa.Table.from_pylist(rows, ITEM_COLUMNS))


def _item(case: Case) -> dict[str, Any]:
    return {
        "case": case.id,
        "subset": case.subset,
        "cluster": case.cluster,
        "prompt": prompt_text(case.prompt),
        "messages": messages_json(case),
        "answers": case.texts,
        "lengths": [*map(len, case.texts)],
        "best": case.best,
        "values": case.values,
        "sets": case.sets,
        "preferences": case.preferences,
    }


def messages_json(case: Case) -> str:
    """Return the prompt's messages as JSON. The responses' messages or steps are included unless all are plain text."""
    answers = [_answer_json(answer) for answer in case.answers]
    plain = all(isinstance(answer, str) for answer in answers)
    return json.dumps(case.prompt if plain else {"prompt": case.prompt, "answers": answers}, ensure_ascii=False)


def _answer_json(answer: AnyCompletion) -> Any:
    if isinstance(answer, Steps):
        return {"steps": answer.steps, "separator": answer.separator}
    return completion_json(answer)


def conversations(messages: str, answers: Sequence[str]) -> tuple[Messages, tuple[AnyCompletion, ...]]:
    """Return prompt and responses from the output of `messages_json` and the texts of the responses."""
    stored = from_json(messages)
    if not isinstance(stored, dict):
        return as_prompt(stored), tuple(answers)
    return as_prompt(stored["prompt"]), tuple(map(_answer, stored["answers"]))


def _answer(stored: Any) -> AnyCompletion:
    if isinstance(stored, dict):
        return Steps(tuple(map(str, stored["steps"])), str(stored["separator"]))
    return stored if isinstance(stored, str) else as_completion(stored, "answers")


def write_scores(evaluation: "Evaluation", folder: Path) -> None:
    """Write one row per scorer and case: a score per response in the case's order, or the reason for abstaining.

    `truncated` and `omitted` state whether the scorer read the case only in part.
    """
    rows = [
        {
            "scorer": name,
            "case": judgment.case,
            "scores": list(judgment.scores) or None,
            "abstained": judgment.abstained or None,
            "margin": margin,
            "truncated": judgment.truncated,
            "omitted": judgment.omitted or None,
        }
        for name, judgments in evaluation.judgments.items()
        for judgment, margin in zip(judgments, evaluation.margins[name], strict=True)
    ]
    kinds = {"scorer": pa.string(), "case": pa.string(), "scores": pa.list_(pa.float64())}
    kinds |= {"abstained": pa.string(), "margin": pa.float64(), "truncated": pa.bool_(), "omitted": pa.string()}
    table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
    pq.write_table(table, folder / SCORES, row_group_size=ROWS)


def read_items(folder: Path) -> list[Case]:
    """Load the cases of a run."""
    path = folder / ITEMS
    return [_parse_row(_case, row, path, number) for number, row in enumerate(_rows(path), start=1)]


def _case(row: Mapping[str, Any]) -> Case:
    texts = {name: row[name] for name in ("subset", "cluster")} | {"id": row["case"]}
    if not all(isinstance(text, str) for text in (*texts.values(), *row["answers"])):
        raise ValueError("a case's id, subset, cluster and answers must be strings")
    preferences = tuple((better, worse) for better, worse in row.get("preferences") or ())
    if not all(type(index) is int for index in (*row["best"], *row["sets"], *chain(*preferences))):
        raise ValueError("best, sets and preferences must be whole numbers")
    return Case(
        **texts,
        **dict(zip(("prompt", "answers"), conversations(row["messages"], row["answers"]), strict=True)),
        best=tuple(row["best"]),
        values=tuple(map(float, row["values"])),
        sets=tuple(row["sets"]),
        preferences=preferences,
    )


def _parse_row(parse: Callable[[Mapping[str, Any]], T], row: Mapping[str, Any], path: Path, number: int) -> T:
    try:
        return parse(row)
    except UNREADABLE as error:
        what = "has no column" if isinstance(error, KeyError) else "cannot be read:"
        raise DataError(f"{path}: row {number} {what} {error}; run rewardlab eval again") from error


def read_judgments(folder: Path) -> dict[str, dict[str, Judgment]]:
    """Load the judgments of a run: scorer -> case -> judgment."""
    by_scorer: dict[str, dict[str, Judgment]] = {}
    for number, row in enumerate(_rows(folder / SCORES), start=1):
        scorer, judgment = _parse_row(_judgment, row, folder / SCORES, number)
        by_scorer.setdefault(scorer, {})[judgment.case] = judgment
    return by_scorer


def stored_judgments(folder: Path) -> int:
    """Return the number of judgments in a run's table, 0 without a table. Raise `DataError` if the table is damaged."""
    try:
        return 0 if not (folder / SCORES).exists() else pq.read_metadata(folder / SCORES).num_rows
    except (OSError, pa.ArrowException) as error:
        raise _no_table_error(folder / SCORES, error) from error


def _judgment(row: Mapping[str, Any]) -> tuple[str, Judgment]:
    scores = tuple(map(float, row["scores"] or ()))
    unread: Any = {"truncated": bool(row.get("truncated")), "omitted": str(row.get("omitted") or "")}
    return str(row["scorer"]), Judgment(
        str(row["case"]), scores=scores, abstained=str(row["abstained"] or ""), **unread
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return pq.ParquetFile(path).read().to_pylist()
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise _no_table_error(path, error) from error


def _no_table_error(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path}: {reading_fault(error, 'not a table of an eval run', 'run rewardlab eval again')}")
