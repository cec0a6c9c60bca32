"""research/speed/head.py at toy size: that it runs and adds up, not how fast anything is."""

import json

import pytest
import torch
from rewardlab.research.speed import head
from rewardlab.research.speed.head import Size, Traffic, main

TOY = Size(rows=33, width=16, vocabulary=301, repeats=1)


@pytest.mark.long
def test_the_script_runs_each_variant_in_a_process_of_its_own(tmp_path, capsys, monkeypatch):
    kept = {name: head.VARIANTS[name] for name in ("eager", "liger", "linear_loss")}
    monkeypatch.setattr(head, "VARIANTS", kept)
    main(["--output", str(tmp_path / "found.json")], TOY)
    rows = json.loads((tmp_path / "found.json").read_text())["variants"]
    assert [*rows] == [*kept] and "not run" in rows["liger"]
    for name in ("eager", "linear_loss"):
        assert len(rows[name]["rounds"]) == 1 and rows[name]["bytes per logit"] > 0
        assert max(rows[name]["gradient error"].values()) < 2e-5
    assert "| liger | not run" in capsys.readouterr().out


def test_an_operation_reads_its_inputs_and_writes_its_output_once():
    x, y = torch.ones(10), torch.ones(10)
    with Traffic() as traffic:
        (x + y)[:5].mul_(2)  # 40 + 40 read, 40 written; a view; 20 read, 20 written
    assert traffic.bytes == 160
    with Traffic() as traffic:
        torch.zeros(10) * 1  # 40 written; 40 read, 40 written
        torch.empty(10)
    assert traffic.bytes == 120
