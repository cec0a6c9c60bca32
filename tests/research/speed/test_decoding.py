import json
from itertools import count, islice

import pytest
from rewardlab.policy.decoding.engines import SeparateModels
from rewardlab.policy.decoding.guided import decode
from rewardlab.research.speed.decoding import Bench, Size, main, pretrained, public_loop, take_turns

TOY = Size(layers=4, hidden=192, vocabulary=500, tokens=32, prompt=4, rows=(1, 2))


@pytest.mark.slow
def test_the_script_runs_and_writes_every_round(tmp_path, capsys):
    main(["--budget", "0", "--output", str(tmp_path / "found.json")], TOY)
    found = json.loads((tmp_path / "found.json").read_text())
    assert {*found["variants"]} == {"N=1", "N=2"} and {*found["machine"]["versions"]} >= {"torch", "peft"}
    for what, times in found["variants"]["N=2"].items():
        assert [*times] == ["plain", "shared", "late", "separate"] + ["2N rows"] * (what == "ms per token")
        assert all(len(row["rounds"]) == 1 for row in times.values()) and times["plain"]["ratio"]["median"] == 1
    assert {row["forwards per token"] for row in found["objectives"].values()} == {1}
    assert len({row["adapter FLOPs per row and token"] for row in found["objectives"].values()}) == 1
    assert "| k=5 |" in capsys.readouterr().out


def test_the_restated_loop_writes_what_two_models_write():
    bench = Bench(TOY, "cpu")
    bench.model.float(), bench.other.float()
    base, guide = bench.base(), bench.guide(model=bench.other)
    asked = bench.requests(3, temperature=0.0)
    ours = decode(SeparateModels(base, guide), asked)
    assert public_loop(base, guide, asked) == [list(answer.tokens) for answer in ours]
    assert pytest.approx(1) == sum(asked[0].preference.values())


def test_rounds_end_with_their_budget_and_each_is_there_at_once():
    number = count()
    rounds = take_turns(lambda: {"plain": float(next(number))}, 0)
    assert [*rounds] == [{"plain": [0.0]}]
    endless = take_turns(lambda: {"plain": float(next(number))}, 1e9)
    assert [*islice(endless, 3)] == [{"plain": [1.0]}, {"plain": [2.0]}, {"plain": [2.0, 3.0]}]


def test_a_pretrained_model_is_measured_beside_generate(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pretrained, "STD", 1.0)
    bench = Bench(TOY, "cpu")
    bench.model.float().save_pretrained(tmp_path / "model")
    bench.words.save_pretrained(tmp_path / "model")
    options = ["--rows", "1", "3", "--tokens", "8", "--clock", "cpu", "--budget", "0"]
    main(["--model", str(tmp_path / "model"), *options, "--output", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    for rows in ("N=1", "N=3"):
        times = found["variants"][rows]["ms per token (cpu)"]
        assert [*times] == ["generate", "plain", "guided", "late"] and len(times["late"]["rounds"]) == 1
        assert found["changed"][rows] > 0
    assert found["machine"]["dtype"] == "float32" and "| guided |" in capsys.readouterr().out
