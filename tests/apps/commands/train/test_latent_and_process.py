"""Latent reasoning and process reward models as a user trains, loads, scores, merges and checks them."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from rewardlab.apps.cli import main
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import write

SMALL = {"small_hidden": 32, "small_layers": 1, "small_vocabulary": 300, "per_device_train_batch_size": 8}
SMALL |= {"max_steps": 24, "save_steps": 8, "eval_steps": 8, "learning_rate": 1e-2, "max_length": 64}
SMALL |= {"golden": 4, "disable_tqdm": True, "use_cpu": True}


def lists(number: int, seed: int) -> Iterator[dict]:
    """A list is worse if it has a newt in it."""
    random = np.random.default_rng(seed)
    for index in range(number):
        good = " ".join(random.choice(["oak", "fern", "moss", "birch"], random.integers(1, 6)))
        row = {"prompt": "Name plants", "chosen": good, "rejected": f"{good} newt"}
        if index % 3:
            row |= {"rationale_chosen": "only plants", "rationale_rejected": "a newt is no plant"}
        yield row


def solutions(number: int, seed: int) -> Iterator[dict]:
    random = np.random.default_rng(seed)
    for _ in range(number):
        steps = [str(step) for step in random.choice(["oak oak", "fern moss", "newt", "birch"], random.integers(1, 6))]
        yield {"prompt": "Name plants", "completions": steps, "labels": [step != "newt" for step in steps]}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    files = {
        "latent": {"data": lists(90, 0), "eval_data": lists(30, 1)},
        "process": {"data": solutions(120, 0), "eval_data": solutions(40, 1)},
    }
    for kind, rows in files.items():
        written = {name: [write(folder / f"{kind}-{name}.jsonl", some)] for name, some in rows.items()}
        steps = {"latent_steps": 2} if kind == "latent" else {}
        (folder / f"{kind}.yaml").write_text(yaml.safe_dump(SMALL | {"kind": kind} | steps | written))
    return folder


@pytest.fixture
def train(recipes, tmp_path, capsys):
    """A run of the verb by the recipe of a kind: exit code, last line, what it said, folder."""

    def run(kind, *words, output="rm"):
        given = ["--config", recipes / f"{kind}.yaml", "--output", tmp_path / output, *words]
        code = main(["train", *map(str, given)])
        out, err = capsys.readouterr()
        return code, json.loads(out.strip().split("\n")[-1]) if code == 0 else {}, err, tmp_path / output

    return run


def test_both_stages_of_a_latent_model_and_then_the_depth_head_are_trained_and_scored(train, capsys):
    code, summary, told, folder = train("latent", "--latent_stage_1", "8")
    assert code == 0 and summary["pairs"] == 90, told
    assert "data: 120 of 180 completions have a rationale" in told
    assert summary["eval_accuracy"] > 0.9 and summary["eval_latent_steps"] == 2
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["rationales"] == {"completions": 180, "stated": 120, "cut": 0}
    words = ["--model", folder, "--latent_depth", "head", "--latent_price", "1", "--max_steps", "60"]
    code, summary, told, second = train("latent", *words, output="second")
    assert code == 0 and summary["eval_latent_steps"] < 2, told
    model = load_reward_model(str(second))
    assert (model.contract.kind, model.contract.latent_steps, model.contract.latent_depth) == ("latent", 2, "head")
    assert main(["parity", str(second), "--fresh", "False"]) == 0
    assert "without a cache" in capsys.readouterr().err
    assert main(["card", str(second)]) == 0
    assert "- latent steps: 0 to 2, as many as a head chooses\n" in (second / "README.md").read_text()
    capsys.readouterr()
    for engine in ("vllm", "sglang"):
        assert main(["parity", str(second), "--fresh", "False", "--against", engine, "http://127.0.0.1:1"]) == 2
        assert f"--against {engine} does not support the latent steps" in capsys.readouterr().err


def test_a_process_model_is_trained_scored_and_kept_with_how_it_reads(train, tmp_path):
    code, summary, told, folder = train("process", "--step_separator", r"\n", "--aggregate", "product")
    assert code == 0 and summary["solutions"] == 120 and "pairs" not in summary
    assert summary["eval_accuracy"] > 0.95 and summary["eval_first_error_accuracy"] > 0.9
    assert "correct, " in told and "the first sequence reads: '<|user|>Name plants<|eos|><|assistant|>" in told
    model = load_reward_model(str(folder))
    contract = model.contract
    assert (contract.kind, contract.step_separator, contract.aggregate) == ("process", "\n", "product")
    example = Example(user_turn("Name plants"), "oak oak\nnewt\nbirch")
    (scores,) = model.step_scores([example])
    assert scores[1, 0] < 0.5 < min(scores[0, 0], scores[2, 0])
    data = write(tmp_path / "steps.jsonl", [{"prompt": "Name plants", "completion": example.completion}])
    words = ["score", "--model", str(folder), "--data", data, "--output", str(tmp_path / "scores.parquet")]
    assert main(words) == 0
    (score,) = pq.read_table(tmp_path / "scores.parquet").column("correct").to_pylist()
    assert score == pytest.approx(scores.prod(), rel=1e-5)


def test_a_step_that_has_the_separator_in_it_is_told(train):
    _, _, told, _ = train("process", "--step_separator", " ", "--max_steps", "1")
    assert "steps have the separator ' ' in them" in told


def test_settings_that_do_not_fit_together_are_refused(train):
    for kind, words, sentence in (
        ("latent", ["--latent_depth", "free"], "--latent_depth must be one of fixed, head, got 'free'"),
        ("latent", ["--latent_price", "-1"], "--latent_price must be at least 0 and finite, got -1"),
        ("latent", ["--padding_free"], "--padding_free belongs to --kind multi_head, process and scalar, got latent"),
        ("latent", ["--gradient_checkpointing"], "--gradient_checkpointing disables the cache"),
        ("latent", ["--kind", "scalar"], "--latent_steps belongs to --kind latent, got scalar"),
        ("latent", ["--objectives", "a", "b"], "this kind of reward model learns one objective, got a, b; name one"),
        ("process", ["--aggregate", "sum"], "--aggregate must be one of min, product, last, mean, got 'sum'"),
        ("process", ["--neutral", "2"], "--neutral must be a number in [0, 1], or unlabelled; got '2'"),
        ("process", ["--step_separator", ""], "--step_separator is empty"),
        ("process", ["--objective", "a"], "scalar, got process; leave it out"),
        ("process", ["--kind", "scalar", "--step_separator", ","], "--step_separator belongs to --kind process, got"),
        ("process", ["--lora"], "--lora belongs to --model; add"),
    ):
        code, _, told, folder = train(kind, *words)
        assert code == 2 and sentence in told and not folder.exists(), words


def test_a_lora_on_a_named_backbone_scores_the_same_after_it_is_merged(train, tmp_path):
    _, _, _, base = train("process", "--max_steps", "1")
    config = json.loads((base / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForTokenClassification"]
    (base / "scoring.json").unlink()
    words = ["--model", base, "--lora", "--max_steps", "8", "--report_to", "tensorboard"]
    code, _, told, folder = train("process", *words, output="lora")
    assert code == 0 and (folder / "adapter_config.json").exists(), told
    assert list(folder.rglob("events.out.tfevents*")), "TensorBoard's log"
    assert main(["merge", str(folder), "--output", str(tmp_path / "merged")]) == 0
    examples = [Example(user_turn("Name plants"), "oak oak\n\nnewt"), Example(user_turn("Name plants"), "birch")]
    merged, adapted = (load_reward_model(str(path)) for path in (tmp_path / "merged", folder))
    assert np.allclose(merged.rate(examples), adapted.rate(examples), atol=1e-5)
