"""CCPO, DACR and `--exchange` in `rewardlab rl`: every role trains beside a partner, and runs learn from each other."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rewardlab.apps.rewards import ccpo as thinkers_reward
from rewardlab.apps.rewards._open import RunFacts
from rewardlab.apps.rewards.ccpo import ccpo
from rewardlab.apps.rewards.dacr import ExchangeRewards
from rewardlab.benchmarks import garden
from rewardlab.policy.advantages.dacr import adv_dacr, location_function
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.policy.rollouts import ccpo as search
from rewardlab.policy.rollouts._partners import sample_texts, seeds_of, with_thought
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import Example, prompt_text, user_turn

from tests.apps.commands.conftest import save_policy
from tests.apps.conftest import cut_off_at, rollouts_of, steps_of

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
GOLD = "rewardlab.benchmarks.garden:gold"
HISTORY = "ccpo_thinker(joint=ccpo.joint, solo=ccpo.solo)"
TOLD = "tests.apps.assembly.policy_training.test_agents:told"
EVERY = ["--rollout_steps", 1]
METHOD = [
    "--reward",
    "even=tests.apps.assembly.policy_training.test_agents:even",
    "--advantage_transform",
    "hacpo(floor=0.05)",
]
METHOD += ["--loss", "hacpo(delta=0.8)", "--aggregation", "completion_mean"]


def told():
    """A verdict of -1 or 1 on an answer's words."""
    return lambda examples: [1.0 if len(one.completion.split()) % 2 else -1.0 for one in examples]


@pytest.fixture
def policy(rl_world):
    words = load_tokenizer(str(rl_world / "start"))
    return decoding_model(load_causal_lm(str(rl_world / "start"), words), words)


def run_of(policy) -> RunFacts:
    return RunFacts(policy, 1, 7, {})


def recorded(monkeypatch, owner, name: str) -> list[tuple[tuple, object]]:
    """The arguments and the result of every call of a function from now on."""
    calls, original = [], getattr(owner, name)

    def call(*given, **named):
        calls.append((given, original(*given, **named)))
        return calls[-1][1]

    monkeypatch.setattr(owner, name, call)
    return calls


def trained(rows) -> bool:
    return all(math.isfinite(row["loss"]) for row in rows) and any(row["grad_norm"] > 0 for row in rows)


def column(rows, name) -> torch.Tensor:
    return torch.tensor([math.nan if row[name] is None else row[name] for row in rows], dtype=torch.float64)


def estimates(rows) -> torch.Tensor:
    return torch.tensor([row["advantage/estimate"][0] for row in rows], dtype=torch.float64)


@pytest.mark.slow
def test_a_thinkers_reward_is_what_the_solver_makes_of_the_thought_and_of_none(policy, rl_world, monkeypatch):
    """Each answer is the solver's to what it was shown, by its seed; the rating sees the plain prompt."""
    calls = recorded(monkeypatch, thinkers_reward, "sample_texts")
    source = ccpo(run=run_of(policy), solver=str(rl_world / "start"), reward=GOLD, longest=12)
    examples = [Example(user_turn("describe bees"), "honey and wax"), Example(user_turn("describe ponds"), "frogs")]
    found = source.rate(examples)
    prompts = [one.prompt for one in examples]
    joint = [with_thought(one.prompt, one.completion) for one in examples]
    shown = [given[1] for given, _ in calls]
    assert shown == [joint + prompts] and all("frogs" not in prompt_text(one) for one in prompts)
    seeds = seeds_of(7, [[[*one.prompt], one.completion] for one in examples], 4)
    answers = [sample_texts(policy, [one], [seed], 12)[0] for one, seed in zip(shown[0], seeds, strict=True)]
    expected = garden.gold().rate([Example(one, text) for one, text in zip(prompts * 2, answers, strict=True)])
    np.testing.assert_allclose(found, expected.reshape(2, 2).T)
    assert len({*answers}) == 4 and np.array_equal(found, source.rate(examples))
    assert not np.array_equal(found[0], source.rate([examples[0], Example(prompts[1], "lilies")])[0])


