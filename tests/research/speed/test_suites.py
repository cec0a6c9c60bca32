import json
from itertools import count

import pytest
from rewardlab.research.speed import suites
from rewardlab.rm.registry import load


def test_synthetic_rows_are_rows_of_their_suites(tmp_path):
    """Every suite that is measured reads its rows, and the number of them is the published one."""
    texts, sizes, number = suites.Texts(), {}, count()
    texts.text = lambda words=None: f"text {next(number)}"  # all rows, with short texts
    for name, rows in suites.SUITES.items():
        data = tmp_path / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows(texts)))
        cases, _ = load("benchmarks.suites", name)().cases([str(data)])
        sizes[name] = len(cases)
    assert sizes == {"rewardbench": 2985, "rm_bench": 1327, "rmb": 12_646 + 3786}


@pytest.mark.slow
def test_cpu_seconds_and_memory_of_an_evaluation_are_measured(tmp_path):
    suites.main(["--suites", "rewardbench", "--rows", "20", "--runs", "1", "--output", str(tmp_path / "suites.json")])
    (measured,) = json.loads((tmp_path / "suites.json").read_text())["suites"]["rewardbench"]
    assert measured["cpu_seconds"] > 0 and measured["peak_mb"] > 10
