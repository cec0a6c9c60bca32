"""Type checkers see the Python API as it is documented, and report wrong calls of it."""

import json
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "tests/apps/api"
EXPECTED = re.compile(r"  # ((?:report\w+ ?)+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def reported() -> dict[str, set[tuple[int, str]]]:
    """Lines and rules of pyright's findings by file, with the project's settings."""
    pytest.importorskip("pyright")
    files = [str(FOLDER / name) for name in ("typed_use.py", "wrong_use.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    findings: dict[str, set[tuple[int, str]]] = {file: set() for file in files}
    for finding in json.loads(done.stdout)["generalDiagnostics"]:
        line = finding["range"]["start"]["line"] + 1
        findings[finding["file"]].add((line, finding.get("rule", finding["message"])))
    return findings


def test_documented_use_has_the_documented_types(reported):
    assert reported[str(FOLDER / "typed_use.py")] == set()


def test_wrong_use_is_reported_at_its_line(reported):
    lines = (FOLDER / "wrong_use.py").read_text(encoding="utf-8").split("\n")
    matches = [(number, EXPECTED.search(line)) for number, line in enumerate(lines, start=1)]
    expected = {(number, rule) for number, match in matches if match for rule in match[1].split()}
    assert len(expected) > 12 and reported[str(FOLDER / "wrong_use.py")] == expected
