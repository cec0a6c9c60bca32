"""`--reward laser`, `--rollouts sage`: what a policy says of its answers and finds among them, as a user runs it."""

import pytest
import torch
from rewardlab.apps.rewards._open import RunFacts
from rewardlab.apps.rewards.laser import laser
from rewardlab.policy.advantages.laser import self_reward
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import rollouts_of, steps_of

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
VERDICT = "verdict=tests.apps.assembly.policy_training.test_methods:verdict"
GOLD = "gold=rewardlab.benchmarks.garden:gold"
TOKEN = "<|system|>"
"""Of which the garden's policy has never seen one."""


@pytest.fixture
def policy(rl_world):
    words = load_tokenizer(str(rl_world / "start"))
    return decoding_model(load_causal_lm(str(rl_world / "start"), words), words)


def by_loop(policy, prompt, answer) -> float:
    """One forward of prompt, answer and its end; the token that comes next."""
    words = policy.encoder.tokenizer
    ids = policy.encoder.encode_prompt(prompt) + words(answer, add_special_tokens=False).input_ids
    ids += [words.eos_token_id]
    with torch.no_grad():
        logprobs = policy.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    return logprobs[words.convert_tokens_to_ids(TOKEN)].item()


def test_a_reward_is_the_logprob_of_one_token_behind_the_answers_end(policy):
    examples = [Example(user_turn(q), a) for q, a in (("describe bees", "honey and wax"), ("describe ponds", "frogs"))]
    found = laser(run=RunFacts(policy, 1, 0, {}), token=TOKEN, together=2)([*examples, Example(examples[0].prompt, "")])
    expected = [by_loop(policy, one.prompt, one.completion) for one in examples]
    assert found == pytest.approx([*expected, by_loop(policy, examples[0].prompt, "")], abs=1e-4)
    assert max(found) < -4 and abs(found[0] - found[1]) > 1e-3


def test_an_answer_that_leaves_no_room_has_no_reward_and_what_is_no_single_token_is_refused(policy, capsys):
    for token in ("honey wax", "zebra", ""):
        with pytest.raises(UsageError, match="must be one unused token of the policy's vocabulary"):
            laser(run=RunFacts(policy, 1, 0, {}), token=token)
    prompt = user_turn("describe bees")
    policy.encoder.tokenizer.model_max_length = len(policy.encoder.encode_prompt(prompt)) + len(["wax", "</s>", TOKEN])
    found = laser(run=RunFacts(policy, 1, 0, {}), token=TOKEN)([Example(prompt, "wax"), Example(prompt, "honey wax")])
    assert found == [pytest.approx(by_loop(policy, prompt, "wax"), abs=1e-4), None]
    assert "laser: '<|system|>' exceeds the policy's context after 1 of 2 completions" in capsys.readouterr().err


def test_a_run_is_trained_by_its_own_verdict_with_the_constant_that_one_watched_step_tells(rl, policy):
    """The first run's mean is c: in the second one the mean of s is 0, and A is 0.9 and 0.1 of the two z."""
    said = f"said=laser(token={TOKEN})"
    code, _, err, folder = rl("--reward", VERDICT, "--watch", said, "--max_steps", 1, output="watched")
    assert code == 0, err
    c = steps_of(folder)[0]["rewards/said/mean"]
    flags = ["--weight", "verdict=0.9", "said=0.1", "--advantage", f"laser(reference={c}, spread=0.0)"]
    code, _, err, folder = rl("--reward", VERDICT, said, *flags, "--max_steps", 3, "--rollout_steps", 1)
    assert code == 0 and all(row["grad_norm"] > 0 for row in steps_of(folder)), err
    rows = rollouts_of(folder)
    first = torch.tensor([[row["reward/sources/verdict"], row["reward/sources/said"]] for row in rows[:16]]).double()
    assert self_reward(first[:, 1], 0.1, c).mean().item() == pytest.approx(0, abs=1e-5)
    for place, row in enumerate(rows[:16]):
        asked = user_turn(row["prompt"].removeprefix("user: "))
        assert row["reward/sources/said"] == pytest.approx(by_loop(policy, asked, row["completion"]), abs=1e-4)
        own = rows[place // 4 * 4 : place // 4 * 4 + 4]
        r = [one["reward/sources/verdict"] for one in own]
        s = [min(max(0.1 * (one["reward/sources/said"] - c), 0), 1) * one["finished"] for one in own]
        z = [(x[place % 4] - sum(x) / 4) / (torch.tensor(x).double().std().item() + 1e-4) for x in (r, s)]
        expected = 0.9 * z[0] + 0.1 * (z[1] if len({*s}) > 1 else z[0])
        assert row["advantage/estimate"][0] == pytest.approx(expected, abs=1e-6)
    last = by_loop(policy, user_turn(rows[-1]["prompt"].removeprefix("user: ")), rows[-1]["completion"])
    assert abs(rows[-1]["reward/sources/said"] - last) > 1e-4  # by the policy that has moved


def test_a_search_that_cannot_be_made_is_refused(rl):
    for flags, message in (
        (["--rollouts", "sage(r=4)"], "sage: r is 4 and a group has 4 completions"),
        (["--rollouts", "sage(r=0)"], "sage: r, m and max_steps must be at least 1"),
        (["--rollouts", "sag"], "did you mean 'sage'?"),
        (["--rollouts", "sage(seed=3)"], "no argument 'seed'"),
        (["--rollouts", "sage", "--rollout_server", "http://127.0.0.1:9"], "leave --scaffold, --rollout_server"),
    ):
        code, _, err, folder = rl("--reward", GOLD, *flags, "--overwrite")
        assert code == 2 and message in err and not folder.exists(), flags
