"""`rewardlab rl` as a user runs it: rewards and formulas by name, and the story of every step."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rewardlab.apps.assembly.policy_training.run import summary
from rewardlab.apps.cli import main
from rewardlab.benchmarks import garden
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.load import load_reward_model
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from tests.apps.commands.conftest import save_policy
from tests.apps.conftest import cut_off_at, rollouts_of, steps_of, write

RECIPES = Path(__file__).resolve().parents[3] / "apps" / "recipes"
GOLD = "rewardlab.benchmarks.garden:gold"


def test_a_policy_learns_and_the_gold_reward_rises(rl, rl_world):
    """Two objectives of the garden are trained on, their sum and the third is only watched."""
    reward = f"good={GOLD}(objectives=['helpful', 'engaging'])"
    flags = ["--reward", reward, "--watch", f"gold={GOLD}", "--max_steps", 30, "--kl", 0.02]
    flags += ["--per_device_train_batch_size", 16, "--weight", "good.engaging=0.5"]
    code, facts, _, folder = rl(*flags)
    assert code == 0 and facts["steps"] == 30 and facts["stopped"] == "steps" and facts["faults"] == 0
    steps = steps_of(folder)
    assert [row["step"] for row in steps] == [*range(1, 31)]
    for row in steps:
        total = row["rewards/good.helpful/mean"] + 0.5 * row["rewards/good.engaging/mean"]
        assert row["reward"] == pytest.approx(total)
    gold = [row["rewards/gold/mean"] for row in steps]
    assert np.mean(gold[-5:]) > np.mean(gold[:5]) + 0.2
    errors = [row["rewards/gold/stderr"] for row in steps[:3] + steps[-3:]]
    ends = {"start": np.mean(gold[:3]), "end": np.mean(gold[-3:]), "stderr": np.linalg.norm(errors) / 3}
    assert facts["rewards"]["gold"] == pytest.approx(ends)
    assert facts["kl"] == pytest.approx(np.mean([row["watch/kl"] for row in steps[-3:]])) and facts["kl"] > 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["prompts"]["kept"] == 40 and manifest["seed"] == 5 and manifest["reward"] == facts["reward"]
    assert manifest["contracts"]["gold"] == garden.gold().contract.hash()
    trained, start = (load_file(one / "model.safetensors") for one in (folder / "policy", rl_world / "start"))
    assert trained.keys() == start.keys() and any(not torch.equal(trained[name], start[name]) for name in start)
    assert load_causal_lm(facts["policy"], load_tokenizer(facts["policy"])).config.use_cache


def test_one_model_has_one_number_here_and_in_score(rl, rl_world, tmp_path):
    """The reward model reads by its own tokenizer and template, not by the policy's."""
    code, _, _, folder = rl("--reward", rl_world / "rm", "--rollout_steps", 1)
    assert code == 0
    rows = [row for row in rollouts_of(folder) if row["completion"].strip()]
    assert len(rows) > 20
    asked = [{"prompt": row["prompt"].removeprefix("user: "), "completion": row["completion"]} for row in rows]
    words = ["--data", write(tmp_path / "asked.jsonl", asked), "--output", str(tmp_path / "scores.jsonl")]
    assert main(["score", "--model", str(rl_world / "rm"), *words]) == 0
    scores = [json.loads(line)["reward"] for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [row["reward/sources/rm"] for row in rows] == pytest.approx(scores, abs=1e-5)
    assert np.std(scores) > 1e-3
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["contracts"] == {"rm": load_reward_model(str(rl_world / "rm")).contract.hash()}


def test_low_rank_adapters_start_at_the_policy_and_are_saved_as_such(rl, rl_world):
    flags = ["--reward", f"gold={GOLD}", "--lora", "--lora_r", 4, "--lora_target_modules", "q_proj", "v_proj"]
    code, facts, _, folder = rl(*flags, "--learning_rate", 1e-2, "--max_steps", 3)
    kl = [row["watch/kl"] for row in steps_of(folder)]
    assert code == 0 and kl[0] == pytest.approx(0, abs=1e-4) and kl[-1] > 0.001
    saved = json.loads((folder / "policy" / "adapter_config.json").read_text())
    assert saved["r"] == 4 and saved["base_model_name_or_path"] == str((rl_world / "start").resolve())
    assert not (folder / "policy" / "model.safetensors").exists()
    again = ["--reward", f"gold={GOLD}", "--model", facts["policy"], "--max_steps", 1, "--learning_rate", 1e-9]
    code, merged, _, folder = rl(*again, "--reference", rl_world / "start", output="merged")
    assert code == 0 and merged["kl"] > 0.001 and (folder / "policy" / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_a_recipe_runs_as_it_stands(name, rl):
    small = ["--max_steps", 2, "--per_device_train_batch_size", 8, "--num_generations", 4, "--use_cpu", "True"]
    small += ["--disable_tqdm", "True", "--reward", f"gold={GOLD}"]
    code, facts, _, folder = rl(*small, config=RECIPES / f"{name}.yaml")
    assert code == 0 and facts["steps"] == 2
    steps = steps_of(folder)
    assert ("critic/loss" in steps[0]) == (name == "ppo")
    columns = rollouts_of(folder)[0]
    assert ("advantage/whiten" in columns) == (name == "ppo") and columns["reward/sources/gold"] is not None


def test_a_killed_run_goes_on_and_tells_every_step_once(rl):
    flags = ["--reward", f"gold={GOLD}", "--save_strategy", "steps", "--save_steps", 2, "--max_steps", 5]
    flags += ["--advantage", "gae", "--critic", "--kl", 0.05, "--kl_place", "token"]
    _, whole, _, expected = rl(*flags, output="whole")
    with cut_off_at(3):
        code, _, _, folder = rl(*flags)
    unfinished = folder.with_name("run.partial")
    assert code == 130 and not folder.exists() and len(steps_of(unfinished)) == 3
    with open(unfinished / "steps.jsonl", "a") as file:
        file.write('{"loss": 0.1, "rew')
    code, _, err, _ = rl(*flags)
    assert code == 2 and "continue it with --resume" in err
    code, facts, err, _ = rl(*flags, "--resume")
    assert code == 0 and "resuming from checkpoint-2" in err
    own, theirs = steps_of(folder), steps_of(expected)
    assert [row["step"] for row in own] == [1, 2, 3, 4, 5]
    for name in ("reward", "loss", "critic/loss", "watch/kl"):
        assert [row[name] for row in own] == pytest.approx([row[name] for row in theirs], abs=1e-5), name
    assert facts["rewards"]["gold"] == pytest.approx(whole["rewards"]["gold"])
    ends = [load_file(one / "policy" / "model.safetensors") for one in (folder, expected)]
    for name, one in ends[0].items():
        torch.testing.assert_close(one, ends[1][name], atol=1e-6, rtol=0)


def some_words(name="bees"):
    return lambda examples: [float(name in example.completion) for example in examples]


def broken():
    return lambda examples: [1.0 if place % 2 else float("inf") for place, _ in enumerate(examples)]


HERE = "tests.apps.commands.test_rl"


def test_several_rewards_are_weighed_and_one_gates_another(rl):
    flags = ["--reward", f"gold={GOLD}", f"form={HERE}:some_words(name=and)", "--weight", "gold=2", "form=0"]
    gate = "gate(reward=gold, by=form, threshold=0.5)"
    code, _, _, folder = rl(*flags, "--reward_transform", gate, "--rollout_steps", 1, "--max_steps", 1)
    rows = rollouts_of(folder)
    assert code == 0 and {row["reward/sources/form"] for row in rows} == {0.0, 1.0}
    for row in rows:
        assert row["reward/gate/gold"] == row["reward/sources/gold"] * row["reward/sources/form"]
    total = np.mean([2 * row["reward/gate/gold"] for row in rows])
    assert steps_of(folder)[0]["reward"] == pytest.approx(total)


def test_faults_stop_the_run_or_are_skipped_and_counted_once_also_by_a_killed_run(rl):
    """Eight completions of sixteen are faults at each of four steps."""
    flags = ["--reward", f"gold={GOLD}", f"odd={HERE}:broken", "--weight", "odd=0"]
    code, _, err, folder = rl(*flags)
    assert code == 3 and "reward 'odd' is inf for completion 0" in err
    assert len((folder.with_name("run.partial") / "faults.jsonl").read_text().splitlines()) == 8
    flags += ["--on_fault", "skip", "--save_strategy", "steps", "--save_steps", 2, "--max_steps", 4]
    for stop, output in ((1, "early"), (3, "late")):  # before and after a checkpoint
        with cut_off_at(stop):
            rl(*flags, output=output)
        code, facts, _, folder = rl(*flags, "--resume", output=output)
        assert code == 0 and len((folder / "faults.jsonl").read_text().splitlines()) == facts["faults"] == 4 * 8
        assert [row["rewards/odd/missing"] for row in steps_of(folder)] == [8.0] * 4


def test_prompts_come_from_rows_pairs_and_lines_and_long_ones_are_left_out(rl, tmp_path):
    """`<|user|> describe bees </s> <|assistant|>` has 5 tokens, and `... describe the bees ...` one more."""
    rows = [{"prompt": "describe bees"}, {"prompt": [{"role": "user", "content": "describe the bees"}]}]
    turns = [{"role": "user", "content": "describe ponds"}, {"role": "assistant", "content": "frogs"}]
    pair = {"chosen": turns, "rejected": [turns[0], {"role": "assistant", "content": "reeds"}]}
    data = [write(tmp_path / "a.jsonl", rows), write(tmp_path / "b.jsonl", [pair])]
    (tmp_path / "c.txt").write_text("describe herbs\n\ndescribe roses\n")
    flags = ["--data", *data, tmp_path / "c.txt", "--reward", f"gold={GOLD}", "--max_steps", 1]
    code, _, err, folder = rl(*flags, "--max_prompt_length", 5, "--rollout_steps", 1)
    assert code == 0 and "1 of 5 prompts have more than 5 tokens and were left out" in err
    asked = {row["prompt"] for row in rollouts_of(folder)}
    assert asked == {f"user: describe {topic}" for topic in ("bees", "ponds", "herbs", "roses")}
    assert json.loads((folder / "manifest.json").read_text())["prompts"]["too_long"] == 1
    code, _, err, _ = rl(*flags, "--max_prompt_length", 4, output="none")
    assert code == 3 and "none of 5 prompts has 4 tokens or fewer" in err
    code, _, err, _ = rl(*flags, "--max_completion_length", 252, output="full")
    assert code == 3 and "none of 5 prompts has 4 tokens or fewer" in err  # the policy reads 256 tokens
    code, _, err, _ = rl("--reward", f"gold={GOLD}", data=data[1], output="few")
    assert code == 2 and "a generation batch needs 4 prompts, got 1" in err


def test_the_reference_may_be_another_model_or_a_mixture(rl, tmp_path):
    save_policy(tmp_path / "model", seed=9)
    kl = {}
    for name, flags in {
        "itself": ["--soup", tmp_path / "model", "--soup_share", 0.0],
        "mixed": ["--soup", tmp_path / "model", "--soup_share", 0.5],
        "other": ["--reference", tmp_path / "model"],
    }.items():
        code, _, err, folder = rl("--reward", f"gold={GOLD}", "--max_steps", 1, "--kl", 0.1, *flags, output=name)
        assert code == 0, err
        kl[name] = steps_of(folder)[0]["watch/kl"]
    assert kl["itself"] == pytest.approx(0, abs=1e-4) and 1 < kl["mixed"] < kl["other"]


def test_an_evaluation_of_the_last_step_is_not_repeated(rl, rl_world):
    flags = ["--reward", f"gold={GOLD}", "--eval_data", rl_world / "prompts.jsonl", "--per_device_eval_batch_size", 160]
    code, facts, err, folder = rl(*flags, "--max_steps", 2, "--eval_strategy", "steps", "--eval_steps", 2)
    (evaluated,) = [row for row in steps_of(folder) if "eval_reward" in row]
    assert code == 0 and evaluated["step"] == 2 and evaluated["eval_reward"] == facts["eval_reward"], err


def test_an_evaluation_at_the_end_and_a_budget_of_kl(rl, rl_world):
    flags = ["--reward", f"gold={GOLD}", "--max_steps", 20, "--learning_rate", 1e-2, "--kl_budget", 0.5]
    code, facts, _, folder = rl(*flags, "--eval_data", rl_world / "prompts.jsonl", "--per_device_eval_batch_size", 160)
    assert code == 0 and facts["stopped"] == "kl_budget" and facts["steps"] < 20
    *_, last, evaluated = steps_of(folder)
    assert last["watch/kl"] > 0.5 and evaluated["eval_reward"] == facts["eval_reward"]


def test_usage_errors_are_one_sentence_and_leave_nothing_behind(rl, tmp_path):
    for flags, message in (
        ([], "--reward is missing"),
        (["--reward", "a=x", "a=y"], "two rewards are called 'a'"),
        (["--reward", "x", "--watch", "x"], "'x' is the name of a --reward and of a --watch"),
        (
            ["--reward", GOLD, "--reward_transform", "rewardlab.rm.types:user_turn(text=x)"],
            "not a policy.types.Transform",
        ),
        (["--reward", "rewardlab.rm.types:user_turn(text=x)"], "neither a reward model nor a function"),
        (["--reward", f"{GOLD}(objective=x)"], "no argument 'objective'; did you mean 'objectives'?"),
        (["--reward", GOLD, "--reference", "x", "--measure_kl", "False"], "nothing uses the reference policy"),
        (["--reward", GOLD, "--replay", "pipe"], "no 'pipe' in policy.replays; did you mean 'pipo'"),
        (["--reward", GOLD, "--lora", "--lora_target_modules", "q_prj"], "no layer 'q_prj'; did you mean 'q_proj'?"),
        (["--reward", GOLD, "--lora", "--lora_dropout", "0.1"], "add --disable_dropout False"),
        (["--reward", GOLD, "--on_fault", "cry"], "invalid choice: 'cry'"),
    ):
        code, _, err, _ = rl(*flags)
        assert code == 2 and message in err and "Traceback" not in err, flags
        assert [path.name for path in tmp_path.iterdir()] == [], flags


def test_data_that_cannot_be_used_is_refused_with_its_place(rl, tmp_path):
    code, _, err, _ = rl("--reward", GOLD, data=write(tmp_path / "a.jsonl", [{"prompt": " "}]))
    assert code == 3 and "a.jsonl:1: empty prompt" in err
    rows = [{"prompt": "describe bees"}] * 4 + [{"prompt": ""}]
    code, _, err, _ = rl("--reward", GOLD, "--on_bad_row", "skip", data=write(tmp_path / "c.jsonl", rows))
    assert code == 0 and "1 of 5 rows dropped: {'empty prompt': 1}" in err


@pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
def test_a_reward_model_is_no_policy_and_a_server_that_is_not_there_is_named(rl, rl_world, tmp_path):
    classifier = AutoModelForSequenceClassification.from_pretrained(rl_world / "start", num_labels=1)
    for part in (classifier, load_tokenizer(str(rl_world / "start"))):
        part.save_pretrained(tmp_path / "theirs")
    for flags, message in (
        (["--model", rl_world / "rm"], "a reward model of kind 'scalar'; give a causal language model"),
        (["--model", tmp_path / "theirs"], " is a reward model; give a causal language model"),
        (["--rollout_server", "http://127.0.0.1:9/"], "http://127.0.0.1:9/v1/models: no response"),
    ):
        code, _, err, _ = rl("--reward", GOLD, *flags, "--overwrite")
        assert code == 3 and message in err


def test_the_summary_is_means_of_the_first_and_last_tenth():
    """20 steps: tenths are steps 1, 2 and 19, 20; step 20 has no watched reward."""
    rows = [{"reward": float(step), "rewards/gold/mean": 2.0 * step, "watch/kl": 0.1 * step} for step in range(1, 21)]
    rows = [row | {"reward_stderr": 0.3, "rewards/gold/stderr": 0.4} for row in rows]
    rows[-1] |= {"rewards/gold/mean": None, "rewards/gold/stderr": None}
    found = summary([*rows, {"train_runtime": 1.0}, {"eval_reward": 3.0}])
    assert found == {
        "reward": {"start": 1.5, "end": 19.5, "stderr": pytest.approx(0.3)},  # two steps at either end: 0.3 / √2 twice
        "rewards": {"gold": {"start": 3.0, "end": 38.0, "stderr": pytest.approx(0.4 * (1 / 2 + 1) ** 0.5)}},
        "kl": pytest.approx(1.95),
        "eval_reward": 3.0,
    }
    assert summary([])["reward"] == {"start": None, "end": None, "stderr": None}
