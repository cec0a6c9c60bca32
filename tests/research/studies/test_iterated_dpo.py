import numpy as np
import pytest
from rewardlab.research.studies.iterated_dpo import ARMS, GRPO, iterated_dpo
from rewardlab.research.studies.iterated_dpo.runs import Grpo, Rounds
from rewardlab.research.worlds.guides import Base

SIZES = {"prompts": 4, "n": 4, "steps": 2, "batch": 4, "measured": 8}


def test_grpo_generates_as_many_tokens_and_both_begin_at_the_start_policy(tmp_path):
    rounds = Rounds(Base(0, steps=1, texts=64), rounds=2, **SIZES)
    dpo, grpo = rounds.result(tmp_path), Grpo(rounds, group=2, prompts=2).result(tmp_path)
    for run in (dpo, grpo):
        assert run["kl"][0] == pytest.approx(0, abs=1e-4) and run["kl"][-1] != 0 and run["tokens"][0] == 0
    assert dpo["gold"][0] == grpo["gold"][0] and len(dpo["gold"]) == len(grpo["gold"]) == 3
    over = grpo["tokens"] - dpo["tokens"]
    assert np.all(over >= 0) and np.all(over <= 4 * 32), "within one step of four completions"


@pytest.mark.slow
def test_a_dry_run_reports_every_arm(tmp_path):
    study = iterated_dpo(tmp_path / "cache", rows=1, workers=1, log=lambda _: None)
    assert all(study.text.count(f"| {arm} |") == 3 for arm in (*ARMS, GRPO)) and "nan" not in study.text
