"""SECURITY.md: each of its claims names a test, and the test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_every_danger_names_tests_that_exist():
    for file, name in sorted({*NAMED}):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, file
    table = PAGE.partition("## What is met with what")[2].partition("## What is out of scope")[0]
    rows = [line for line in table.split("\n") if line.startswith("| ")][1:]
    assert len(rows) > 12
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row.rsplit("|", 2)[1]), row[:60]
