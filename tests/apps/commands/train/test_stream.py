"""`rewardlab train --stream`: data that are read as training goes, and a run that goes on exactly."""

import json
from pathlib import Path

import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.benchmarks.garden import pairs
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.training.trainer import RewardTrainer

from tests.apps.conftest import cut_off_within

UNIARM = ("--kind", "autoregressive", "--objectives", "helpful", "harmless", "--embedding", "random")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder, words = tmp_path_factory.mktemp("stream"), tokenizer()
    causal_lm(words).save_pretrained(folder / "policy")
    words.save_pretrained(folder / "policy")
    for name, seed in (("first", 0), ("second", 1)):
        text = "".join(json.dumps(pair_row(pair)) + "\n" for pair in pairs(50, seed))
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def train(world, output, *words) -> int:
    settings = {"max_steps": 12, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2, "save_steps": 4}
    settings |= {"logging_steps": 1, "learning_rate": 1e-3, "disable_tqdm": True, "golden": 4, "stream_block": 32}
    given = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
    data = ["--data", str(world / "first.jsonl"), str(world / "second.jsonl")]
    return main(["train", "--stream", "--model", str(world / "policy"), *data, *given, "--output", str(output), *words])


def losses(folder: Path) -> np.ndarray:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return np.array([row["loss"] for row in rows if "loss" in row])


@pytest.mark.parametrize("kind", [(), pytest.param(UNIARM, marks=pytest.mark.slow)], ids=["scalar", "uniarm"])
def test_a_streamed_run_that_is_cut_off_goes_on_as_if_it_had_not_been(world, tmp_path, kind):
    """144 rows of 100: the second epoch has begun where the run is cut off, in the middle of a block."""
    assert train(world, tmp_path / "whole", *kind) == 0
    with cut_off_within(RewardTrainer, 10):
        assert train(world, tmp_path / "cut", *kind) == 130
    _resume_with_other_processes_is_refused(world, tmp_path / "cut", kind)
    assert train(world, tmp_path / "cut", *kind, "--resume") == 0
    whole, cut = losses(tmp_path / "whole"), losses(tmp_path / "cut")
    assert len(whole) == 12 and whole.tolist() == cut.tolist()
    manifest, resumed = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("whole", "cut"))
    assert resumed["train_loss"] == pytest.approx(whole.mean(), rel=1e-3) and whole.std() > 1e-3
    assert resumed["stream"] == manifest["stream"], "rows before the cut are counted"
    assert manifest["stream"]["read"] >= 144 and manifest["stream"]["dropped"] == 0


def test_rows_that_are_dropped_after_the_first_block_have_their_reason_and_place(world, tmp_path, capsys):
    rows = (world / "first.jsonl").read_text().splitlines()
    rows[40] = json.dumps({"prompt": "q", "chosen": "same", "rejected": "same"})
    (tmp_path / "first.jsonl").write_text("\n".join(rows) + "\n")
    for name in ("policy", "second.jsonl"):
        (tmp_path / name).symlink_to(world / name)
    assert train(tmp_path, tmp_path / "run", "--on_bad_row", "skip") == 0
    stream = json.loads((tmp_path / "run" / "manifest.json").read_text())["stream"]
    reason = "chosen and rejected are identical"
    assert stream["places"] == [[f"{tmp_path / 'first.jsonl'}: row 41", reason]], "once for both epochs"
    assert stream["reasons"] == {reason: 2}
    assert f"data, streamed: 2 of {stream['read']} rows dropped" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [UNIARM[2:5], UNIARM], ids=["two objectives", "uniarm"])
def test_a_block_without_a_usable_pair_is_passed_over(world, tmp_path, kind):
    """Rows 33 to 50 of the first file are its second block."""
    for name in ("first", "second"):
        rows = [json.loads(line) for line in (world / f"{name}.jsonl").read_text().splitlines()]
        wins = {"helpful": 1.0, "harmless": 0.0}
        labels = [{"other": 1.0} if name == "first" and index >= 32 else wins for index in range(len(rows))]
        text = "".join(json.dumps(row | {"wins": label}) + "\n" for row, label in zip(rows, labels, strict=True))
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "policy").symlink_to(world / "policy")
    assert train(tmp_path, tmp_path / "run", *kind, "--max_steps", "4") == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["stream"]["unlabelled"] == 18


def _resume_with_other_processes_is_refused(world, output, kind):
    """A step of two processes reads twice the rows of a step of one."""
    stored = output.with_name(output.name + ".partial") / "config.yaml"
    text = stored.read_text()
    stored.write_text(text.replace("processes: 1", "processes: 2"))
    assert text != stored.read_text() and train(world, output, *kind, "--resume") == 2
    stored.write_text(text)


def test_what_needs_every_pair_at_once_is_refused(world, tmp_path, capsys, monkeypatch):
    for words, sentence in (
        (("--max_steps", "-1"), "say with --max_steps how long to train"),
        (("--kind", "linear"), "belongs to --kind"),
        (("--model", ""), "name one with --model"),
        ((*UNIARM, "--data", "helpful=first.jsonl"), "--stream takes a row's own labels, not 'helpful=first.jsonl'"),
        (("--dataloader_num_workers", "2"), "leave --dataloader_num_workers out"),
        (("--loss", "weak_margin(weak=somewhere)"), "reads another model's gaps of all pairs"),
    ):
        monkeypatch.chdir(world)
        assert train(world, tmp_path / "run", *words) in (2, 3), words
        assert sentence in capsys.readouterr().err, words
        assert not (tmp_path / "run").exists(), words
