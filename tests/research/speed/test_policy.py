import json

import torch
from rewardlab.research.speed import policy
from rewardlab.research.speed.policy import Answers, Size, main, start_in, trainer

TOY = Size(layers=1, hidden=192, vocabulary=400, rows=8, prompt=4, answer=6, steps=5)


def test_all_logits_at_once_are_the_same_step_too(tmp_path):
    answers, start = Answers(TOY), start_in(str(tmp_path), TOY)
    losses = {}
    for name in ("trl", "eager"):
        made = trainer(name, TOY, answers, start, str(tmp_path))
        made.train()
        losses[name] = torch.tensor([row["loss"] for row in made.state.log_history if "loss" in row])
    torch.testing.assert_close(losses["eager"], losses["trl"], atol=1e-5, rtol=0)


def test_the_script_writes_every_round(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(policy, "memory_in_subprocess", lambda name, _: float(len(name)))
    main(["--output", str(tmp_path / "found.json")], TOY)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["peak MB"] == {"ours": 4.0, "trl": 3.0, "eager": 5.0}
    assert "ours / trl:" in capsys.readouterr().out
