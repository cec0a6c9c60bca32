"""Values of the controls in the judgments tab, and the filter over a run's cases that they define."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .....rm.errors import UsageError
from ..metrics import SECTION
from .annotation import annotations
from .queries import OUTCOMES, Filter, Run, sections, subsets

EVERY, UNNAMED = "", "(none)"  # values of the list of subsets
ORDERS = [
    ("as in the data", "items"),
    ("smallest |margin| first", "margin"),
    ("most wrong first", "worst"),
    ("largest length gap first", "gap"),
    ("doubtful labels first", "doubtful"),
]
ONLY = [
    ("a baseline is right too", "baseline"),
    ("every model is against the label", "against"),
    ("★ bookmarked", "marked"),
    ("annotated", "annotated"),
    ("not annotated", "unannotated"),
]
LONGEST = 2**62
"""Upper limit for lengths in characters, which fits the integers of the database."""


class FilterValues(NamedTuple):
    """Values of the controls in the judgments tab."""

    run: str | None
    scorer: str | None
    outcome: str
    subset: str | None
    search: str
    margin: str
    gap: str
    length: str
    only: str
    """Names of `ONLY`, separated by commas."""
    order: str
    verdict: str
    """Verdict of an annotation: one of `annotations.VERDICTS`, or empty for any."""
    reader: str
    note: str


START = FilterValues(None, None, "wrong", EVERY, "", "", "", "", "", "items", "", "", "")


def parse_filter_values(values: Mapping[str, Any]) -> FilterValues:
    """Return the values in an address or a request. Missing or unknown values become the initial values."""
    asked = FilterValues(*(values.get(name) or initial for name, initial in START._asdict().items()))
    texts = [value for value in asked if value is not None]
    if not all(isinstance(value, str) for value in texts):
        raise UsageError("filter values must be strings")
    if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
        raise UsageError("a value of the filter has an unpaired surrogate; type it again")
    return asked._replace(
        outcome=asked.outcome if asked.outcome in OUTCOMES else START.outcome,
        only=",".join(name for _, name in ONLY if name in asked.only.split(",")),
        order=asked.order if asked.order in dict(map(reversed, ORDERS)) else START.order,
        verdict=asked.verdict if asked.verdict in annotations.VERDICTS else "",
    )


def complete(asked: FilterValues, choices: Sequence[tuple[str, str]]) -> FilterValues:
    """Return the values with a subset of the run. A missing section becomes the subset of that name, or all subsets."""
    values, names = [value for _, value in choices], (asked.subset, (asked.subset or "").removeprefix(SECTION))
    return asked._replace(subset=next((name for name in names if name in values), EVERY))


def filter_of(run: Run, values: FilterValues, bookmarks: Sequence[str]) -> Filter:
    """Return the filter over a run's cases. `bookmarks` contains the bookmarked cases."""
    subset: str | list[str] | None = {EVERY: None, UNNAMED: ""}.get(values.subset or EVERY, values.subset)
    if isinstance(subset, str) and subset.startswith(SECTION):
        subset = sections(run).get(subset.removeprefix(SECTION)) or subset
    only = {*values.only.split(",")}
    asked = (values.verdict, values.reader.strip().lower(), values.note.strip().lower())
    known: Sequence[annotations.Annotation] = ()
    if {"annotated", "unannotated"} & only or any(asked):
        known = annotations.current_annotations(run, annotations.read(run.folder))
    among = [set(bookmarks)] if "marked" in only else []
    among += [{annotation.case for annotation in known}] if "annotated" in only else []
    among += [{annotation.case for annotation in known if _matches(annotation, *asked)}] if any(asked) else []
    return Filter(
        str(values.scorer),
        values.outcome,
        subset,
        _number("largest |margin|", values.margin),
        values.search,
        _number("length gap", values.gap),
        "baseline" in only,
        sorted(set.intersection(*among)) if among else None,
        sorted({annotation.case for annotation in known}) if "unannotated" in only else (),
        _range("response length", values.length),
        "against" in only,
    )


def _matches(annotation: annotations.Annotation, verdict: str, reader: str, note: str) -> bool:
    """Return whether an annotation has the verdict, and a reader and a note that contain these texts."""
    texts = reader in annotation.who.lower() and note in annotation.note.lower()
    return texts and verdict in ("", annotation.verdict)


def _number(name: str, text: str) -> float | None:
    """Parse the number in a text field. None for an empty field."""
    try:
        return None if text.strip() in ("", ".", "-") else float(text)  # a dot: the reader is still typing
    except ValueError as error:
        raise UsageError(f"the {name} must be a number such as 0.5, or empty for any; got '{text}'") from error


def _range(name: str, text: str) -> tuple[int, int] | None:
    """Parse a range such as 100-200 in a text field. None for an empty field."""
    if match := re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text):
        return min(int(match[1]), LONGEST), min(int(match[2]), LONGEST)
    if re.fullmatch(r"\s*\d*\s*-?\s*", text):  # empty, or the reader is still typing
        return None
    raise UsageError(f"the {name} must be a range of characters such as 100-200, or empty for any; got '{text}'")


def subset_choices(run: Run) -> list[tuple[str, str]]:
    """Return labels and values of the sections and subsets, with their numbers of cases."""
    counts = subsets(run)
    named = [(f"{name or UNNAMED} ({n:,})", name or UNNAMED) for name, n in counts.items()]
    sizes = {name: sum(counts[subset] for subset in below) for name, below in sections(run).items()}
    named_sections = [(f"section {name} ({n:,})", f"{SECTION}{name}") for name, n in sizes.items()]
    return [(f"all subsets ({sum(counts.values()):,})", EVERY), *named_sections, *named]
