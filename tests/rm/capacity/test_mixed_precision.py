import pytest
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
