"""Ctrl-C in a training is a SIGTERM: a checkpoint of the step it came in, one sentence, and --resume goes on."""

import json
import os
import signal

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.runs.signals import Terminated, ended_by_signal
from rewardlab.benchmarks import garden
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.training.trainer import RewardTrainer

from tests.apps.conftest import write

SETTINGS = {"--small_hidden": 16, "--small_vocabulary": 300, "--per_device_train_batch_size": 4, "--max_steps": 6,
            "--use_cpu": True, "--disable_tqdm": True, "--golden": 2}  # fmt: skip


def train(data: str, output, *words: str) -> int:
    given = [str(part) for setting in SETTINGS.items() for part in setting]
    return main(["train", "--data", data, *given, "--output", str(output), *words])


def test_ctrl_c_in_train_keeps_the_checkpoint_of_its_step(tmp_path, monkeypatch, capsys):
    data, output = write(tmp_path / "pairs.jsonl", map(pair_row, garden.pairs(24, 0))), tmp_path / "rm"
    compute = RewardTrainer.compute_loss

    def interrupted(self, *given, **named):
        if self.state.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return compute(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(RewardTrainer, "compute_loss", interrupted)
        assert train(data, output) == 143
    said = capsys.readouterr().err
    assert "ended by Ctrl-C (SIGINT) at step 3 of 6" in said and "go on with the same command and --resume" in said
    assert (tmp_path / "rm.partial" / "checkpoints" / "checkpoint-3").is_dir() and not output.exists()
    assert train(data, output, "--resume") == 0
    assert "resuming from checkpoint-3" in capsys.readouterr().err


def test_the_handlers_of_before_come_back():
    before = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    words = r"ended by Ctrl-C \(SIGINT\); no partial output was left"
    with pytest.raises(Terminated, match=words), ended_by_signal():
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    assert {sign: signal.getsignal(sign) for sign in before} == before


def test_an_unforeseen_error_is_one_sentence_and_its_traceback_a_file(tmp_path, monkeypatch, capsys):
    data = write(tmp_path / "pairs.jsonl", map(pair_row, garden.pairs(24, 0)))

    def broken(*_):
        raise ZeroDivisionError("division by zero\nhere")

    monkeypatch.setattr("rewardlab.rm.kinds.linear.training.new_linear", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["train", "--kind", "linear", "--data", data, "--output", str(tmp_path / "rm")]) == 1
    out, err = capsys.readouterr()
    sentence = err.strip().split("\n")[-1]
    assert out == "" and "Traceback" not in err
    assert sentence.startswith("rewardlab train: ZeroDivisionError: division by zero here; this error was not expected")
    (file,) = tmp_path.glob("rewardlab-train-*.txt")
    assert str(file) in sentence and "in broken" in file.read_text()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("rm")]
    assert json.loads((tmp_path / "pairs.jsonl").read_text().split("\n")[0])
