"""`rewardlab plan` as a user runs it."""

import json

import pytest
from rewardlab.apps.cli import main

from tests.apps.commands.conftest import SAVE


@pytest.fixture
def plan(capsys):
    """A run of the verb: its exit code, its last line, and what it said."""

    def run(*words):
        code = main(["plan", *map(str, words)])
        out, err = capsys.readouterr()
        return code, json.loads(out.strip().split("\n")[-1]) if code == 0 else {}, err

    return run


def parts(found, phase=0):
    return found["phases"][phase]["gigabytes"]


def test_a_full_fine_tuning_needs_sixteen_bytes_a_parameter_besides_activations(plan):
    code, found, said = plan("--model", "7b", "--gpus", 8, "--batch", 1, "--length", 8, "--dtype", "float32")
    assert code == 0 and not found["fits"] and found["largest_batch"] == 0
    trunk = (7_615_616_512 - 152_064 * 3584 + 3584) * 1e-9  # a score head in place of the output head
    assert parts(found)["weights"] == pytest.approx(4 * trunk, abs=1e-3)
    assert parts(found)["optimizer"] == pytest.approx(8 * trunk, abs=1e-3)
    assert parts(found)["gradients"] == parts(found)["buckets"] == pytest.approx(4 * trunk, abs=1e-3)
    assert "**Does not fit**" in said and "No batch fits." in said


def test_a_policys_phases_hold_what_stands_around_it(plan):
    words = ["--job", "rl", "--reward_model", "8b", "--critic", "--r2m", "--accumulation", 4]
    _, found, said = plan("--model", "0.6b", *words)
    names = [phase["name"] for phase in found["phases"]]
    assert names == ["completions", "log-probabilities", "rewards of qwen3-8b", "update"]
    for phase in range(4):
        assert {"weights", "optimizer", "reward models", "reference", "critic", "R2M head"} <= {*parts(found, phase)}
    assert parts(found)["KV cache"] == pytest.approx(2 * 28 * 8 * 128 * 4 * 32 * 1024 * 1e-9, abs=1e-3)
    assert found["host_gigabytes"] == pytest.approx(32 * 1024 * 1024 * 2e-9, abs=1e-3)
    assert "reward models" in said and "of host memory" in said


def test_the_run_folder_has_a_page_a_figure_and_the_numbers(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", SAVE)
    folder = tmp_path / "plan"
    _, found, said = plan("--model", "0.6b", "--output", folder)
    written = json.loads((folder / "plan.json").read_text())
    assert found == written | {"output": str(folder)}
    page = (folder / "report.md").read_text()
    assert page.startswith("# qwen3-0.6b: train on 1 × NVIDIA H100")
    assert "--mfu" in page and page.split("![")[0].strip() in said
    assert (folder / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert plan("--model", "0.6b", "--output", folder)[0] == 2


def test_what_cannot_be_planned_is_told_in_a_sentence(plan, tmp_path):
    for words, code, sentence in (
        ("--job train", 2, "--model is missing"),
        ("--model 7b --job tune", 2, "--job must be one of train, rl, decode, score, got 'tune'"),
        ("--model 7b --strategy zero", 2, "--strategy must be one of ddp, fsdp, zero3, got 'zero'"),
        ("--model 7b --job rl --length 64", 2, "--length is for train and score; for rl set --prompt"),
        ("--model 7b --job rl --batch 6 --group 4", 2, "a step has 6 completions"),
        ("--model 7b --job decode --strategy fsdp", 2, "decode keeps full models on every GPU"),
        ("--model 7b --job score --dtype mixed", 2, "score does not train; set --dtype float32 or bfloat16"),
        ("--model 7b --adapter pblora", 2, "--adapter pblora is for --kind autoregressive"),
        ("--model 7b --adapter none --lora_r 8", 2, "--lora_r 8 is the rank of an adapter"),
        ("--model 7b --lora_r 8 --lora_target_modules query", 2, "no layer of qwen2.5-7b is called query"),
        ("--model 7b --lora_r 8 --from_layer 28", 2, "--from_layer must lie in 0..27 for qwen2.5-7b, got 28"),
        ("--model 7b --length 40000", 2, "qwen2.5-7b has 32768 positions, too few for 40000 tokens"),
        ("--model 7b --job decode --adapter none", 2, "--guide shared is an adapter of the base"),
        ("--model 7b --job decode --guide_model 1b", 2, "--guide_model is a guide with separate weights"),
        ("--model 7b --critic", 2, "--critic has no effect on --job train; leave it out, or set --job rl"),
        ("--model 7b --job score --optimizer sgd", 2, "leave it out, or set --job train or rl"),
        ("--model 7b --job rl --batch 8 --guide late", 2, "--guide has no effect on --job rl"),
        ("--model EMPTY", 3, "cannot read its config.json"),
    ):
        found, _, said = plan(*(str(tmp_path) if word == "EMPTY" else word for word in words.split()))
        assert found == code and sentence in said, words
        assert "Traceback" not in said, words
