import json

import datasets
import pytest
from rewardlab.apps.cli import main, parse
from rewardlab.apps.settings.parser import translate_config, translate_words
from rewardlab.apps.verbs import VERBS
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from transformers import AutoModelForCausalLM

ROWS = [
    {
        "prompt": [{"role": "user", "content": f"Name a plant, number {index}."}],
        "chosen": [{"role": "assistant", "content": "A fern."}],
        "rejected": [{"role": "assistant", "content": "No."}],
    }
    for index in range(16)
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A data set of two splits in a folder, as a stand-in for one on the Hub."""
    folder = str(tmp_path_factory.mktemp("pairs"))
    splits = {"train": datasets.Dataset.from_list(ROWS[:12]), "test": datasets.Dataset.from_list(ROWS[12:])}
    datasets.DatasetDict(splits).save_to_disk(folder)
    return folder


@pytest.fixture(scope="module")
def causal_model(tmp_path_factory):
    """A small language model with a chat template."""
    folder = str(tmp_path_factory.mktemp("model"))
    tokenizer = small_tokenizer(["Name a plant, number 1. A fern. No."] * 20, 300)
    AutoModelForCausalLM.from_config(small_config(tokenizer, hidden=16, layers=1)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "settings", "expected"),
    [
        (["--beta=0.1"], ["kl", "beta"], ["--kl", "0.1"]),
        (["--beta", "0.1"], ["beta"], ["--beta", "0.1"]),
        (["--use_peft", "--lora_task_type", "SEQ_CLS"], ["lora"], ["--lora"]),
        (["--lora_task_type", "SEQ_CLS"], ["lora_task_type"], ["--lora_task_type", "SEQ_CLS"]),
        (["RUN", "--data", "a.jsonl"], ["data"], ["RUN", "--data", "a.jsonl"]),
        (["--dataset_name", "a.jsonl", "--eval_strategy", "steps"], ["data", "eval_data"], None),
        (
            ["--dataset_name", "o/n", "--dataset_test_split", "dev", "--eval_strategy", "steps"],
            ["data", "eval_data", "eval_strategy"],
            ["--data", "o/n:train", "--eval_strategy", "steps", "--eval_data", "o/n:dev"],
        ),
        (
            ["--reward_funcs", "think_format_reward", "my.code.brief", "a.py:f"],
            ["reward"],
            ["--reward", "trl.rewards:think_format_reward", "my.code:brief", "a.py:f"],
        ),
    ],
)
def test_flags_of_trl_by_hand(words, settings, expected):
    found = translate_words(words, settings)
    assert found == (expected or ["--data", "a.jsonl", "--eval_strategy", "steps"])


def test_a_yaml_file_of_trl_has_the_same_meaning():
    config = {"model_name_or_path": "M", "dataset_name": "o/n", "dataset_train_split": "t", "lora_task_type": "X"}
    assert translate_config(config, ["model", "data"]) == {"model": "M", "data": ["o/n:t"]}
    both = {"reward_model_name_or_path": "rm", "reward_funcs": ["a.b"]}
    assert translate_config({"reward": ["c"]} | both, ["reward"]) == {"reward": ["c", "rm", "a:b"]}


@pytest.mark.parametrize("verb", VERBS)
def test_no_setting_of_a_verb_is_renamed_but_beta(verb):
    names = [name for group in VERBS[verb].settings for name in group.__dataclass_fields__]
    words = [word for name in names for word in (f"--{name}", "x")]
    changed = {name for name, found in zip(words, translate_words(words, names), strict=True) if name != found}
    assert changed <= ({"--beta"} if "kl" in names else set())


# ---- commands of TRL's documentation, with a local model and data set ----


def test_trls_command_of_reward_training(pairs, causal_model, tmp_path, capsys):
    words = f"""--model_name_or_path {causal_model} --dataset_name {pairs} --output_dir {tmp_path / "rm"}
        --per_device_train_batch_size 8 --num_train_epochs 1 --gradient_checkpointing True --learning_rate 1.0e-4
        --eval_strategy steps --eval_steps 50 --max_length 2048 --use_peft --lora_task_type SEQ_CLS --lora_r 32
        --lora_alpha 16""".split()
    assert main(["train", *words]) == 0, capsys.readouterr().err
    manifest = json.loads((tmp_path / "rm" / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["rows"]["read"], manifest["eval_rows"]["read"]) == (12, 4)


GRPO = "--reward_funcs think_format_reward {} --beta 0.04 --num_generations 8 --use_peft --learning_rate 1e-5"


def test_trls_command_of_grpo_has_the_same_settings(pairs):
    words = ["--model_name_or_path", "M", "--dataset_name", pairs, "--output_dir", "out", "--torch_dtype", "bfloat16"]
    config, arguments = parse("rl", VERBS["rl"], [*words, *GRPO.format("my.code.brief").split()])
    assert (config.model, config.data) == ("M", [f"{pairs}:train"])
    assert config.reward == ["trl.rewards:think_format_reward", "my.code:brief"]
    assert (config.kl, config.lora, config.dtype) == (0.04, True, "bfloat16")
    assert (arguments.output_dir, arguments.num_generations, arguments.beta) == ("out", 8, 0.0)


def test_trls_command_of_grpo_trains(pairs, causal_model, tmp_path, capsys, monkeypatch):
    """Its reward functions are read by their dotted names, and get completions as messages."""
    (tmp_path / "brief_rewards.py").write_text(
        "def brief(completions, **columns):\n    return [-float(len(c[0]['content'])) for c in completions]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = f"""--model_name_or_path {causal_model} --dataset_name {pairs} --output_dir {tmp_path / "run"}
        --per_device_train_batch_size 8 --max_completion_length 8 --max_steps 2""".split()
    assert main(["rl", *words, *GRPO.format("brief_rewards.brief").split()]) == 0, capsys.readouterr().err
    steps = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert steps[0]["rewards/brief/mean"] < 0 and (tmp_path / "run" / "policy" / "adapter_config.json").exists()
