"""What the tables would do on a GPU, counted without one, in a process that does not interpret kernels."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
from rewardlab.benchmarks.speed.kernels.schedule import COMMAND, LEASE, SITTINGS, START, Row, fits, totals
from rewardlab.benchmarks.speed.kernels.work import Operations, Work, issue_seconds
from rewardlab.kernels.linear_logprob import linear_loss
from rewardlab.kernels.triton_common.launch import recorded
from rewardlab.rm.capacity.gpus import Gpu

ROOT = Path(__file__).parents[4]
GPU = Gpu("a GPU", 1, bfloat16=2.0, float32=0.5, bandwidth=4.0)
PLAN = """
import json
from rewardlab.benchmarks.speed.kernels.schedule import schedule
from rewardlab.benchmarks.speed.kernels.timing import Size

sizes = {"rows": (4, 2), "guides": (1,), "tokens": (8192,), "packed": (2048,), "length": 1024}
size = Size(**sizes, states=(2, 256, 256, 16), pairs=(2, 1))
print(json.dumps([row._asdict() for row in schedule(size)]))
"""


def test_the_makefile_stops_each_sitting_when_the_schedule_says():
    text = (ROOT / "Makefile").read_text()
    for name, sitting in SITTINGS.items():
        recipe = re.search(rf"^{name}:.*\n((?:\t.*\n)+)", text, flags=re.M)[1]
        limits = [int(seconds) for seconds in re.findall(r"timeout (\d+) ", recipe)]
        assert limits == [*[sitting.tests] * (sitting.tests > 0), sitting.limit]
        assert re.findall(r"--budget (\d+)", recipe) == [str(sitting.budget)]
        measured = re.findall(r"--tables (\S+)", recipe) or re.findall(r"\$\(SPEED\) (\S+)", recipe)
        assert measured == [",".join(sitting.tables)]
        assert sitting.budget + START <= sitting.limit


def test_a_sitting_that_takes_too_long_does_not_fit():
    assert sum(sitting.tests + sitting.limit for sitting in SITTINGS.values()) <= LEASE
    seconds = {name: 1.0 for name in SITTINGS}
    assert fits(seconds) and not fits(seconds | {"gpu-s2": COMMAND + 1.0})


def test_rows_beyond_a_budget_take_no_time():
    long = Row("gpu-s2", "B2", "a case", "", 0, 0, 0, 0.0, 10_000.0)
    seconds = totals([long, long._replace(sitting="gpu-s3", seconds=5.0)])
    assert seconds["gpu-s2"] == START + SITTINGS["gpu-s2"].budget and seconds["gpu-s3"] == START + 5


def test_the_least_time_is_the_longer_of_bytes_and_products():
    assert Work(8_000_000_000, 0).seconds(GPU) == 2  # 8 GB at 4 GB/s
    assert Work(8_000_000_000, 6 * 10**12).seconds(GPU) == 3  # 6 tera-operations at 2 a second
    assert Work(0, 6 * 10**12, narrow=False).seconds(GPU) == 12
    assert issue_seconds(132 * 128 * 1.98e9) == 1


def test_operations_without_data_are_counted_with_their_products():
    left, right = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((3, 5), (5, 7)))
    with Operations() as operations:
        total = left @ right
        total += 1
        total.view(21)
    product, sum_ = operations.works
    assert product == Work(2 * (15 + 35 + 21), 2 * 3 * 5 * 7) and sum_ == Work(2 * 2 * 21)


def test_tensors_without_data_go_the_way_of_a_gpu(monkeypatch):
    """2²⁸ logits at a time are 1,766 rows of 151,936, evened to five chunks of 1,664 rows."""
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    hidden = torch.empty(8192, 64, dtype=torch.bfloat16, device="meta").requires_grad_()
    weight = torch.empty(151_936, 64, dtype=torch.bfloat16, device="meta").requires_grad_()
    with recorded(90) as launches:
        linear_loss(hidden, weight, torch.empty(8192, dtype=torch.int64, device="meta"), lambda logprob, *_: -logprob)
    assert [launch.kernel.__name__ for launch in launches] == ["stream_forward", "stream_backward"] * 5
    assert [len(launch.arguments["a"]) for launch in launches[::2]] == [1664] * 4 + [1536]
    assert {launch.arguments["da"].dtype for launch in launches[1::2]} == {torch.bfloat16}


def test_a_compilation_counts_once_and_other_numbers_of_rows_need_none(script):
    done = subprocess.run(script(PLAN), capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "0"})
    assert done.returncode == 0, done.stderr
    rows = [Row(**row) for row in json.loads(done.stdout)]
    assert [*dict.fromkeys(row.sitting for row in rows)] == [*SITTINGS]
    assert rows[0].table == "tests" and rows[0].compilations > 30
    by_case = {(row.table, row.case): row for row in rows}
    first, second = (by_case["A", f"N={n}, 1 guides, nothing cut"] for n in (4, 2))
    assert first.compilations == 4 and second.compilations == 0  # three numbers of warps, and what finishes
    four, two = (by_case["lora", f"N={n}, one position"] for n in (4, 2))
    assert four.compilations == 2 and two.compilations == 0
    published = by_case["B2", "N=8192, D=4096, V=151936, trained head"]
    assert {"TRL chunked", "cut cross-entropy", "torch.compile on logits", "Liger"} <= {*published.beside.split(", ")}
    assert published.least > 3 * 2 * 8192 * 4096 * 151_936 / 989e12  # three products at the peak
    assert not any(row.tunings for row in rows) and all(row.seconds > 0 for row in rows)
