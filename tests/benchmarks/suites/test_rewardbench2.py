"""RewardBench 2: what is not scored, and measures that no prompt has."""

import json
from pathlib import Path

import numpy as np
import pytest
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.rewardbench2 import rewardbench2
from rewardlab.rm.errors import DataError

PROMPT = {"chosen": ["a"], "rejected": ["x", "y", "z"]}


@pytest.fixture
def path(tmp_path) -> str:
    ties = [{"id": f"{kind}:{n}", "subset": "Ties", "prompt": f"t{n}"} for n in range(3) for kind in ("ref", "tied")]
    rows = [{"id": f"f{n}", "subset": "Factuality", "prompt": f"p{n}"} for n in range(6)] + ties
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row | PROMPT) + "\n" for row in rows))
    return str(tmp_path / "rows.jsonl")


def test_a_subset_that_was_not_scored_has_no_figure(path):
    for absent in ["Ties", "Factuality"]:
        suite = rewardbench2()
        cases, _ = suite.cases([path])
        scores = {case.id: tuple(float(index in case.best) for index in range(len(case.answers))) for case in cases}
        stored = {name: "too long" if name.startswith(absent) else given for name, given in scores.items()}
        scorers = [StoredScores("all", scores), StoredScores("some", stored)]
        perfect, partial = evaluate(suite, cases, scorers, samples=50).report.rows
        assert perfect.sections[absent].value == {"Ties": 1.01, "Factuality": 1.0}[absent]
        assert perfect.overall.value == pytest.approx(1.005) and not np.isnan(perfect.overall.low), absent
        assert np.isnan(partial.sections[absent].value) and np.isnan(partial.overall.value)


def test_a_measure_that_no_scored_prompt_has_counts_as_zero(path):
    lines = Path(path).read_text().splitlines()
    Path(path).write_text("\n".join(line for line in lines if '"ref:' in line))
    suite = rewardbench2()
    cases, _ = suite.cases([path])
    scores = {case.id: (1.0, 0.0, 0.0, 0.0) for case in cases}
    (row,) = evaluate(suite, cases, [StoredScores("m", scores)], samples=50).report.rows
    assert row.overall.value == pytest.approx(0.3), "the weight of the accuracy on reference prompts"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "tie:0", "subset": "Ties"}, "'Ties/tie:0' is not the id of a Ties row; the ids of Ties are ref:NUMBER"),
        (
            {"id": "f9", "subset": "Factuality", "chosen": ["a", "b"]},
            "2 chosen answers of Factuality: only rows of Ties may have",
        ),
    ],
)
def test_a_row_that_the_formula_does_not_count_is_refused(row, message, path):
    with Path(path).open("a") as file:
        file.write(json.dumps({"prompt": "p"} | PROMPT | row))
    with pytest.raises(DataError, match=message):
        rewardbench2().cases([path])
