import errno
import math
import resource

import pytest
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import CheckFailed, DataError, UsageError
from rewardlab.rm.io.disk_errors import format_size, full_disk_reason, no_room
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.losses.boosted import boosted
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.training.fault_tolerance import Piece, first_not_finite, lacks_memory, split_in_half
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from safetensors.torch import save_file

ROWS = [PairRow([7, 8, 1], [9, 1], 1.0, 0.0), PairRow([8, 1], [7, 9, 9, 1], 0.25, 0.0), PairRow([9], [7, 1], 1.0, 0.0)]


OF_A_CPU = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate)"


class Narrow(ScalarTask):
    """Bradley-Terry where memory holds so many pairs, and `spoilt` steps give another loss."""

    def __init__(self, most: int, spoilt=lambda step, loss: loss):
        super().__init__(bradley_terry())
        self.most, self.spoilt, self.read = most, spoilt, []

    def loss(self, model, inputs, step=0):
        pairs = len(inputs["wins"])
        self.read.append(pairs)
        if pairs > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        loss, rewards = super().loss(model, inputs, step)
        return self.spoilt(step, loss), rewards


@pytest.fixture
def trainer(tmp_path):
    def made(task=None, rows=ROWS, **settings):
        torch.manual_seed(0)
        words = small_tokenizer(["kano roba miba " * 9] * 20, 280)
        model = scalar_from_config(small_config(words, hidden=16, layers=1), words, max_length=32)
        fixed = {"output_dir": str(tmp_path), "use_cpu": True, "disable_tqdm": True, "save_steps": 1}
        fixed |= {"adam_epsilon": 1e-4}  # so that rounding moves no weight by more than rounding
        told = {"max_steps": 2, "per_device_train_batch_size": 3, "logging_steps": 1, "lr_scheduler_type": "constant"}
        found = RewardTrainer(model, RewardArguments(**fixed | told | settings), task or Narrow(9), rows)
        found.said = []
        found.report = found.said.append
        return found

    return made


def weights(trainer) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in trainer.model.parameters()])


def test_a_lack_of_memory_is_known_on_every_device_and_halves_keep_pairs_together():
    for error in [torch.OutOfMemoryError("x"), RuntimeError(OF_A_CPU)]:
        assert lacks_memory(error) and not lacks_memory(RuntimeError("shapes do not match"))
    whole = Piece(tokens=torch.tensor([[1], [2], [3], [-1], [-2], [-3]]), wins=torch.tensor([0.1, 0.2, 0.3]), of=7)
    first, second = split_in_half(whole, 3)
    assert first["tokens"].flatten().tolist() == [1, 2, -1, -2] and second["tokens"].flatten().tolist() == [3, -3]
    assert second["wins"].tolist() == pytest.approx([0.3]) and (first["of"], second["of"]) == (7, 7)


def test_a_micro_batch_is_halved_until_it_fits_and_ends_with_the_same_weights(trainer):
    """The second step starts with what has fitted."""
    whole, start = trainer(), weights(trainer())
    whole.train()
    assert not torch.equal(start, weights(whole))
    losses = [one["loss"] for one in whole.state.log_history[:2]]
    for most, read in ((2, [3, 2, 1, 2, 1]), (1, [3, 2, 1, 1, 1, 1, 1, 1])):
        narrow = trainer(Narrow(most))
        narrow.train()
        assert narrow.task.read == read
        torch.testing.assert_close(weights(narrow), weights(whole), atol=1e-6, rtol=0)
        assert [one["loss"] for one in narrow.state.log_history[:2]] == pytest.approx(losses, abs=1e-6)
        assert narrow.said == [
            f"step 1: 3 rows do not fit into memory; from now on {most} are computed at a time, with the same gradient"
        ]


