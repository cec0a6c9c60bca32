import json
import os
import subprocess

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
from rewardlab.kernels.linear_logprob import linear_loss
from rewardlab.kernels.triton_common.launch import recorded
from rewardlab.research.gpu.plan import LEASE, RUNS, STARTING, Row, faults, step_seconds
from rewardlab.research.gpu.steps import START, Run, Step
from rewardlab.research.speed.kernels.work import Operations, Work, issue_seconds
from rewardlab.rm.capacity.choices import Gpu

GPU = Gpu("a GPU", 1, bfloat16=2.0, float32=0.5, bandwidth=4.0)
PLAN = """
import json
from rewardlab.research.gpu.plan import plan
from rewardlab.research.speed.kernels.timing import Size

size = Size(rows=(4, 2), packed=(2048,), length=1024, states=(2, 256, 256, 16), pairs=(2, 1))
print(json.dumps([row._asdict() for row in plan(size=size)]))
"""


def test_both_runs_with_their_starts_fit_into_the_time_of_a_gpu():
    assert sum(run.seconds + STARTING for run in RUNS) <= LEASE
    for run in RUNS:
        assert sum(step.seconds for step in run.steps) <= run.seconds
        assert len({step.name for step in run.steps}) == len(run.steps)
    assert faults([]) == []


def test_a_step_and_a_run_that_take_too_long_are_faults():
    long = Row("run1", "head", "B2: a case", "", 0, 0, 0.0, 10_000.0)
    assert faults([long]) == [f"run1, head: {10_000 + START} s, more than its 62 s"]
    assert step_seconds([long])["run1", "head"] == 62
    run = Run("run1", 100, (Step("head", "kernels", 101),))
    assert faults([], [run]) == ["run1: its steps take 101 s, more than its 100 s"]


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
    order = [(run.name, step.name) for run in RUNS for step in run.steps]
    assert [*dict.fromkeys((row.run, row.step) for row in rows)] == order
    assert rows[0].step == "tests" and rows[0].compilations > 30
    by_case = {(row.run, row.step, row.case): row for row in rows}
    first, second = (by_case["run1", "sampling", f"A: N={n}, nothing cut"] for n in (4, 2))
    assert first.compilations > 0 and second.compilations == 0
    four, two = (by_case["run1", "sequences", f"lora: N={n}, one position"] for n in (4, 2))
    assert four.compilations > 0 and two.compilations == 0
    published = "B2: N=8192, D=4096, V=151936, trained head"
    assert by_case["run1", "liger", published].beside == "3 products, Liger"
    assert (
        by_case["run1", "head", published].least > 3 * 2 * 8192 * 4096 * 151_936 / 989e12
    )  # three products at the peak
    assert all(row.seconds > 0 for row in rows)
