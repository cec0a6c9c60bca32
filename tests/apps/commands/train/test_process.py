"""Process reward models as a user trains, resumes, loads and scores them."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.contract.golden_scores import load_reward_model
from rewardlab.rm.types import Example, user_turn

from tests.apps.commands.train.conftest import write_recipe


def rows(number: int, seed: int):
    random = np.random.default_rng(seed)
    for _ in range(number):
        steps = [str(step) for step in random.choice(["oak oak", "fern moss", "newt", "birch"], random.integers(1, 6))]
        yield {"prompt": "Name plants", "completions": steps, "labels": [step != "newt" for step in steps]}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("rows"), rows(120, 0), rows(40, 1), kind="process")


def test_a_model_is_trained_scored_and_kept_with_how_it_reads(train, tmp_path, capsys):
    code, summary, told, folder = train("--step_separator", r"\n", "--aggregate", "product")
    assert code == 0 and summary["solutions"] == 120 and "pairs" not in summary
    assert summary["eval_accuracy"] > 0.95 and summary["eval_first_error_accuracy"] > 0.9
    assert "correct, " in told and "the first sequence reads: '<|user|>Name plants<|eos|><|assistant|>" in told
    model = load_reward_model(str(folder))
    contract = model.contract
    assert (contract.kind, contract.step_separator, contract.aggregate) == ("process", "\n", "product")
    example = Example(user_turn("Name plants"), "oak oak\nnewt\nbirch")
    (scores,) = model.step_scores([example])
    assert scores[1, 0] < 0.5 < min(scores[0, 0], scores[2, 0])
    path = tmp_path / "steps.jsonl"
    path.write_text(json.dumps({"prompt": "Name plants", "completion": example.completion}) + "\n")
    words = ["score", "--model", str(folder), "--data", str(path), "--output", str(tmp_path / "scores.parquet")]
    assert main(words) == 0
    capsys.readouterr()
    (score,) = pq.read_table(tmp_path / "scores.parquet").column("correct").to_pylist()
    assert score == pytest.approx(scores.prod(), rel=1e-5)
    assert main(["merge", str(folder), "--output", str(tmp_path / "merged")]) == 2  # there is no adapter in it


def test_a_step_that_has_the_separator_in_it_is_told(train):
    _, _, told, _ = train("--step_separator", " ", "--max_steps", "1")
    assert "steps have the separator ' ' in them" in told


def test_settings_that_do_not_fit_together_are_refused(train):
    for words, sentence in (
        (["--aggregate", "sum"], "--aggregate is one of min, product, last, mean, got 'sum'"),
        (["--neutral", "2"], "--neutral is a number in [0, 1], or unlabelled; got '2'"),
        (["--step_separator", ""], "--step_separator is a text, got none"),
        (["--objective", "helpful"], "--kind process learns labels of steps; leave --objective and --objectives out"),
        (["--kind", "scalar", "--step_separator", ","], "--step_separator belongs to --kind process, got scalar"),
        (["--objectives", "a", "b"], "--kind process learns labels of steps"),
        (["--lora"], "--lora adapts a backbone"),
    ):
        code, _, told, folder = train(*words)
        assert code == 2 and sentence in told and not folder.exists(), words


def test_a_lora_on_a_named_backbone_scores_the_same_after_it_is_merged(train, tmp_path, capsys):
    _, _, _, base = train("--max_steps", "1")
    config = json.loads((base / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForTokenClassification"]
    (base / "scoring.json").unlink()
    words = ["--model", base, "--lora", "--max_steps", "8", "--output", tmp_path / "lora"]
    code, _, told, _ = train(*words)
    folder = tmp_path / "lora"
    assert code == 0 and (folder / "adapter_config.json").exists(), told
    assert main(["merge", str(folder), "--output", str(tmp_path / "merged")]) == 0
    capsys.readouterr()
    examples = [Example(user_turn("Name plants"), "oak oak\n\nnewt"), Example(user_turn("Name plants"), "birch")]
    merged, adapted = (load_reward_model(str(path)) for path in (tmp_path / "merged", folder))
    assert np.allclose(merged.rate(examples), adapted.rate(examples), atol=1e-5)
