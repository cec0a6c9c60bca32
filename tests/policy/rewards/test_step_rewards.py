"""Rewards of steps at the policy's tokens: where they are placed, and what is missing."""

import numpy as np
import pytest
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.rewards.step_rewards import CompletionTokens, ProcessRewards, StepReward, rewards_at_tokens
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.types import Example, user_turn

NAN = float("nan")
WORDS = small_tokenizer(["roba kano mino suba čtyři 🙂\n\n" * 20], 290)


def tokens_of(*texts: str) -> CompletionTokens:
    ids = [[*WORDS(text, add_special_tokens=False).input_ids, WORDS.eos_token_id] for text in texts]
    return CompletionTokens(WORDS, ids, max(map(len, ids)))


@pytest.fixture(scope="module")
def source() -> ProcessRewards:
    model = process_from_config(small_config(WORDS, hidden=32, layers=1), WORDS, max_length=40)
    return ProcessRewards(model, scale=2.0)


def test_a_step_ends_at_the_token_that_completes_its_text(source):
    for text in ("roba kano\n\nmino", "čtyři 🙂\n\nsuba 🙂", "\n\nroba\n\n\n\nkano ", "xyz\n\nq"):
        example, tokens = Example(user_turn("mino"), text), tokens_of(text)
        source.rate([example])
        for step, part in zip(source.step_rewards([example])[0], [s for s in text.split("\n\n") if s], strict=True):
            index = tokens.index(0, step.end)
            assert text[: step.end].endswith(part)
            assert len(WORDS.decode(tokens.ids[0][: index + 1])) >= step.end > len(WORDS.decode(tokens.ids[0][:index]))


def test_rewards_by_hand_and_two_steps_in_one_token():
    tokens = tokens_of("roba", "roba kano")
    placed = rewards_at_tokens([[StepReward(1, 1.0), StepReward(4, 0.5)], []], tokens)
    assert placed.shape == (2, tokens.length) and placed[1].isnan().all()
    assert placed[0].nansum() == 1.5


def test_steps_are_rewarded_and_the_completion_itself_is_not(source):
    texts = ("roba kano\n\nmino", "suba", " \n\n", "kano " * 60)
    examples = [Example(user_turn("mino"), text) for text in texts]
    rewards, faults = RewardSources({"steps": source})(examples, tokens=tokens_of(*texts))
    assert not faults and rewards.names == rewards.step_names == ("steps",)
    assert rewards.values[:, 0].isnan().tolist() == [False, False, True, True]  # no step, and beyond the length
    assert rewards.steps is not None
    (first, second, *_), expected = rewards.steps, source.model.step_scores(examples[:2])
    assert first[~first.isnan()].tolist() == pytest.approx((2 * expected[0][:, 0]).tolist())
    assert second[~second.isnan()].tolist() == pytest.approx((2 * expected[1][:, 0]).tolist())
    assert rewards.steps[2:].isnan().all()
    assert source.facts()["steps"] == 1.5 and 0 < source.facts()["lowest_step_mean"] <= source.facts()["step_mean"] < 1


def test_a_source_that_fails_leaves_no_steps_and_one_source_rewards_steps_by_a_scale(source, monkeypatch):
    monkeypatch.setattr(source.model, "step_scores", lambda examples: 1 / 0)
    sources = RewardSources({"steps": source}, skip=True)
    rewards, faults = sources([Example(user_turn("mino"), "roba")], tokens=tokens_of("roba"))
    assert "ZeroDivisionError" in str(faults[0]) and rewards.steps.isnan().all() and rewards.values.isnan().all()
    with pytest.raises(UsageError, match="two sources reward single steps"):
        RewardSources({"a": source, "b": source})
    with pytest.raises(UsageError, match="a non-zero number, got nan"):
        ProcessRewards(source.model, np.nan)