def test_a_solver_is_trained_on_the_prompt_that_it_saw(rl, rl_world, policy, monkeypatch):
    """Log-probabilities of the first step are the start policy's behind prompt and thought, or the prompt alone."""
    generations = recorded(monkeypatch, PolicyTrainer, "_generate_single_turn")
    thinking = recorded(monkeypatch, search, "sample_texts")
    flags = ["--rollouts", f"ccpo(thinker={rl_world / 'start'}, longest=12)", "--reward", f"gold={GOLD}", *EVERY]
    code, _, err, folder = rl(*flags, "--max_steps", 1)
    assert code == 0, err
    rows = rollouts_of(folder)
    drawn = [ids for given, _ in generations for ids in given[1]]
    thoughts = [thought for _, texts in thinking for thought in texts]
    waiting = iter(thoughts)
    for place, (row, ids) in enumerate(zip(rows, drawn, strict=True)):
        prompt = user_turn(row["prompt"].removeprefix("user: "))
        plain = policy.encoder.encode_prompt(prompt)
        joint = place % 4 < 2
        saw = policy.encoder.encode_prompt(with_thought(prompt, next(waiting))) if joint else plain
        assert ids == saw and (len(saw) > len(plain)) == joint
        assert logprobs(policy, saw, row["tokens"]) == pytest.approx(row["logprobs"], abs=1e-4)
        if joint:
            assert logprobs(policy, plain, row["tokens"]) != pytest.approx(row["logprobs"], abs=1e-2)
    assert next(waiting, None) is None and len({*thoughts}) == 8


def logprobs(policy, before, tokens) -> list[float]:
    with torch.no_grad():
        logp = policy.model(torch.tensor([before + tokens])).logits[0].log_softmax(-1)
    return [logp[len(before) - 1 + t, token].item() for t, token in enumerate(tokens)]


def test_two_agents_talk_and_the_policys_own_words_are_trained_on(rl, rl_world, policy, monkeypatch):
    calls = recorded(monkeypatch, ExchangeRewards, "listen")
    flags = ["--rollouts", f"dacr(partner={rl_world / 'start'}, longest=10)", "--reward", f"dacr(reward={GOLD})"]
    flags += ["--advantage", "dacr(gamma=0.5)", "--max_steps", 2, "--max_completion_length", 10, *EVERY]
    code, _, err, folder = rl(*flags)
    assert code == 0 and trained(steps_of(folder)), err
    rows, gold, heard = rollouts_of(folder), garden.gold(), [given[1] for given, _ in calls]
    for step, talk in enumerate(heard):
        own = rows[16 * step : 16 * step + 16]
        names = {"answer": talk.completions[0], "rewrite": talk.rewrites[0]}
        names |= {"partner_answer": talk.completions[1], "partner_rewrite": talk.rewrites[1]}
        found = {name: column(own, f"reward/sources/dacr.{name}") for name in names}
        for name, texts in names.items():
            rated = gold.rate([Example(prompt, text) for prompt, text in zip(talk.prompts, texts, strict=True)])[:, 0]
            torch.testing.assert_close(found[name], torch.from_numpy(rated))
        answers, rewrites = (torch.stack([found[name], found[f"partner_{name}"]], 1) for name in ("answer", "rewrite"))
        group = torch.tensor([row["group"] for row in own])
        expected = adv_dacr(answers, rewrites, group, 0.5, location_function("mean", None, 1, 1e-3))[:, 0]
        torch.testing.assert_close(estimates(own), expected)
        for row, *texts in zip(own, talk.completions[0], talk.critiques[0], talk.rewrites[0], strict=True):
            words = policy.encoder.tokenizer.decode(row["tokens"], skip_special_tokens=True)
            assert words.split() == " ".join(texts).split()
    assert len(heard) == 2 and steps_of(folder)[0]["ratio"] == pytest.approx(1, abs=1e-4)


