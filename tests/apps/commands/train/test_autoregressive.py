"""GenARM, PARM and UniARM as a user trains, scores and evaluates them."""

import json
from pathlib import Path

import numpy as np
import pytest
from rewardlab.apps.cli import main, parse
from rewardlab.apps.commands.plan.settings import PlanConfig
from rewardlab.apps.commands.train import run as train_run
from rewardlab.apps.commands.train.settings import GuideConfig
from rewardlab.apps.runs.stop_training import train_until_asked
from rewardlab.apps.verbs import VERBS
from rewardlab.benchmarks.garden import pairs
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.rm.contract.golden_scores import load_reward_model
from rewardlab.rm.data.pairs import pair_row

QUICK = {"max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 3e-3, "golden": 4, "disable_tqdm": True}


def write(path, made) -> str:
    path.write_text("".join(json.dumps(pair_row(pair)) + "\n" for pair in made))
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder, words = tmp_path_factory.mktemp("world"), tokenizer()
    causal_lm(words).save_pretrained(folder / "policy")
    words.save_pretrained(folder / "policy")
    write(folder / "train.jsonl", pairs(60, 0))
    write(folder / "test.jsonl", pairs(30, 0, "test"))
    return folder


def train(world, output, *words, model=True) -> int:
    settings = [part for name, value in QUICK.items() for part in (f"--{name}", str(value))]
    named = ["--model", str(world / "policy")] if model else []
    data = [] if "--data" in words else ["--data", str(world / "train.jsonl")]
    return main(["train", "--kind", "autoregressive", *named, *data, *settings, "--output", str(output), *words])


BOTH = ("--objectives", "helpful", "harmless")


@pytest.mark.parametrize(
    "words, objectives",
    [
        ((*BOTH, "--embedding", "random"), ("helpful", "harmless")),
        (
            (*BOTH, "--texts", "honey hive", "ask slowly", "--token_baseline", "expected", "--span"),
            ("helpful", "harmless"),
        ),
        ((*BOTH, "--embedding", "one_hot", "--token_baseline", "constant"), ("helpful", "harmless")),
        ((*BOTH, "--texts", "honey hive", "ask slowly", "--generator", "trunk"), ("helpful", "harmless")),
        ((*BOTH, "--adapter", "pblora", "--lora_r", "4", "--shared_rank", "4"), ("helpful", "harmless")),
        (("--adapter", "lora", "--objectives", "harmless"), ("harmless",)),
        (("--adapter", "none"), ("reward",)),
    ],
)
def test_every_kind_is_trained_saved_and_scored(world, tmp_path, capsys, words, objectives):
    evaluated = ("--eval_data", str(world / "test.jsonl"), "--eval_steps", "2")
    assert train(world, tmp_path / "arm", *words, *evaluated) == 0
    found = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert 0 <= found["eval_accuracy"] <= 1 and np.isfinite(found["train_loss"])
    model = load_reward_model(str(tmp_path / "arm"))
    assert model.contract.objectives == objectives and model.beta == 0.01
    names = {path.name for path in (tmp_path / "arm").iterdir()}
    assert ("model.safetensors" in names) == (words[-1] == "none")
    manifest = json.loads((tmp_path / "arm" / "manifest.json").read_text())
    assert manifest["encoding"]["kept"] == 60
    output = str(tmp_path / "scores.jsonl")
    assert (
        main(["score", "--model", str(tmp_path / "arm"), "--data", str(world / "test.jsonl"), "--output", output]) == 0
    )
    first = json.loads((tmp_path / "scores.jsonl").read_text().split("\n")[0])
    assert set(objectives) < {*first}


def test_a_collapse_is_told_in_training_in_the_card_and_in_an_evaluation(world, tmp_path, capsys, monkeypatch):
    """The limit of what counts as collapsed is set above any guide's; the one restart that is allowed is taken."""
    monkeypatch.setattr("rewardlab.rm.training.guide_diagnostics.COLLAPSED", 100.0)
    words = ("--embedding", "one_hot", "--monitor_steps", "1", "--restarts", "1", "--rate_of_a", "0.5")
    averaged = ("--weight_average", "0.5", "--objective_betas", "harmless=0.05", "--ignore_ties")
    assert train(world, tmp_path / "arm", *BOTH, *words, *averaged) == 0
    error = capsys.readouterr().err
    assert error.count("the guide has collapsed at helpful, harmless") == 2
    assert "starting again with half the learning rate of A" in error and "lower --learning_rate" in error
    guide = json.loads((tmp_path / "arm" / "manifest.json").read_text())["guide"]
    assert guide["restarts"] == 1 and guide["collapsed"] == ["helpful", "harmless"] and guide["pairs"] == 60
    steps = [json.loads(line) for line in (tmp_path / "arm" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in steps if "entropy_harmless" in entry] == [1, 2, 3, 4]
    asked = ["eval", "--model", str(tmp_path / "arm"), "--data", str(world / "test.jsonl"), "--samples", "50"]
    assert main([*asked, "--objective", "harmless", "--output", str(tmp_path / "eval")]) == 0
    assert "the guide has collapsed at helpful, harmless" in (tmp_path / "eval" / "report.md").read_text()
    assert json.loads((tmp_path / "eval" / "manifest.json").read_text())["guides"] == {"arm": guide}
    assert main(["card", "--model", str(tmp_path / "arm")]) == 0
    card = (tmp_path / "arm" / "README.md").read_text()
    assert "## Guide diagnostics" in card and "**The guide has collapsed at helpful, harmless**" in card


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["in memory", "streamed"])
def test_a_restart_leaves_no_checkpoint_of_the_collapsed_guide_and_reads_the_data_from_the_start(
    world, tmp_path, capsys, monkeypatch, stream
):
    """A resumed run would take the latest step's checkpoint, whichever attempt it is from."""
    monkeypatch.setattr("rewardlab.rm.training.guide_diagnostics.COLLAPSED", 100.0)
    kept: list[list[str]] = []

    def watched(trainer, checkpoint):
        kept.append(sorted(path.name for path in Path(trainer.args.output_dir).glob("checkpoint-*")))
        return train_until_asked(trainer, checkpoint)

    monkeypatch.setattr(train_run, "train_until_asked", watched)
    words = ("--embedding", "one_hot", "--monitor_steps", "2", "--restarts", "1", "--save_steps", "1")
    assert train(world, tmp_path / "arm", *BOTH, *words, *stream) == 0
    assert "starting again with half the learning rate of A" in capsys.readouterr().err
    assert kept == [[], []]
    manifest = json.loads((tmp_path / "arm" / "manifest.json").read_text())
    assert manifest["guide"]["restarts"] == 1
    if stream:
        assert manifest["stream"]["read"] == 60


@pytest.mark.parametrize(
    "betas, sentence",
    [(["helpful"], "are NAME=β, such as helpful=0.5; got 'helpful'"), (["honest=1"], "no objective 'honest'")],
)
def test_a_wrong_beta_of_an_objective_is_refused(world, tmp_path, capsys, betas, sentence):
    assert train(world, tmp_path / "arm", *BOTH, "--embedding", "one_hot", "--objective_betas", *betas) == 2
    assert sentence in capsys.readouterr().err


def test_files_labelled_for_one_objective_each(world, tmp_path, capsys):
    plain = [pair_row(pair) | {"wins": None} for pair in pairs(40, 1)]
    for name, rows in (("helpful", plain[:25]), ("harmless", plain[25:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = [f"{name}={tmp_path / name}.jsonl" for name in ("helpful", "harmless")]
    assert train(world, tmp_path / "arm", *BOTH, "--embedding", "random", "--data", *data) == 0
    manifest = json.loads((tmp_path / "arm" / "manifest.json").read_text())
    assert manifest["encoding"]["kept"] == 40 and str(tmp_path / "helpful.jsonl") in manifest["data"]


def test_an_evaluation_reads_it_by_objective_or_at_a_preference(world, tmp_path, capsys):
    assert train(world, tmp_path / "arm", *BOTH, "--embedding", "random") == 0
    asked = ["eval", "--model", str(tmp_path / "arm"), "--data", str(world / "test.jsonl"), "--samples", "50"]
    for words in (["--objective", "harmless"], ["--objective", "helpful", "--preference", "helpful=0.8,harmless=0.2"]):
        assert main([*asked, *words, "--output", str(tmp_path / words[-1].replace("=", "-"))]) == 0
    capsys.readouterr()
    assert main([*asked, "--preference", "honest=1", "--output", str(tmp_path / "no")]) == 2
    assert "no objective 'honest' in this model" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    "words, model, code, sentence",
    [
        (BOTH, False, 2, "needs the language model to start from; name it with --model"),
        ((*BOTH, "--lora"), True, 2, "here it is --adapter lora"),
        ((*BOTH, "--adapter", "none"), True, 2, "without an adapter a model learns one objective"),
        ((*BOTH, "--adapter", "lora"), True, 2, "a plain LoRA has one objective"),
        ((*BOTH, "--adapter", "none", "--token_baseline", "expected"), True, 2, "without an adapter"),
        ((*BOTH, "--adapter", "dora"), True, 2, "--adapter is one of lora, pblora, moslora, none, got 'dora'"),
        ((*BOTH, "--embedding", "random", "--global_form", "hinge"), True, 2, "the global form is one of scalarised"),
        ((*BOTH, "--embedding", "random", "--lora_target_modules", "wq"), True, 2, "no layer of qwen3 is called wq"),
        (("--objectives", "honest", "--adapter", "lora"), True, 3, "60 without a label for 'honest'"),
        ((*BOTH, "--embedding", "random", "--global_form", "scores"), True, 3, "needs pairs with a 'gaps' column"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(world, tmp_path, capsys, words, model, code, sentence):
    assert train(world, tmp_path / "arm", *words, model=model) == code
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_another_base_than_the_adapters_is_told(world, tmp_path, capsys):
    base = tmp_path / "base"
    causal_lm(tokenizer(), seed=3).save_pretrained(base)
    tokenizer().save_pretrained(base)
    words = ("--adapter", "lora", "--objectives", "helpful")
    assert train(world, tmp_path / "arm", *words, "--model", str(base), model=False) == 0
    causal_lm(tokenizer(), seed=4).save_pretrained(base)
    asked = ["score", "--model", str(tmp_path / "arm"), "--data", str(world / "test.jsonl")]
    assert main([*asked, "--output", str(tmp_path / "scores.jsonl")]) == 3
    assert "the adapter was trained on" in capsys.readouterr().err


@pytest.mark.parametrize(("method", "adapter"), [("genarm", "lora"), ("parm", "pblora"), ("uniarm", "moslora")])
def test_a_methods_name_stands_for_its_adapter(method, adapter):
    assert GuideConfig(adapter=method).adapter == adapter == GuideConfig(adapter=adapter).adapter
    assert PlanConfig(model="7b", adapter=method).adapter == adapter


def test_the_settings_of_lora_are_the_same_for_every_kind():
    parser = ("train", VERBS["train"])
    defaults, *_ = parse(*parser, [])
    assert (defaults.lora_r, defaults.lora_alpha, defaults.lora_target_modules) == (None, None, [])
