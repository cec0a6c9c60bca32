"""What tells a model from another one of the same name, and a resumed evaluation that notices it."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.commands.label.run import _recipe
from rewardlab.apps.commands.label.settings import LabelConfig
from rewardlab.apps.runs.model_hashes import model_hashes, with_model_hashes
from rewardlab.apps.runs.run_folder import data_hash

REWARD = "def rm(completions):\n    return [{sign} * len(text) for text in completions]\n"
STOPS = """import os
def gold(completions):
    if not os.path.exists("go"):
        raise KeyboardInterrupt
    return [float(len(text)) for text in completions]
"""


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sha(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def model(name: str, weights: str = "w", **settings: object) -> Path:
    folder = Path(name)
    folder.mkdir()
    (folder / "model.safetensors").write_text(weights)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def test_the_hash_of_a_folder_by_hand():
    model("rm", "w", a=1)
    config, weights = sha(b'{"a": 1}'), sha(b"w")
    assert data_hash("rm") == sha(f"config.json\0{config}\nmodel.safetensors\0{weights}\n".encode())
    assert model_hashes(["rm"]) == {"rm": data_hash("rm")} and data_hash("rm:train") == data_hash("rm")


def test_weights_of_equal_size_and_time_count_and_what_is_not_loaded_does_not():
    folder = model("rm", "0.25")
    before, time = model_hashes(["rm"]), (folder / "model.safetensors").stat().st_mtime_ns
    (folder / "model.safetensors").write_text("0.75")
    os.utime(folder / "model.safetensors", ns=(time, time))
    assert model_hashes(["rm"]) != before
    before = model_hashes(["rm"])
    (folder / "README.md").write_text("a card")
    for name, file in ((".cache", "x"), ("checkpoint-5", "optimizer.pt"), ("eval.partial", "config.yaml")):
        (folder / name).mkdir()
        (folder / name / file).write_text("x")
    assert model_hashes(["rm"]) == before
    (folder / "body").mkdir()
    (folder / "body" / "model.safetensors").write_text("loaded")
    assert model_hashes(["rm"]) != before


def test_a_base_and_the_members_of_ensembles_count_too():
    for name in ("base", "a", "b"):
        model(name)
    model("lora", base_model_name_or_path="base")
    model("both", members=["a", "lora"])
    (Path("both") / "broken.json").write_text("{")
    assert set(model_hashes(["both"])) == {"both", "a", "lora", "base"}
    assert set(model_hashes(["a,b", "served(urls=[http://a:1, http://b:1])", "org/model"])) == {"a", "b"}


def test_a_model_in_one_file_counts_and_the_base_of_a_model_with_a_body():
    Path("rm.gguf").write_bytes(b"GGUF")
    for name in ("base", "heads"):
        model(name)
    (Path("heads") / "body").mkdir()
    (Path("heads") / "body" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "base"}))
    model("lora", base_model_name_or_path="rm.gguf")
    hashes = model_hashes(["lora", "heads"])
    assert set(hashes) == {"lora", "heads", "base", "rm.gguf"} and hashes["rm.gguf"] == sha(b"GGUF")


def test_members_and_functions_with_arguments_count_among_labellers():
    for name in ("a", "b"):
        model(name)
    Path("mine.py").write_text(REWARD.format(sign=1))
    rewards = ["a,b", "short=mine.py:rm(scale=2)", "majority", "judge(model=M, base_url=http://c:1)"]
    assert set(_recipe(LabelConfig(reward=rewards))["model_sha256"]) == {"a", "b", "mine.py:rm"}


def test_a_training_has_the_hashes_of_the_models_that_it_starts_from_and_of_its_reward_models():
    for name in ("base", "ref", "a", "b"):
        model(name)
    Path("mine.py").write_text(REWARD.format(sign=1))
    rewards = ["a,b", "mine.py:rm", "judge(model=a, base_url=http://c:1)"]
    settings = {"model": "base", "reference": "ref", "members": ["a"], "teacher": None, "seed": 1}
    recipe = with_model_hashes(settings, rewards)
    assert recipe == settings | {"model_sha256": model_hashes(["base", "ref", "a", "b"])}
    assert len(recipe["model_sha256"]) == 4


def begun(*words: str) -> list[str]:
    """Begin an evaluation that is cut off when the first model is done; return the command."""
    rows = [{"prompt": f"q{i}", "chosen": f"long {i}", "rejected": "s"} for i in range(3)]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("stops.py").write_text(STOPS)
    options = "--reference stops.py:gold --baselines none --bootstrap_samples 20 --output run"
    given = [*words, *options.split()]
    assert main(["eval", *given]) == 130 and Path("run.partial").is_dir()
    Path("go").touch()
    return ["eval", *given, "--resume"]


def test_a_changed_function_is_refused_and_an_unchanged_one_goes_on(capsys):
    Path("mine.py").write_text(REWARD.format(sign=1))
    command = begun("--model", "mine.py:rm", "--data", "pairs.jsonl")
    Path("mine.py").write_text(REWARD.format(sign=-1))
    assert main(command) == 2
    said = capsys.readouterr().err
    assert (
        "was started with model_sha256 of mine.py:rm = " in said and "resume with the same settings and files" in said
    )
    Path("mine.py").write_text(REWARD.format(sign=1))
    assert main(command) == 0


def test_another_file_in_a_folder_of_data_is_refused(capsys):
    Path("data").mkdir()
    row = {"prompt": "q", "chosen": "long", "rejected": "s"}
    Path("data/train.jsonl").write_text(json.dumps(row) + "\n")
    Path("mine.py").write_text(REWARD.format(sign=1))
    command = begun("--model", "mine.py:rm", "--data", "data")
    Path("data/more.jsonl").write_text(json.dumps(row | {"prompt": "p"}) + "\n")
    assert main(command) == 2 and "was started with data_sha256 of data = " in capsys.readouterr().err
