"""GenARM, PARM and UniARM as a user trains, scores and evaluates them, and `--stream`: data read as training goes."""

import json
from pathlib import Path

import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.commands.train import run as train_run
from rewardlab.apps.runs.stop_training import train_until_signal
from rewardlab.benchmarks.garden import pairs
from rewardlab.rm.capacity.settings import PlanConfig
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.kinds.autoregressive import AutoregressiveSettings
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.training.trainer import RewardTrainer

from tests.apps.commands.conftest import save_policy
from tests.apps.conftest import cut_off_within

QUICK = {"max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 3e-3, "golden": 4, "disable_tqdm": True}


def write(path, made) -> str:
    path.write_text("".join(json.dumps(pair_row(pair)) + "\n" for pair in made))
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    save_policy(folder / "policy")
    write(folder / "train.jsonl", pairs(40, 0))
    write(folder / "first.jsonl", pairs(50, 0))
    write(folder / "second.jsonl", pairs(50, 1))
    write(folder / "test.jsonl", pairs(12, 0, "test"))
    return folder


def train(world, output, *words, model=True) -> int:
    settings = [part for name, value in QUICK.items() for part in (f"--{name}", str(value))]
    named = ["--model", str(world / "policy")] if model else []
    data = [] if "--data" in words else ["--data", str(world / "train.jsonl")]
    return main(["train", "--kind", "autoregressive", *named, *data, *settings, "--output", str(output), *words])


BOTH = ("--objectives", "helpful", "harmless")
UNIARM = ("--kind", "autoregressive", *BOTH, "--embedding", "random")
TEXTS = ("--texts", "honey hive", "ask slowly")
KINDS = {
    "texts": (*BOTH, *TEXTS, "--token_baseline", "expected", "--span"),
    "one-hot": (*BOTH, "--embedding", "one_hot", "--token_baseline", "constant"),
    "trunk": (*BOTH, *TEXTS, "--generator", "trunk"),
    "pblora": (*BOTH, "--adapter", "pblora", "--lora_r", "4", "--shared_rank", "4"),
    "lora": ("--adapter", "lora", "--objectives", "harmless"),
    "none": ("--adapter", "none"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_trained_and_saved(world, tmp_path, capsys, kind):
    assert train(world, tmp_path / "arm", *KINDS[kind], "--eval_data", str(world / "test.jsonl")) == 0
    facts = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert 0 <= facts["eval_accuracy"] <= 1 and np.isfinite(facts["train_loss"])
    model = load_reward_model(str(tmp_path / "arm"))
    objectives = {"lora": ("harmless",), "none": ("reward",)}.get(kind, ("helpful", "harmless"))
    assert model.contract.objectives == objectives and model.beta == 0.01
    assert (tmp_path / "arm" / "model.safetensors").exists() == (kind == "none")
    assert json.loads((tmp_path / "arm" / "manifest.json").read_text())["encoding"]["kept"] == 40


@pytest.fixture(scope="module")
def arm(world) -> Path:
    """A guide of two objectives."""
    assert train(world, world / "arm", *BOTH, "--embedding", "random") == 0
    return world / "arm"


def test_a_guide_is_scored_and_evaluated_by_objective_or_at_a_preference(world, arm, tmp_path, capsys):
    scores = tmp_path / "scores.jsonl"
    asked = ["--model", str(arm), "--data", str(world / "test.jsonl")]
    assert main(["score", *asked, "--output", str(scores)]) == 0
    assert {"helpful", "harmless"} < {*json.loads(scores.read_text().split("\n")[0])}
    asked = ["eval", *asked, "--bootstrap_samples", "50"]
    for words in (["--objective", "harmless"], ["--objective", "helpful", "--preference", "helpful=0.8,harmless=0.2"]):
        assert main([*asked, *words, "--output", str(tmp_path / words[-1].replace("=", "-"))]) == 0
    capsys.readouterr()
    assert main([*asked, "--preference", "honest=1", "--output", str(tmp_path / "no")]) == 2
    assert "no objective 'honest' in this model" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_a_collapse_is_told_in_training_in_the_card_and_in_an_evaluation(world, tmp_path, capsys, monkeypatch):
    """The limit of what counts as collapsed is set above any guide's; the one restart that is allowed is taken."""
    monkeypatch.setattr("rewardlab.rm.kinds.autoregressive.diagnostics.COLLAPSED", 100.0)
    words = ("--embedding", "one_hot", "--monitor_steps", "1", "--restarts", "1", "--rate_of_a", "0.5")
    averaged = ("--weight_average", "0.5", "--objective_betas", "harmless=0.05", "--ignore_ties")
    assert train(world, tmp_path / "arm", *BOTH, *words, *averaged) == 0
    error = capsys.readouterr().err
    assert error.count("the guide has collapsed at helpful, harmless") == 2
    assert "starting again with half the learning rate of A" in error and "lower --learning_rate" in error
    guide = json.loads((tmp_path / "arm" / "manifest.json").read_text())["guide"]
    assert guide["restarts"] == 1 and guide["collapsed"] == ["helpful", "harmless"] and guide["pairs"] == 40
    steps = [json.loads(line) for line in (tmp_path / "arm" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in steps if "entropy_harmless" in entry] == [1, 2, 3, 4]
    asked = ["eval", "--model", str(tmp_path / "arm"), "--data", str(world / "test.jsonl"), "--bootstrap_samples", "50"]
    assert main([*asked, "--objective", "harmless", "--output", str(tmp_path / "eval")]) == 0
    assert "the guide has collapsed at helpful, harmless" in (tmp_path / "eval" / "report.md").read_text()
    assert json.loads((tmp_path / "eval" / "manifest.json").read_text())["guides"] == {"arm": guide}
    assert main(["card", "--model", str(tmp_path / "arm")]) == 0
    card = (tmp_path / "arm" / "README.md").read_text()
    assert "## Guide diagnostics" in card and "**The guide has collapsed at helpful, harmless**" in card


def test_a_restart_leaves_no_checkpoint_of_the_collapsed_guide_and_reads_the_data_from_the_start(
    world, tmp_path, capsys, monkeypatch
):
    """A resumed run would take the latest step's checkpoint, whichever attempt it is from."""
    monkeypatch.setattr("rewardlab.rm.kinds.autoregressive.diagnostics.COLLAPSED", 100.0)
    kept: list[list[str]] = []

    def watched(trainer, checkpoint):
        kept.append(sorted(path.name for path in Path(trainer.args.output_dir).glob("checkpoint-*")))
        return train_until_signal(trainer, checkpoint)

    monkeypatch.setattr(train_run, "train_until_signal", watched)
    words = ("--embedding", "one_hot", "--monitor_steps", "2", "--restarts", "1", "--save_steps", "1")
    assert train(world, tmp_path / "arm", *BOTH, *words, "--stream") == 0
    assert "starting again with half the learning rate of A" in capsys.readouterr().err
    assert kept == [[], []]
    manifest = json.loads((tmp_path / "arm" / "manifest.json").read_text())
    assert manifest["guide"]["restarts"] == 1
    assert manifest["stream"]["read"] == 40


def test_bad_input_gets_one_sentence_and_leaves_nothing(world, tmp_path, capsys):
    for words, model, code, sentence in (
        (BOTH, False, 2, "needs the language model to start from; name it with --model"),
        ((*BOTH, "--lora"), True, 2, "--lora belongs to --kind latent, multi_head, process and scalar, got auto"),
        ((*BOTH, "--adapter", "none"), True, 2, "without an adapter a model learns one objective"),
        ((*BOTH, "--adapter", "none", "--token_baseline", "expected"), True, 2, "without an adapter"),
        (
            (*BOTH, "--adapter", "dora"),
            True,
            2,
            "--adapter must be one of none, genarm, parm, uniarm, lora, pblora, moslora, got 'dora'",
        ),
        (("--objectives", "honest", "--adapter", "lora"), True, 3, "40 without a label for 'honest'"),
        (
            (*BOTH, "--embedding", "one_hot", "--objective_betas", "helpful"),
            True,
            2,
            "such as helpful=0.5; got 'helpful'",
        ),
        ((*BOTH, "--embedding", "one_hot", "--objective_betas", "honest=1"), True, 2, "no objective 'honest'"),
    ):
        assert train(world, tmp_path / "arm", *words, model=model) == code, words
        error = capsys.readouterr().err
        assert sentence in error and "Traceback" not in error, words
        assert not list(tmp_path.iterdir()), words


def test_a_methods_name_stands_for_its_adapter():
    for method, adapter in (("genarm", "lora"), ("parm", "pblora"), ("uniarm", "moslora")):
        assert (
            AutoregressiveSettings(adapter=method).adapter == adapter == AutoregressiveSettings(adapter=adapter).adapter
        ), method
        assert PlanConfig(model="7b", adapter=method).adapter == adapter, method


def stream(world, output, *words) -> int:
    settings = {"max_steps": 12, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2, "save_steps": 4}
    settings |= {"logging_steps": 1, "learning_rate": 1e-3, "disable_tqdm": True, "golden": 4, "stream_block": 32}
    given = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
    data = ["--data", str(world / "first.jsonl"), str(world / "second.jsonl")]
    return main(["train", "--stream", "--model", str(world / "policy"), *data, *given, "--output", str(output), *words])


def losses(folder: Path) -> np.ndarray:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return np.array([row["loss"] for row in rows if "loss" in row])


@pytest.mark.parametrize("kind", [(), pytest.param(UNIARM, marks=pytest.mark.slow)], ids=["scalar", "uniarm"])
def test_a_streamed_run_that_is_cut_off_goes_on_as_if_it_had_not_been(world, tmp_path, kind, capsys):
    """144 rows of 100: the second epoch has begun where the run is cut off, in the middle of a block."""
    assert stream(world, tmp_path / "whole", *kind) == 0
    summary = json.loads(capsys.readouterr().out)
    with cut_off_within(RewardTrainer, 10):
        assert stream(world, tmp_path / "cut", *kind) == 130
    _resume_with_other_processes_is_refused(world, tmp_path / "cut", kind)
    capsys.readouterr()
    (world / "policy" / "changed.json").write_text("{}")
    assert stream(world, tmp_path / "cut", *kind, "--resume") == 2, "another model in the place of the first"
    assert "cut.partial was started with model_sha256 of " in capsys.readouterr().err
    (world / "policy" / "changed.json").unlink()
    assert stream(world, tmp_path / "cut", *kind, "--resume") == 0
    whole, cut = losses(tmp_path / "whole"), losses(tmp_path / "cut")
    assert len(whole) == 12 and whole.tolist() == cut.tolist()
    manifest, resumed = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("whole", "cut"))
    assert resumed["train_loss"] == pytest.approx(whole.mean(), rel=1e-3) and whole.std() > 1e-3
    assert resumed["stream"] == manifest["stream"], "rows before the cut are counted"
    assert manifest["stream"]["read"] >= 144 and manifest["stream"]["dropped"] == 0
    assert summary["pairs"] == manifest["stream"]["pairs"] >= 144


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
    assert stream(tmp_path, tmp_path / "run", *kind, "--max_steps", "4") == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["stream"]["unlabelled"] == 18


def _resume_with_other_processes_is_refused(world, output, kind):
    """A step of two processes reads twice the rows of a step of one."""
    stored = output.with_name(output.name + ".partial") / "config.yaml"
    text = stored.read_text()
    stored.write_text(text.replace("processes: 1", "processes: 2"))
    assert text != stored.read_text() and stream(world, output, *kind, "--resume") == 2
    stored.write_text(text)


def test_what_needs_every_pair_at_once_is_refused(world, tmp_path, capsys, monkeypatch):
    for words, sentence in (
        (("--max_steps", "-1"), "set the number of steps with --max_steps"),
        (("--kind", "linear"), "belongs to --kind"),
        (("--model", ""), "which --stream does not load; add --model"),
        ((*UNIARM, "--data", "helpful=first.jsonl"), "--stream does not support 'helpful=first.jsonl'"),
        (("--dataloader_num_workers", "2"), "remove --dataloader_num_workers"),
        (("--loss", "weak_margin(weak=somewhere)"), "reads another model's gaps of all pairs"),
    ):
        monkeypatch.chdir(world)
        assert stream(world, tmp_path / "run", *words) in (2, 3), words
        assert sentence in capsys.readouterr().err, words
        assert not (tmp_path / "run").exists(), words
