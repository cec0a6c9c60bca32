"""`rewardlab rl` with rewards that are missing, of steps, of verdicts, and with one that learns from its run."""

import json

import numpy as np
import pytest
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.rm.backbones.loading import load_tokenizer, small_config
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.kinds.r2m.model import load_r2m
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import rollouts_of, steps_of, write
from tests.conftest import SMALL_RUN

GOLD = "rewardlab.benchmarks.garden:gold"
R2M = "floor=0.3, learning_rate=1e-2"
HERE = "tests.apps.assembly.policy_training.test_rewards"


def silent():
    def reward(examples):
        raise TimeoutError("the sandbox timed out")

    return reward


def constant():
    return lambda examples: [1.0 for _ in examples]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([f"{HERE}:silent", "--on_fault", "skip"], "the first of 2 faults: raised TimeoutError: the sandbox timed out"),
        ([f"{HERE}:constant", "--kl", 0.1], "every advantage was 0: 8 of 8 groups had equal rewards, and of 32 compl"),
    ],
)
def test_a_run_that_learned_nothing_from_its_rewards_fails_and_is_kept(flags, reason, rl):
    code, _, err, folder = rl("--reward", *flags)
    assert code == 5 and f"{folder}: nothing was learned from the rewards: " in err and reason in err
    signal = json.loads((folder / "manifest.json").read_text())["learning_signal"]
    assert signal["completions"] == 32 and signal["updates"] == 0
    assert (folder / "policy" / "model.safetensors").exists()


PREFILLED = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant <think> ' }}{% endif %}"
)


def test_what_the_chat_template_writes_of_a_completion_is_logged(rl, tmp_path):
    (tmp_path / "prefilled.jinja").write_text(PREFILLED)
    flags = ["--reward", f"{HERE}:constant", "--max_steps", 1, "--chat_template", tmp_path / "prefilled.jinja"]
    _, _, err, _ = rl(*flags)
    assert "the chat template begins every completion with '<think> ', which is part of the prompt: rewards read" in err


@pytest.fixture(scope="module")
def prm(rl_world, tmp_path_factory) -> str:
    """Single words are the steps of the world's completions."""
    tokenizer = load_tokenizer(str(rl_world / "start"))
    folder = tmp_path_factory.mktemp("process") / "prm"
    process_from_config(small_config(tokenizer, hidden=32, layers=1), tokenizer, step_separator=" ").save(folder)
    return str(folder)


@pytest.mark.parametrize("more", [["--reward_transform", "clip(eta=1.5)", "delta"], ["--advantage", "gae", "--critic"]])
def test_a_policy_is_trained_on_steps(more, prm, rl):
    code, _, told, folder = rl("--reward", f"steps=process(model={prm}, scale=2)", *more)
    assert code == 0, told
    step = steps_of(folder)[0]
    assert step["rewards/steps/mean"] == 0 and 0 < step["steps/step_mean"] < 1 and step["steps/steps"] > 1


def test_what_has_no_steps_is_refused(prm, rl, rl_world):
    code, _, told, _ = rl("--reward", prm, "--reward_transform", "delta")
    assert code == 2 and "no reward source scores steps" in told
    code, _, told, _ = rl("--reward", f"process(model={rl_world / 'rm'})")
    assert code == 2 and "which does not score steps" in told
    code, _, told, _ = rl("--reward", prm, "--watch", f"steps=process(model={prm})")
    assert code == 2 and "name it with --reward" in told


def test_its_name_is_the_only_change(rl, rl_world):
    """Four cycles; ω falls from 1 to its floor by their number, which no one had to say."""
    rm = rl_world / "rm"
    code, facts, err, folder = rl("--reward", f"r2m(model={rm}, {R2M})", "--max_steps", 4, "--rollout_steps", 1)
    assert code == 0, err
    steps = steps_of(folder)
    assert [row["r2m/head_version"] for row in steps] == [0, 1, 2, 3] == [row["r2m/policy_version"] for row in steps]
    assert [row["r2m/omega"] for row in steps] == pytest.approx([1.0, 0.5 + 0.5 * 2**-0.5, 0.5, 0.3])
    rows = [row for row in rollouts_of(folder) if row["step"] == 0]
    asked = [Example(user_turn(row["prompt"].removeprefix("user: ")), row["completion"]) for row in rows]
    rewards = [row["reward/sources/r2m"] for row in rows]
    np.testing.assert_allclose(rewards, load_reward_model(str(rm)).rate(asked)[:, 0], atol=2e-5)  # at ω = 1
    rows = rollouts_of(folder)
    assert all(row["version/r2m/head"] == row["version/r2m/policy"] == row["step"] for row in rows)
    assert {(row["step"], row["version/r2m/omega"]) for row in rows if row["step"] in (0, 2)} == {(0, 1.0), (2, 0.5)}
    assert len({row["version/r2m/body"] for row in rows}) == 1
    learned = load_r2m(str(folder / "rewards" / "r2m"))
    before = load_reward_model(str(rm)).model.get_parameter("score.weight")
    assert not np.allclose(learned.head.score.weight.detach(), before.detach())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["contracts"]["r2m"] and manifest["rewards"].keys() == facts["rewards"].keys() == {"r2m"}


