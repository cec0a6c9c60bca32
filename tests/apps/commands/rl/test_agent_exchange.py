"""`rewardlab rl --exchange`: two runs that learn from each other's answers, started, killed and resumed."""

from pathlib import Path

import pytest
from rewardlab.benchmarks.garden import models

from tests.apps.conftest import steps_of

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
FORMULAS = ["--advantage_transform", "hacpo(floor=0.05)", "--loss", "hacpo(delta=0.8)", "--aggregation"]
FORMULAS += ["completion_mean"]
METHOD = ["--reward", "even=tests.apps.commands.rl.test_agent_exchange:even", *FORMULAS]


def even():
    """Right where an answer has an even number of words, which about half of them have."""
    return lambda examples: [float(len(one.completion.split()) % 2 == 0) for one in examples]


@pytest.fixture(scope="module")
def other(rl_world) -> Path:
    """A policy of another architecture with the same tokenizer."""
    words = models.tokenizer()
    models.causal_lm(words, "llama", seed=4).save_pretrained(rl_world / "other")
    words.save_pretrained(rl_world / "other")
    return rl_world / "other"


@pytest.mark.slow
def test_two_runs_wait_for_each_other_and_go_on(rl, other, tmp_path):
    def agent(number, *words):
        exchange = ["--exchange", tmp_path / "shared", "--agent", number, "--agents", 2, "--exchange_timeout", 0]
        model = ["--model", other] if number else []
        flags = [*exchange, *model, "--max_steps", 2, "--save_strategy", "steps", "--save_steps", 1]
        return rl(*METHOD, *flags, *words, output=f"run-{number}")

    code, _, told, _ = agent(0)
    assert code == 3 and "agent 1 has not written its completions of step 0 in 0 seconds" in told
    code, _, told, _ = agent(1)
    assert code == 3 and "agent 0 has not written its completions of step 1" in told
    for number in range(2):
        code, facts, told, folder = agent(number, "--resume")
        assert code == 0, told
        rows = steps_of(folder)
        assert len(rows) == 2 and any(row["grad_norm"] > 0 for row in rows)
        ends = facts["reward_own"]
        assert [ends["start"], ends["end"]] == [row["reward_own"] for row in rows] and ends["stderr"] > 0
        assert rows[0]["reward_own"] != rows[0]["reward"]
    assert len([*(tmp_path / "shared").iterdir()]) == 4


def test_what_does_not_go_together_is_refused_before_anything_is_loaded(rl):
    for flags, reason in (
        (["--agents", 2], "name a folder for them with --exchange"),
        (["--exchange", "shared"], "between 2 agents or more, numbered from 0; got --agent 0 --agents 1"),
        (["--exchange", "shared", "--agent", 2, "--agents", 2], "got --agent 2 --agents 2"),
        (["--exchange", "shared", "--agents", 3], "--num_generations is 4 and is shared by 3 agents"),
        (["--exchange", "shared", "--agents", 2, "--rollouts", "sage(r=1)"], "leave --rollouts out"),
        (["--exchange", "shared", "--agents", 2, "--scaffold", "ruscarl"], "leave --scaffold out"),
        (["--exchange", "shared", "--agents", 2, "--rollout_server", "http://127.0.0.1:1"], "leave --rollout_server"),
        (["--exchange", "shared", "--agents", 2, "--use_vllm", "True"], "leave --use_vllm out"),
        (["--exchange", "shared", "--agents", 2, "--curriculum", "sec"], "leave --curriculum out"),
    ):
        code, _, told, folder = rl(*METHOD, *flags)
        assert code == 2 and reason in told and not folder.exists(), flags
