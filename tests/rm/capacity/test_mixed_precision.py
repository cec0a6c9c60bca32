import json

import pytest
import rewardlab
from rewardlab.judges.cdrrm.training import SupervisedSettings, _arguments
from rewardlab.judges.retrieval.training import RetrieverArguments
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.rm.capacity import mixed_precision
from rewardlab.rm.errors import UsageError
from rewardlab.rm.training.trainer import RewardArguments


def test_bfloat16_without_a_gpu_for_it_is_refused_with_the_remedy(monkeypatch, tmp_path):
    for arguments in [RewardArguments, PolicyArguments, RetrieverArguments]:
        for name in ["bf16", "bf16_full_eval"]:
            monkeypatch.setattr(mixed_precision, "is_torch_bf16_gpu_available", lambda: False)
            with pytest.raises(UsageError, match=f"--{name} True: there is no GPU here .* or add --use_cpu True"):
                arguments(output_dir=str(tmp_path), **{name: True})
            assert getattr(arguments(output_dir=str(tmp_path), use_cpu=True, **{name: True}), name)
    with pytest.raises(UsageError, match="--bf16 True: there is no GPU here .*; leave it out"):
        _arguments(tmp_path, SupervisedSettings(bf16=True), {})


def test_a_model_trained_in_bfloat16_has_the_rewards_of_its_saved_weights(tmp_path):
    """Under autocast the golden scores would be bfloat16's, which the float32 weights do not have when loaded."""
    rows = [
        {"prompt": f"How do I water plant {n}?", "chosen": f"With {n} cups of rain.", "rejected": "No."}
        for n in range(12)
    ]
    settings = {"use_cpu": True, "bf16": True, "max_steps": 2, "small_hidden": 32, "small_vocabulary": 300}
    rewardlab.train(rows, output=tmp_path / "rm", max_length=64, **settings)
    facts = json.loads((tmp_path / "rm" / "manifest.json").read_text(encoding="utf-8"))
    assert 0 <= facts["golden_difference"] < 1e-5
