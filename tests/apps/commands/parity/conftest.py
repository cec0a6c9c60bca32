"""Runs of `rewardlab parity`."""

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from rewardlab.apps.cli import main


class ParityRun(NamedTuple):
    """Exit code, last line on stderr, and the report's entry of each way."""

    code: int
    last_line: str
    ways: dict[str, dict]

    def verdicts(self, start: str) -> dict[str, str]:
        return {name: way["verdict"] for name, way in self.ways.items() if name.startswith(start)}


@pytest.fixture
def run_parity(tmp_path, capsys) -> Callable[..., ParityRun]:
    def run(model, *words) -> ParityRun:
        output = tmp_path / "out" / "parity.md"
        code = main(["parity", str(model), *map(str, words), "--fresh", "False", "--output", str(output)])
        last_line = capsys.readouterr().err.strip().split("\n")[-1]
        facts = output.with_suffix(".json")
        ways = json.loads(facts.read_text())["ways"] if facts.exists() else []
        return ParityRun(code, last_line, {way["way"]: way for way in ways})

    return run