def test_a_killed_run_goes_on_as_if_it_had_not_been(rl, rl_world):
    flags = ["--rollouts", f"ccpo(thinker={rl_world / 'start'}, longest=8)", "--reward", f"gold={GOLD}"]
    flags += ["--reward_transform", "ccpo_solver(reward=gold)"]
    flags += ["--max_steps", 4, "--save_strategy", "steps", "--save_steps", 2, *EVERY]
    code, _, err, expected = rl(*flags, output="whole")
    assert code == 0, err
    with cut_off_at(3):
        assert rl(*flags)[0] == 130
    code, _, err, folder = rl(*flags, "--resume")
    assert code == 0 and "resuming from checkpoint-2" in err
    found, whole = rollouts_of(folder), rollouts_of(expected)
    assert len(found) == len(whole) == 64
    for name in ("prompt", "completion", "tokens"):
        assert [row[name] for row in found] == [row[name] for row in whole], name
    for name in whole[0]:
        if name.startswith("reward/"):
            torch.testing.assert_close(column(found, name), column(whole, name), equal_nan=True)
    torch.testing.assert_close(estimates(found), estimates(whole))


def test_what_cannot_work_together_is_refused(rl, rl_world):
    for flags, message in (
        (["--reward", f"ccpo(solver=RM, reward={TOLD})"], "; give a causal language model"),
        (["--reward", f"ccpo(reward={TOLD})"], "the argument 'solver' is missing"),
        (
            ["--reward", "ccpo(solver=START, reward=tests.apps.assembly.policy_training.test_agents:two)"],
            "has 2 components",
        ),
        (["--reward", "ccpo(solver=START, reward=r2m(model=RM))"], "cannot rate a partner's"),
        (["--reward", f"gold={GOLD}", "--rollouts", "ccpo(thinker=START/none)"], "start/none: no tokenizer there"),
        (["--reward", f"dacr(reward={GOLD})", "--advantage", "dacr"], "the argument 'gamma' is missing"),
        (["--reward", f"dacr(reward={GOLD})", "--advantage", "dacr(gamma=0.5)"], "dacr found no partner responses for"),
        (["--reward", f"ccpo(solver=START, reward={TOLD})", "--reward_transform", HISTORY], "set --weight ccpo"),
    ):
        flags = [
            str(one).replace("START", str(rl_world / "start")).replace("RM", str(rl_world / "rm")) for one in flags
        ]
        code, _, err, _ = rl(*flags, "--max_steps", 1, "--overwrite")
        assert code in (2, 3) and message in err, flags


def two():
    """The garden's two conflicting objectives."""
    return garden.gold(("helpful", "harmless"))


def test_a_rating_that_fails_is_told_by_its_own_sentence(policy, rl_world):
    broken = "tests.apps.assembly.policy_training.test_agents:broken"
    source = ccpo(run=run_of(policy), solver=str(rl_world / "start"), reward=broken, longest=4)
    with pytest.raises(DataError, match="reward 'rating' is inf for completion 0"):
        source.rate([Example(user_turn("describe bees"), "wax")])


def broken():
    """No reward."""
    return lambda examples: [math.inf for _ in examples]


def even():
    """Right where an answer has an even number of words, which about half of them have."""
    return lambda examples: [float(len(one.completion.split()) % 2 == 0) for one in examples]


@pytest.fixture(scope="module")
def other(rl_world) -> Path:
    """A policy of another architecture with the same tokenizer."""
    return Path(save_policy(rl_world / "other", "llama", seed=4))


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
        (["--agents", 2], "add its folder with --exchange"),
        (["--exchange", "shared"], "needs 2 agents or more, numbered from 0; got --agent 0 --agents 1"),
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
