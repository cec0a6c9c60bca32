"""`rewardlab rl` with rewards that are missing, for some prompts or for all."""

import json

import pytest
from rewardlab.rm.types import prompt_text

from tests.apps.conftest import steps_of

HERE = "tests.apps.commands.rl.test_missing_rewards"
LENGTHS = ["--reward", f"a={HERE}:length", f"b={HERE}:length(first=False)"]


def nothing():
    return lambda examples: [None for _ in examples]


def silent():
    def reward(examples):
        raise TimeoutError("the sandbox timed out")

    return reward


def constant():
    return lambda examples: [1.0 for _ in examples]


def length(*, first=True):
    """Of completions to some prompts, by their number of letters; None for the others."""
    return lambda examples: [
        float(len(one.completion)) if (len(prompt_text(one.prompt)) % 2 == 0) == first else None for one in examples
    ]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            ["--reward", f"{HERE}:silent", "--on_fault", "skip"],
            "none of 32 completions had a reward (missing: silent 32); the first of 2 faults: raised TimeoutError: the "
            "sandbox timed out; mend",
        ),
        (
            ["--reward", f"{HERE}:constant", "--kl", 0.1],
            "every advantage was 0: 8 of 8 groups had equal rewards, and of 32 completions 0 had no reward",
        ),
        ([*LENGTHS, "--on_missing", "strict"], "each lacks some only, see --on_missing"),
    ],
)
def test_a_run_that_learned_nothing_from_its_rewards_fails_and_is_kept(flags, reason, rl):
    code, _, err, folder = rl(*flags)
    assert code == 5 and f"{folder}: nothing was learned from the rewards: " in err and reason in err
    signal = json.loads((folder / "manifest.json").read_text())["learning_signal"]
    assert signal["completions"] == 32 and signal["updates"] == 0
    assert (folder / "policy" / "model.safetensors").exists()


def test_rewards_that_share_the_prompts_between_them_all_train(rl):
    code, facts, err, folder = rl(*LENGTHS)
    assert code == 0, err
    signal = facts["learning_signal"]
    assert signal["partial"] == signal["summed"] == signal["completions"] == 32
    assert signal["missing"]["a"] + signal["missing"]["b"] == 32 and signal["updates"] == 2
    assert err.count("lack some of their rewards") == 1
    assert all(row["rewards/a/missing"] + row["rewards/b/missing"] == 16 for row in steps_of(folder))


PREFILLED = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant <think> ' }}{% endif %}"
)


def test_what_the_chat_template_writes_of_a_completion_is_logged(rl, tmp_path):
    (tmp_path / "prefilled.jinja").write_text(PREFILLED)
    flags = ["--reward", f"{HERE}:constant", "--max_steps", 1, "--chat_template", tmp_path / "prefilled.jinja"]
    _, _, err, _ = rl(*flags)
    assert "the chat template begins every completion with '<think> ', which is part of the prompt: rewards read" in err
