"""`--rollouts vllm(every=M)`: a server of the run's own, restarted on the policy; with a stand-in for vLLM."""

import math
import sys

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.rollouts.vllm import LOG, vllm
from rewardlab.policy.rollouts.vllm import server_process as kept_server
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.errors import UsageError
from transformers import AutoModelForCausalLM

from tests.policy.rollouts.vllm.test_server_process import STAND_INS, gone, told
from tests.policy.toy_training import logged
from tests.vllm_server import vllm_python

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    monkeypatch.setenv("REWARDLAB_VLLM_PYTHON", sys.executable)
    monkeypatch.setattr(kept_server, "LOOK", 0.05)
    return tmp_path / "run" / LOG


def test_the_server_is_restarted_on_the_policy_and_the_lag_is_logged(stand_in, train_written_by, base):
    """Of three steps with every=2 those after 0 and 2 start one: the policy is 0, 1 and 0 steps old.

    It draws evenly from the vocabulary: log V nats under the policy's own log-probability, which the ratio shows.
    """
    rollouts = vllm(every=2, options="--max-model-len 64")
    trainer = train_written_by(rollouts, max_steps=3)
    assert logged(trainer, "rollouts/lag") == [0, 1, 0]
    assert len(logged(trainer, "rollouts/restart_seconds")) == 2
    assert 0 < (gap := logged(trainer, "ratio")[0]) != pytest.approx(1, abs=0.01) and math.isfinite(gap)
    starts = told(stand_in)
    assert len({one["weights"] for one in starts}) == len(starts) == 2 and all(one["tokenizer"] for one in starts)
    assert all({"--max-model-len", "float32", "processed_logprobs", "127.0.0.1"} <= {*one["words"]} for one in starts)
    assert gone([pid for one in starts for pid in one["pids"]]), "the run is over"
    assert all({*one["names"]} <= {*base.state_dict()} for one in starts)
    assert not rollouts.folder.exists(), "what was served is removed"


def test_an_evaluation_is_the_present_policys_and_ends_its_server(stand_in, train_written_by):
    trainer = train_written_by(vllm(every=9), evaluates=True, max_steps=1)
    assert gone([pid for one in told(stand_in) for pid in one["pids"]])
    trainer.evaluate()
    starts = told(stand_in)
    assert len(starts) == 2 and starts[0]["weights"] != starts[1]["weights"]
    assert gone([pid for one in starts for pid in one["pids"]])


def test_an_adapter_is_served_merged_and_stays_one(tmp_path, stand_in, train_written_by, base):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "another's").touch()
    trainer = train_written_by(vllm(every=1, folder=str(elsewhere)), lora=True, max_steps=2)
    first, second = told(stand_in)
    assert {*second["names"]} <= {*base.state_dict()}, "names of a plain model"
    assert first["weights"] != second["weights"] and hasattr(trainer.model, "peft_config")
    assert any(word.startswith(str(elsewhere)) for word in first["words"])
    assert [one.name for one in elsewhere.iterdir()] == ["another's"]


def test_what_cannot_be_started_is_told_before_anything_is_loaded(monkeypatch):
    monkeypatch.delenv("REWARDLAB_VLLM_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        vllm(every=0)
    with pytest.raises(UsageError, match="there is no interpreter /nowhere/python"):
        vllm(every=1, python="/nowhere/python")
    with pytest.raises(UsageError, match="has no vLLM; set python= to the interpreter .* or REWARDLAB_VLLM_PYTHON"):
        vllm(every=1)


def test_vllms_own_server_is_restarted_on_a_policy_that_learns(words, train_written_by, tmp_path):
    """Its log-probabilities are those of the policy that it was started on: ratios are 1 where the lag is 0."""
    vllm_python()
    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_config(small_config(words, hidden=64, layers=2, heads=2, positions=256)).float()
    models.pretrain(policy, words, garden.supervised_examples(1000, seed=0), steps=100)
    options = "--enforce-eager --gpu-memory-utilization 0.2 --max-model-len 128"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        trainer = train_written_by(vllm(every=2, options=options), policy=policy, max_steps=3)
    ratios, lags = logged(trainer, "ratio"), logged(trainer, "rollouts/lag")
    assert lags == [0, 1, 0]
    assert [ratios[0], ratios[2]] == pytest.approx([1, 1], abs=1e-3)
    assert abs(ratios[1] - 1) > 1e-4
