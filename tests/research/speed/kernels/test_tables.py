import json
import os
import time
from pathlib import Path

import pytest
import torch
from rewardlab.research.speed._scripts import write
from rewardlab.research.speed.kernels import main, markdown, rows_of, timing
from rewardlab.research.speed.kernels.losses import by_peft
from rewardlab.research.speed.kernels.sampling import logprob_error

OURS = ("eager", "reference")
SMALL = {"A": 1e-5, "B1": 1e-5, "B2": 1e-2, "C": 1e-2, "lora": 2e-2}  # errors of bfloat16 where they are that large
SECONDS = 300.0


@pytest.fixture(scope="module")
def bench():
    return timing.Bench(timing.TINY, "cpu")


def test_every_table_has_rows_with_times_and_small_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "MOST", 3)
    assert main(["--budget", "2000", "--output", str(tmp_path / "tables.json")]) == 0
    measurements = json.loads((tmp_path / "tables.json").read_text())
    assert [*measurements["tables"]] == ["A", "B2", "B1", "C", "lora"] and measurements["copy GB/s"] > 0
    for table, most in SMALL.items():
        ours = [row for row in measurements["tables"][table] if row["way"].endswith(OURS) and "not run" not in row]
        assert ours and all(0 < row["p10"] <= row["ms"] <= row["p90"] and row["error"] < most for row in ours), table
    assert "| triton | not run (CUDA only) |" in markdown(measurements)


def test_what_cannot_run_is_a_row_and_ends_alone(bench, capsys):
    def wrong():
        raise RuntimeError("no such kernel\nand more")

    assert timing.from_package("no_such_package", timing.Variant(int), bench) == "not installed"
    late = timing.Case("A", "late", lambda: pytest.fail("its tensors are made"))
    assert [*rows_of(late, bench, 0, 0)] == [[{"way": "all", "not run": "budget"}]]
    *_, last = rows_of(timing.Case("A", "short", wrong), bench, 1, time.perf_counter() + SECONDS)
    assert last == [{"way": "all", "failed": "RuntimeError: no such kernel"}]
    until = time.perf_counter() + 0.05
    trial = timing.Trial({"good": timing.Variant(int), "bad": timing.Variant(wrong)}, lambda _: 0.0)
    good, bad = [*timing.timed(trial, bench, until, until + SECONDS)][-1]
    assert good["rounds"] >= timing.REPEATS and bad == {"way": "bad", "failed": "RuntimeError: no such kernel"}
    for arguments, message in (
        (["--tables", "A,Z"], "there is no table 'Z'; choose some of A,B,C,lora"),
        (["--tables", "lora", "--cases", "no such case"], "no case of lora has 'no such case' in its name"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err


def test_peft_computes_the_adapter_that_is_not_modulated():
    """y = x Wᵀ, and for the adapted rows s (x Aᵀ) Bᵀ besides."""
    generator = torch.Generator().manual_seed(0)
    x, A, B, weight = (torch.randn(shape, generator=generator) for shape in ((4, 1, 6), (2, 6), (5, 2), (5, 6)))
    y = by_peft(weight, {"x": x, "A": A, "B": B, "factor": 0.5, "start": 3})(x)
    torch.testing.assert_close(y[:3], x[:3] @ weight.T)
    torch.testing.assert_close(y[3:], x[3:] @ weight.T + 0.5 * (x[3:] @ A.T) @ B.T)


def test_a_run_killed_while_it_writes_leaves_the_earlier_file(tmp_path, monkeypatch):
    file = tmp_path / "found.json"
    write({"row": 1}, file)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        write({"row": 2}, file)
    assert json.loads(file.read_text()) == {"row": 1}
    write({"row": 3}, file)
    assert json.loads(file.read_text()) == {"row": 3} and [*tmp_path.iterdir()] == [file]


def test_the_error_of_a_draw_is_that_of_its_log_probability():
    sure = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64).log()
    said = torch.tensor([0.75, 0.25, 9.0]).log()  # the third row is not looked at
    assert logprob_error(sure, (torch.tensor([1, 0, 0]), said)) == pytest.approx(
        0.6931472, abs=1e-6
    )  # log 2 in the second


def test_the_variable_is_put_back(monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "reference")
    with timing.kernel_backend("eager"):
        assert os.environ["REWARDLAB_KERNELS"] == "eager"
    with timing.kernel_backend(None):
        assert "REWARDLAB_KERNELS" not in os.environ
    assert os.environ["REWARDLAB_KERNELS"] == "reference"
