"""`rewardlab rl --reward 'process(model=...)'`: rewards of steps, with the transforms that read them."""

import pytest
from rewardlab.rm.backbones.loading import load_tokenizer, small_config
from rewardlab.rm.models.process import process_from_config

from tests.apps.conftest import steps_of


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
    assert code == 2 and "which scores no steps" in told
    code, _, told, _ = rl("--reward", prm, "--watch", f"steps=process(model={prm})")
    assert code == 2 and "name it with --reward" in told


def test_a_folder_alone_rewards_whole_completions(prm, rl):
    code, _, told, folder = rl("--reward", f"prm={prm}")
    assert code == 0 and 0 < steps_of(folder)[0]["rewards/prm/mean"] < 1, told
