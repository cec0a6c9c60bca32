"""Parity reports as Markdown, JSON and JUnit XML."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree

from ..contract.scoring_contract import ScoringContract
from ..io.markdown import table
from .parity import FULL, HALF, Parity

COLUMNS: dict[str, Callable[[Parity], str]] = {
    "way": lambda result: one_line(result.way),
    "n": lambda result: str(result.conversations),
    "largest": lambda result: f"{result.largest:.2g}",
    "mean": lambda result: f"{result.mean:.2g}",
    "largest / σ": lambda result: _in_deviations(result.largest, result.deviation),
    "mean / σ": lambda result: _in_deviations(result.mean, result.deviation),
    "flips": lambda result: f"{100 * result.flips:.2f} %",
    "first other token": lambda result: one_line(result.token),
    "what explains it": lambda result: one_line(result.culprit),
    "": lambda result: verdict(result),
}


def markdown(model: str, contract: ScoringContract, results: Sequence[Parity], notes: Sequence[str]) -> str:
    """Render the report as Markdown."""
    return "\n".join(
        [
            f"# Parity of {one_line(model)}",
            "",
            f"Scoring contract `{contract.hash()}`, kind {contract.kind}, {contract.dtype}. Scores of each backend are "
            "compared with the model's, whose standard deviation over the n conversations is σ; flips "
            f"are pairs in the opposite order. Scores are the same up to {FULL:g} σ, {HALF:g} σ in half precision; "
            "a backend marked 'reported' is not expected to agree and cannot fail.",
            "",
            table([*COLUMNS], [[cell(result) for cell in COLUMNS.values()] for result in results]),
            "",
            *(f"- {one_line(note)}" for note in notes),
            "",
        ]
    )


def _in_deviations(difference: float, deviation: float) -> str:
    return f"{difference / deviation:.2g}" if deviation > 0 else "–"


def verdict(result: Parity) -> str:
    """Return 'same', 'reported' or 'FAILED'."""
    return "same" if result.same else "reported" if result.report_only else "FAILED"


def one_line(text: str) -> str:
    """Return a text on one line without control characters and HTML."""
    flat = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()
    return flat.replace("&", "&amp;").replace("<", "&lt;")


def as_json(model: str, contract: ScoringContract, results: Sequence[Parity], notes: Sequence[str]) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "model": model,
        "contract": contract.hash(),
        "passed": all(result.passed for result in results),
        "ways": [result._asdict() | {"verdict": verdict(result)} for result in results],
        "notes": list(notes),
    }


def junit(model: str, results: Sequence[Parity]) -> bytes:
    """Render a JUnit report with one test case per backend."""
    failed = [result for result in results if not result.passed]
    suite = ElementTree.Element(
        "testsuite", name=_xml(f"parity of {model}"), tests=str(len(results)), failures=str(len(failed)), errors="0"
    )
    for result in results:
        text = _xml(sentence(result))
        case = ElementTree.SubElement(suite, "testcase", classname="rewardlab.parity", name=_xml(result.way))
        ElementTree.SubElement(case, "system-out").text = text
        if not result.passed:
            ElementTree.SubElement(case, "failure", message=_xml(result.culprit)).text = text
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)


def sentence(result: Parity) -> str:
    """Return the result of a backend as a sentence."""
    difference = f"{result.largest:.3g}" if math.isfinite(result.largest) else "infinite"
    errors = f"largest difference {difference}, tolerance {result.tolerance:.3g}, {100 * result.flips:.2f} % flips"
    return "; ".join(part for part in (f"{result.way}: {errors}", result.token, result.culprit) if part)


def _xml(text: str) -> str:
    """Replace the characters that XML does not allow."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
