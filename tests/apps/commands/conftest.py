"""Figures of evaluations, and runs of `rewardlab parity`."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from rewardlab.apps.cli import main
from rewardlab.benchmarks.garden import models

SAVE = Figure.savefig
"""Draws and saves a figure, as outside these tests."""


def judged_pairs(seed: int, number: int, good: float) -> list[dict]:
    """Kind and rude answers in two subsets, of which the kind one is chosen in a share of rows."""
    draw, rows = random.Random(seed), []
    for place in range(number):
        base = " ".join(draw.choices(["stone", "river", "cloud", "paper", "moss"], k=draw.randint(2, 9)))
        right, wrong = f"kind {base}", f"rude {base} {draw.choice(['x', 'yy'])}"
        if draw.random() > good:
            right, wrong = wrong, right
        row = {"id": str(place), "prompt": f"q{place % 150}", "subset": "ab"[place % 2]}
        rows.append(row | {"chosen": right, "rejected": wrong})
    return rows


def save_policy(folder: Path, *architecture: str, seed: int = 0) -> str:
    """Save a small language model of the garden with its tokenizer."""
    for part in (models.causal_lm(models.tokenizer(), *architecture, seed=seed), models.tokenizer()):
        part.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True, scope="module")
def figures_without_drawing():
    """Save empty figures, as drawing them takes more than half of an evaluation; `test_cli.py` looks at drawn ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, path, **settings: path.write_bytes(b""))
        yield


class ParityRun(NamedTuple):
    """Exit code, last line on stderr, the report's entry of each way, and the folder of the reports."""

    code: int
    last_line: str
    ways: dict[str, dict]
    folder: Path

    @property
    def report(self) -> str:
        return (self.folder / "parity.md").read_text()

    @property
    def cases(self) -> list[ElementTree.Element]:
        return ElementTree.parse(self.folder / "parity.xml").getroot().findall("testcase")

    def verdicts(self, start: str) -> dict[str, str]:
        return {name: way["verdict"] for name, way in self.ways.items() if name.startswith(start)}


@pytest.fixture
def run_parity(tmp_path, capsys) -> Callable[..., ParityRun]:
    def run(model, *words) -> ParityRun:
        folder = tmp_path / "out"
        files = ["--output", str(folder / "parity.md"), "--junit", str(folder / "parity.xml")]
        fresh = [] if "--fresh" in words else ["--fresh", "False"]
        code = main(["parity", str(model), *map(str, words), *fresh, *files])
        last_line = capsys.readouterr().err.strip().split("\n")[-1]
        facts = folder / "parity.json"
        ways = json.loads(facts.read_text())["ways"] if facts.exists() else []
        return ParityRun(code, last_line, {way["way"]: way for way in ways}, folder)

    return run