def test_what_cannot_be_run_is_told_in_a_sentence(rl, rl_world):
    for spec, message in (
        ("r2m(width=8)", "the argument 'model' is missing; write r2m(model=..., width=8)"),
        ("r2m(model={rm}, control=stael)", "unknown R2M control 'stael'; did you mean 'stale'"),
        ("r2m(model={rm}, groups=2)", "labels needs a labeller and a number of groups; got labels='' and groups=2"),
        ("r2m(model={rm}, pair_from=luck)", "pair_from must be 'annotation' or 'refreshed', got 'luck'"),
        (f"r2m(model={{rm}}, alpha=0, labels={GOLD}, groups=99)", "an anchor labels 99 groups, but the cycle has"),
        ("r3m(model={rm})", "r3m(model="),
    ):
        code, _, err, folder = rl("--reward", spec.format(rm=rl_world / "rm"), "--overwrite")
        assert code in (2, 3) and message in err.replace("\n", " "), err
        assert not (folder / "policy").exists(), spec


def test_a_reward_that_learns_is_not_only_watched(rl, rl_world):
    code, _, err, _ = rl("--reward", GOLD, "--watch", f"r2m(model={rl_world / 'rm'})")
    assert code == 2 and "'r2m' learns from its own rewards but is named with --watch; use --reward" in err


def test_the_number_of_cycles_is_known_beforehand(tmp_path):
    for settings, prompts, cycles in (
        ({"max_steps": 6}, 40, 6),  # a step is a generation's two micro-batches
        ({"max_steps": 6, "num_iterations": 2}, 40, 3),
        ({"num_train_epochs": 2}, 41, 20),  # 16 answers to 4 prompts each; the 41st is left over
    ):
        arguments = PolicyArguments(output_dir=str(tmp_path), **(SMALL_RUN | settings))
        assert arguments.cycles(prompts) == cycles, settings


def rows(number=8):
    pair = {"labels": ["A", "B"], "responses": ["honey", "hives"]}
    words = ["please " * index for index in range(number)]
    return [pair | {"prompt": f"tell me about bees {w}", "prompt_variants": [f"describe bees {w}"]} for w in words]


def test_both_orders_are_in_one_group_and_no_verdict_is_missing_or_a_penalty(rl, tmp_path):
    data = write(tmp_path / "verdicts.jsonl", rows())
    flags = ["--data", data, "--max_steps", 1, "--reward"]
    code, _, told, folder = rl(*flags, "verdict(no_verdict=nan)", "--rollout_steps", 1)
    assert code == 5 and "(missing: verdict 16)" in told
    step = steps_of(folder)[0]
    assert step["verdict/no_verdict"] == 1.0 and step["rewards/verdict/missing"] == 16
    groups: dict[int, list[str]] = {}
    for row in rollouts_of(folder):
        groups.setdefault(row["group"], []).append(row["prompt"])
    assert all(["tell" in prompt for prompt in group] == [True, True, False, False] for group in groups.values())
    assert all(len({prompt.count("please") for prompt in group}) == 1 for group in groups.values())
    code, _, told, folder = rl(*flags, "v=verdict(no_verdict=-1)", output="penalty")
    assert code == 5 and steps_of(folder)[0]["rewards/v/mean"] == -1.0, told


def test_rows_that_are_not_of_a_pair_are_refused(rl, tmp_path):
    for change, code, says in (
        ({"labels": ["A"]}, 3, "'labels' must have A or B for each of its 2 requests"),
        ({"prompt_variants": "describe bees"}, 3, "'prompt_variants' must be a list of prompts"),
        ({"prompt_variants": ["a", "b"], "labels": ["A", "B", "A"]}, 2, "number of variants, 3, got 4"),
    ):
        data = write(tmp_path / "verdicts.jsonl", [row | change for row in rows()])
        found, _, told, _ = rl("--data", data, "--reward", "verdict")
        assert (found, says in told) == (code, True), told
