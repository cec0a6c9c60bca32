"""policy/rewards/reference_probability.py, and the filter that goes with it."""

import math

import pytest
import torch
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.policy.rewards.reference_probability import (
    debiased,
    is_well_formed,
    mean_probability,
    reasoning_prefix,
    reference_probabilities,
    total_logprob,
)
from rewardlab.policy.transforms.std_filter import std_filter
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.types import user_turn

NAN = math.nan
TAGGED = "<think>2 + 2</think><answer>4</answer>"


def test_probabilities_their_gain_and_forms_by_hand():
    # (1/2 + 1/4) / 2; the third token is not the reference's. A row without any has nothing
    logprobs = torch.tensor([[0.5, 0.25, 0.9], [0.5, 0.5, 0.5]]).log()
    found = mean_probability(logprobs, torch.tensor([[True, True, False], [False, False, False]]))
    assert found.tolist() == pytest.approx([0.375, 0.0])
    # -2 - 4, and -200 of one token, whose probability no float32 holds
    logprobs = torch.tensor([[-1.0, -2.0, -4.0], [-3.0, -200.0, 0.0]])
    found = total_logprob(logprobs, torch.tensor([[False, True, True], [False, True, False]]))
    assert found.tolist() == [-6.0, -200.0]
    assert debiased(torch.tensor([0.9, 0.2, 0.5]), torch.tensor([0.4, 0.3, 0.5])).tolist() == pytest.approx([0.5, 0, 0])
    assert (
        reasoning_prefix(TAGGED) == "<think>2 + 2</think><answer>" and reasoning_prefix("so 4", ("so ", "!")) == "so "
    )
    assert reasoning_prefix("4") is None and reasoning_prefix(TAGGED * 2) is None
    bad = ("4", TAGGED * 2, TAGGED.replace("</think>", ""), "<answer>4</answer><think></think>")
    assert is_well_formed(TAGGED) and not any(map(is_well_formed, bad))


def test_probabilities_are_those_of_the_models_own_logits(base, words):
    """Whatever the others in the batch are, and whatever mode the model is in."""
    prompts = [user_turn("hello tell me about bees"), user_turn("tell me about gloves and the stings")]
    openings, references = ["the bees wonderful", "the"], ["stings gloves bees", "bees"]
    base.train()
    found = reference_probabilities(
        base, decoding_model(base, words).encoder, prompts, openings, references, together=2
    )
    assert base.training
    base.eval()
    for prompt, opening, reference, one in zip(prompts, openings, references, found.tolist(), strict=True):
        text = f"<|user|> {prompt[0]['content']} </s> <|assistant|> {opening} {reference}"
        ids = words(text, add_special_tokens=False).input_ids
        chances = base(torch.tensor([ids])).logits[0].double().softmax(-1)
        size = len(reference.split())
        said = [chances[place - 1, ids[place]].item() for place in range(len(ids) - size, len(ids))]
        assert one == pytest.approx(sum(said) / size, rel=1e-4)
    assert reference_probabilities(base, decoding_model(base, words).encoder, [], [], []).tolist() == []


def filtered(one, state, *values):
    """A step of the filter over groups of two."""
    group = torch.arange(len(values)) // 2
    rollout = Rollout(group, torch.ones(len(values), 1, dtype=torch.bool), torch.ones(len(values), dtype=torch.bool))
    state, found = one.change(state, Rewards(torch.tensor(values, dtype=torch.float64)[:, None], ("p",)), rollout)
    return state, found["p"].isnan().tolist()


def test_what_the_model_has_no_room_for_is_nan_and_the_others_are_as_before(base, words):
    encoder, prompt = decoding_model(base, words).encoder, user_turn("hello tell me about bees")
    asked = [prompt] * 3, ["the", "the bees wonderful", "bees"], ["stings gloves", "stings gloves", "gloves"]
    room = len(encoder.encode_prompt(prompt)) + 3
    whole, cut = (
        reference_probabilities(base, encoder, *asked, together=2, longest=longest) for longest in (None, room)
    )
    assert torch.isnan(cut).tolist() == [False, True, False]
    assert cut[[0, 2]].tolist() == pytest.approx(whole[[0, 2]].tolist(), rel=1e-5)


def test_prompts_whose_answers_do_alike_are_dropped():
    """Groups of (0, 2a) have the std a √2. In step 1 their mean is √2; of that half is asked for from step 2 on."""
    one = std_filter(reward="p", share=0.5, decay=0.75, first=2)
    state, dropped = filtered(one, one.start, 0.0, 2.0, 0.0, 2.0)
    assert not any(dropped) and state == {"step": 1, "spread": pytest.approx(math.sqrt(2))}
    state, dropped = filtered(one, state, 0.0, 0.9, 0.0, 1.1)
    assert dropped == [True, True, False, False]
    assert state["spread"] == pytest.approx(0.75 * math.sqrt(2) + 0.25 * (0.45 + 0.55) / 2 * math.sqrt(2))


def test_nothing_is_dropped_before_the_first_step_that_filters_or_without_any_spread():
    one, dropped = std_filter(reward="p"), []
    state = one.start
    for _ in range(6):
        state, gone = filtered(one, state, 0.0, 1.0, 0.5, 0.5)
        dropped.append(any(gone))
    assert dropped == [False] * 5 + [True]
    one = std_filter(reward="p", first=1)
    assert filtered(one, one.start, NAN, NAN)[0]["spread"] is None
    assert filtered(one, {"step": 3, "spread": 0.5}, NAN, 1.0)[0] == {"step": 4, "spread": 0.5}
    for settings in ({"share": -0.1}, {"decay": 1.0}):
        with pytest.raises(ValueError, match="share must be >= 0 and decay in"):
            std_filter(reward="p", **settings)
