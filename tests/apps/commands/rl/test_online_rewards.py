"""`rewardlab rl --reward 'r2m(...)'`: a reward that learns from the run it serves, named and nothing else changed."""

import json

import numpy as np
import pytest
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.rm.contract.golden_scores import load_reward_model
from rewardlab.rm.models.r2m import r2m
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import rollouts_of, steps_of
from tests.conftest import SMALL_RUN

GOLD = "rewardlab.benchmarks.garden:gold"
R2M = "floor=0.3, learning_rate=1e-2"


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
    learned = r2m(str(folder / "rewards" / "r2m"))
    before = load_reward_model(str(rm)).model.get_parameter("score.weight")
    assert not np.allclose(learned.head.score.weight.detach(), before.detach())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["contracts"]["r2m"] and manifest["rewards"].keys() == facts["rewards"].keys() == {"r2m"}


def test_what_cannot_be_run_is_told_in_a_sentence(rl, rl_world):
    for spec, message in (
        ("r2m(width=8)", "the argument 'model' is missing; write r2m(model=..., width=8)"),
        ("r2m(model={rm}, control=stael)", "no control 'stael' of R2M; did you mean 'stale'"),
        ("r2m(model={rm}, groups=2)", "labels come from a labeller and for some groups; got labels='' and groups=2"),
        ("r2m(model={rm}, floor=2)", "floor in [0, 1]; got 0 and 2.0"),
        ("r2m(model={rm}, pair_from=luck)", "pair_from is annotation or refreshed, got 'luck'"),
        (f"r2m(model={{rm}}, alpha=0, labels={GOLD}, groups=99)", "an anchor is to label 99 groups and the cycle has"),
        ("r3m(model={rm})", "r3m(model="),
    ):
        code, _, err, folder = rl("--reward", spec.format(rm=rl_world / "rm"), "--overwrite")
        assert code in (2, 3) and message in err.replace("\n", " "), err
        assert not (folder / "policy").exists(), spec


def test_a_reward_that_learns_is_not_only_watched(rl, rl_world):
    code, _, err, _ = rl("--reward", GOLD, "--watch", f"r2m(model={rl_world / 'rm'})")
    assert code == 2 and "'r2m' learns from its own rewards and is only watched; name it with --reward" in err


def test_the_number_of_cycles_is_known_beforehand(tmp_path):
    for settings, prompts, cycles in (
        ({"max_steps": 6}, 40, 6),  # a step is a generation's two micro-batches
        ({"max_steps": 6, "num_iterations": 2}, 40, 3),
        ({"num_train_epochs": 2}, 41, 20),  # 16 answers to 4 prompts each; the 41st is left over
    ):
        arguments = PolicyArguments(output_dir=str(tmp_path), **(SMALL_RUN | settings))
        assert arguments.cycles(prompts) == cycles, settings