def test_memory_that_runs_out_half_way_back_adds_no_gradient_twice(trainer):
    settings = {"gradient_accumulation_steps": 2, "max_steps": 1, "optim": "sgd", "learning_rate": 1.0}
    whole, narrow = trainer(rows=ROWS * 2, **settings), trainer(rows=ROWS * 2, **settings)
    whole.train()
    failures = []

    def fails_once(gradient):  # of the last micro-batch: the head has its gradient by then, the embeddings not
        failures.append(len(failures) == 1)
        if failures[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    next(narrow.model.parameters()).register_hook(fails_once)
    narrow.train()
    assert sum(failures) == 1 and len(failures) == 4
    torch.testing.assert_close(weights(narrow), weights(whole), atol=1e-6, rtol=0)
    assert all(one.requires_grad for one in narrow.model.parameters())


def test_one_row_or_pairs_that_depend_on_each_other_are_not_halved(trainer):
    with pytest.raises(UsageError, match=r"step 1: the batch does not fit into memory \(CUDA .* it is one row alr"):
        trainer(Narrow(0)).train()
    # `boosted` weighs a pair by the mean of its batch, so that two halves have another gradient than the whole
    task = Narrow(1)
    task.pair_loss = boosted(share=0.5)
    with pytest.raises(UsageError, match="this loss is not a mean over rows, so it cannot be split; lower"):
        trainer(task, [row._replace(other=0.3 * index) for index, row in enumerate(ROWS)]).train()

    def broken(step, loss):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        trainer(Narrow(9, broken)).train()


def test_a_loss_that_is_not_finite_ends_the_run_with_the_weights_of_before(trainer, tmp_path):
    before = trainer(max_steps=1)
    before.train()
    found = trainer(Narrow(9, lambda step, loss: loss * math.inf if step == 1 else loss))
    sentence = r"step 2: the loss 'bradley_terry' is inf, .* finite weights are in \S+/checkpoint-1; lower"
    with pytest.raises(CheckFailed, match=sentence):
        found.train()
    assert torch.equal(weights(found), weights(before))
    assert sorted(one.name for one in tmp_path.glob("checkpoint-*")) == ["checkpoint-1"]


def test_gradients_and_weights_that_are_not_finite_are_neither_applied_nor_written(trainer, tmp_path):
    found = trainer()
    start = weights(found)
    next(found.model.parameters()).register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(CheckFailed, match="step 1: the norm of the gradient of the loss 'bradley_terry' is nan"):
        found.train()
    assert torch.equal(weights(found), start)
    steep = Narrow(9, lambda step, loss: loss * 1e9)
    found = trainer(steep, learning_rate=3e38, optim="sgd", max_grad_norm=0.0)
    with pytest.raises(CheckFailed, match=r"step 1: the weights \S+ are not finite"):
        found.train()
    assert not list(tmp_path.glob("checkpoint-*"))
    named = [("a", torch.ones(2)), ("b", torch.tensor([1.0, math.inf])), ("c", torch.tensor(math.nan))]
    assert first_not_finite(named) == "b" and first_not_finite(named[:1]) is None


def test_a_full_disk_is_known_whichever_library_writes_and_how_much_room_there_is(tmp_path):
    for error, told in [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on device"),
        (OSError(errno.EFBIG, "File too large"), "file too large"),
        (OSError(errno.ENOENT, "No such file"), None),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), "the file could not be"),
        (ValueError("no space left between two words"), None),
    ]:
        found = full_disk_reason(error)
        assert found is None if told is None else found is not None and found.startswith(told)
    assert f"{tmp_path}/a: no space left on device; its disk has " in no_room(tmp_path / "a", "no space left on device")
    assert (format_size(999), format_size(1000), format_size(65_400_000_000)) == ("999 B", "1.0 kB", "65.4 GB")


def test_a_checkpoint_that_does_not_fit_is_removed_and_the_one_before_stays(trainer, tmp_path):
    class Full(Narrow):
        def save(self, folder):
            if folder.name == "checkpoint-2":
                raise OSError(errno.ENOSPC, "No space left on device", str(folder / "loss"))

    with pytest.raises(DataError, match=r"checkpoint-2: no space left on device; its disk .* continue with --resume"):
        trainer(Full(9)).train()
    assert [one.name for one in tmp_path.glob("checkpoint-*")] == ["checkpoint-1"]


def test_torch_and_safetensors_say_so_too(tmp_path):
    before, limit, errors = resource.getrlimit(resource.RLIMIT_FSIZE), 2000, []
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        for write in (torch.save, save_file):
            with pytest.raises(Exception) as caught:  # each library has an error of its own
                write({"a": torch.ones(limit)}, tmp_path / "a")
            errors.append(full_disk_reason(caught.value))
        assert "a file may have 2.0 kB (ulimit -f)" in no_room(tmp_path / "a", "file too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert None not in errors
