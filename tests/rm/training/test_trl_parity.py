import copy

import pytest
import torch
from datasets import Dataset
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.kinds.scalar.model import ScalarRewardModel, scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from trl import RewardConfig
from trl import RewardTrainer as PeerTrainer

STEPS = 4
SETTINGS = {
    "max_steps": STEPS, "learning_rate": 1e-3, "weight_decay": 0.01, "seed": 5, "save_strategy": "no",
    "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "gradient_checkpointing": False,
}  # fmt: skip


def random_rows(number: int, vocabulary: int) -> list[PairRow]:
    torch.manual_seed(0)
    lengths = torch.randint(2, 20, (number, 2)).tolist()
    chosen, rejected = ([torch.randint(6, vocabulary, (length[i],)).tolist() for length in lengths] for i in range(2))
    return [PairRow(*pair, 1.0, float("nan")) for pair in zip(chosen, rejected, strict=True)]


@pytest.fixture(scope="module")
def untrained() -> ScalarRewardModel:
    tokenizer = small_tokenizer(["kano roba miba " * 9] * 20, 280)
    return scalar_from_config(small_config(tokenizer, "llama", hidden=16), tokenizer, max_length=32)


@pytest.mark.parametrize(("batch", "accumulation", "center"), [(4, 1, 0.0), (2, 3, 0.01)])
def test_weights_after_four_steps_are_trls_to_the_bit(untrained, tmp_path, batch, accumulation, center):
    """A step whose last micro-batch is smaller differs: TRL averages the means of micro-batches, and we the pairs."""
    rows = random_rows(batch * accumulation * STEPS, len(untrained.encoder.tokenizer))
    settings = SETTINGS | {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    ours, theirs = copy.deepcopy(untrained), copy.deepcopy(untrained)
    arguments = RewardArguments(output_dir=str(tmp_path / "ours"), **settings)
    RewardTrainer(ours, arguments, ScalarTask(bradley_terry(center=center)), rows).train()
    PeerTrainer(
        theirs.model,
        RewardConfig(output_dir=str(tmp_path / "theirs"), center_rewards_coefficient=center, **settings),
        train_dataset=Dataset.from_list([{"chosen_ids": row.chosen, "rejected_ids": row.rejected} for row in rows]),
        processing_class=theirs.encoder.tokenizer,
    ).train()
    start, peer = dict(untrained.model.named_parameters()), dict(theirs.model.named_parameters())
    for name, weight in ours.model.named_parameters():
        assert torch.equal(weight, peer[name]) and not torch.equal(weight, start[name]), name
