"""Runs whose replay or scheduler remembers: killed and resumed, they go on as if nothing had happened."""

import shutil
from typing import Any

import pytest
import torch
from rewardlab.policy.replays import cbs as replaying
from rewardlab.policy.replays.pipo import pipo
from rewardlab.policy.schedulers.cbs import cbs
from rewardlab.policy.training.critic import CriticArguments

from tests.policy.toy_training import algorithm, logged

BANDIT = {"longest": 16, "penalty": 0.0, "ceiling": 0.0, "warm_up": 1}
KEPT_AT = 4


SYSTEMS: dict[str, Any] = {
    "both modes of CBS": lambda: {
        "scheduler": cbs(model="mlp", learning_rate=0.1, over=10, keep=3, **BANDIT),
        "replay": replaying.cbs(model="ridge", shrink=1.0, bonus=0.5, keep=10, batches=3, **BANDIT),
    },
    "PIPO on PPO": lambda: {
        "replay": pipo(window=2),
        "advantage": "gae",
        "critic": CriticArguments(learning_rate=1e-2),
    },
}


@pytest.fixture
def train(make_trainer):
    def run(steps, resume=None, advantage="grpo", scheduler=None, **more):
        changed = {"num_iterations": 2, "learning_rate": 3e-3, "save_strategy": "steps", "save_steps": KEPT_AT}
        made = make_trainer(
            algorithm(advantage, scheduler=scheduler), max_steps=steps, save_total_limit=9, **changed, **more
        )
        made.train(resume_from_checkpoint=resume)
        return made

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(name, train, tmp_path):
    whole = train(10, **SYSTEMS[name]())
    shutil.copytree(tmp_path / "run" / f"checkpoint-{KEPT_AT}", tmp_path / "kept")
    resumed = train(10, resume=str(tmp_path / "kept"), **SYSTEMS[name]())
    assert resumed.replay_buffer.state == whole.replay_buffer.state and resumed.algorithm.state == whole.algorithm.state
    for fact in ("reward", "loss", "ratio"):
        rows = [logged(one, fact)[-5:] for one in (resumed, whole)]
        assert len(rows[0]) == 5 and rows[0] == pytest.approx(rows[1], abs=1e-6), fact
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    if "CBS" in name:
        assert len(whole.replay_buffer._batches) == 3 and max(whole.replay_buffer.state["uses"]) >= 1
        shares = torch.cat([one.clipped for one in whole.replay_buffer._batches])
        assert 0 < shares.max() <= 1, "some answers were out of bounds when they were last trained on"
    else:
        assert whole.replay_buffer.state["gain"] != 0, "the last batch was trained on again"
