"""Export of annotations as records of Argilla, and import of such records or of annotations in JSON lines."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ......rm.data.readers import Row, read_rows
from ......rm.errors import UNREADABLE, DataError, UsageError
from ......rm.types import prompt_text
from ..cases import Item
from ..queries import Run
from .annotations import (
    VERDICTS,
    Annotation,
    add,
    annotate,
    case_annotations,
    items_of,
    parse_annotation,
    read,
    texts_of,
)

VERDICT, NOTE = "verdict", "note"
"""Questions of a record: one of `VERDICTS`, and a text."""
SUGGESTIONS = {"right": "agree", "wrong": "disagree", "tie": "tie"}
"""Outcome of a scorer -> the verdict that it suggests."""


def argilla_record(item: Item, annotations: Sequence[Annotation]) -> dict[str, Any]:
    """Return a case in the form of Argilla's `Record.to_dict`: texts as fields, the scorer's verdict as a suggestion.

    The newest annotation of each reader is a response. The UUIDs of Argilla's users are computed from
    the readers' names, which are in the metadata.
    """
    newest = {annotation.who: annotation for annotation in reversed(case_annotations(item, annotations))}
    outcome = item.verdict.outcome if item.verdict else ""
    metadata = {
        "scorer": item.scorer,
        "outcome": outcome,
        "subset": item.subset,
        "readers": [*newest],
        "when": [annotation.when for annotation in newest.values()],
        "blind": [who for who, annotation in newest.items() if annotation.blind],
    }
    responses: dict[str, list[dict[str, str]]] = defaultdict(list)
    for who, annotation in newest.items():
        for question, value in ((VERDICT, annotation.verdict), (NOTE, annotation.note)):
            if value:  # Argilla refuses an empty response
                responses[question].append({"value": value, "user_id": _user_id(who)})
    suggested = SUGGESTIONS.get(outcome)
    return {
        "id": item.case,
        "fields": _fields(item),
        "metadata": {name: value for name, value in metadata.items() if value},
        "suggestions": {VERDICT: {"value": suggested, "score": None, "agent": item.scorer}} if suggested else {},
        "responses": responses,
        "vectors": {},
    }


def _user_id(who: str) -> str:
    """Return the UUID of an annotator's Argilla user."""
    return str(uuid5(NAMESPACE_URL, f"rewardlab:{who}"))


def _fields(item: Item) -> dict[str, str]:
    """Return prompt, responses and label as fields of an Argilla record."""
    names = [f"response_{number}" for number in range(1, len(item.texts) + 1)]
    label = ", ".join(names[index] for index in item.best)
    return {"prompt": prompt_text(item.messages), **dict(zip(names, item.texts, strict=True)), "label": label}


# ---- import ----


def import_annotations(run: Run, source: str) -> int:
    """Add the annotations of a file that are new (different and not older) to a run, and return their number.

    The file has records of Argilla (`dataset.records.to_json`) or annotations as JSON lines. Raise `DataError` for the
    first row in another format or of another run. In this case nothing is added.
    """
    rows = list(read_rows(source))
    cases = items_of(run, [str(row.values.get("id", row.values.get("case"))) for row in rows])
    imported = [annotation for row in rows for annotation in _annotations_of(row, cases, run)]
    newest = {(annotation.case, annotation.who): annotation for annotation in read(run.folder)}
    count = 0
    for annotation in imported:
        earlier = newest.get((annotation.case, annotation.who))
        if earlier is None or _changes(earlier, annotation):
            add(run.folder, annotation)
            newest[annotation.case, annotation.who] = annotation
            count += 1
    return count


def _changes(earlier: Annotation, annotation: Annotation) -> bool:
    """Return whether an annotation differs from the reader's newest annotation and is not older."""
    differs = (earlier.verdict, earlier.note) != (annotation.verdict, annotation.note)
    return differs and annotation.when >= earlier.when


def _annotations_of(row: Row, cases: Mapping[str, Item], run: Run) -> list[Annotation]:
    """Return the annotations of a row. Raise `DataError` with the row's location if the row is invalid."""
    try:
        if row.error:
            raise ValueError(row.error)
        if "fields" in row.values:
            return _record_annotations(row.values, _case(cases, row.values["id"], run), run)
        if VERDICT not in row.values:
            raise ValueError(
                "this is neither a record of Argilla (dataset.records.to_json) nor an annotation of the inspector; the "
                f"row has {', '.join(map(str, row.values))}"
            )
        annotation = parse_annotation(row.values)
        _check_texts(annotation.texts == texts_of(_case(cases, annotation.case, run)), annotation.case, run)
        return [annotation]
    except KeyError as error:
        raise DataError(f"{row.location}: {error} is missing; export the file again, nothing was imported") from error
    except UNREADABLE as error:
        raise DataError(f"{row.location}: {error}; correct or remove the row, nothing was imported") from error


def _case(cases: Mapping[str, Item], case: Any, run: Run) -> Item:
    """Return the item of a case. Raise `UsageError` if the run has no such case."""
    if str(case) not in cases:
        raise UsageError(f"'{case}' is no case of {run.folder.name}; import a file that was exported from this run")
    return cases[str(case)]


def _check_texts(same: bool, case: str, run: Run) -> None:
    """Raise `UsageError` unless the texts of a case are those of the run."""
    if not same:
        raise UsageError(f"the texts of case '{case}' are not those of {run.folder.name}, but of another run")


def _record_annotations(record: Mapping[str, Any], item: Item, run: Run) -> list[Annotation]:
    """Return one annotation per user. A user without metadata is named by id, and the time is now."""
    _check_texts({**_fields(item), **record["fields"]} == _fields(item), item.case, run)
    metadata = record.get("metadata") or {}
    readers, blind = metadata.get("readers") or [], metadata.get("blind") or []
    names, times = {_user_id(who): who for who in readers}, dict(zip(readers, metadata.get("when") or [], strict=False))
    if metadata.get("scorer") in [verdict.scorer.name for verdict in item.verdicts]:
        item = replace(item, scorer=metadata["scorer"])
    annotations = []
    for user, values in _responses(record).items():
        if VERDICT not in values:
            raise ValueError(f"user {user} has {', '.join(values)} but no '{VERDICT}' ({', '.join(VERDICTS)})")
        who = names.get(user, user)
        annotation = annotate(item, values[VERDICT], who, str(values.get(NOTE) or ""), blind=who in blind)
        annotations.append(replace(annotation, when=str(times.get(who, annotation.when))))
    return annotations


def _responses(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return user -> question -> value. A record groups responses by question or by user (Argilla 1, Argilla's server).

    Responses by user have a status, and only submitted ones count.
    """
    stated, by_user = record.get("responses") or {}, defaultdict[str, dict[str, Any]](dict)
    if isinstance(stated, Mapping):
        for question, responses in stated.items():
            for response in responses:
                by_user[str(response["user_id"])][question] = response["value"]
        return by_user
    for response in stated:
        if response.get("status", "submitted") == "submitted":
            values = {question: value["value"] for question, value in response["values"].items()}
            by_user[str(response["user_id"])].update(values)
    return by_user
