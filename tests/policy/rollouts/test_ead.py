"""EAD: temperatures within a completion, and the completions that they give."""

import math

import pytest
import torch
from rewardlab.policy.decoding.engines import SeparateModels, decoding_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import Annealing, Request
from rewardlab.policy.rollouts.ead import ead
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn

from tests.policy.rollouts.stand_in_trainer import stand_in_trainer

PROMPT = user_turn("describe bees")
HOT = Annealing(decay=4.0, top=1.5, floor=0.25, start=2)


def test_temperatures_by_hand():
    """Before token 2 it is 1; then 2.5 - exp(t / 4), at least 1/4."""
    expected = [1, 1, *(max(2.5 - math.exp(t / 4), 0.25) for t in range(2, 6))]
    assert HOT.factors(torch.arange(6)).tolist() == pytest.approx(expected)


def test_sampled_logprobs_are_those_of_the_annealed_distribution(base, words):
    """Token t has log softmax(z / (0.8 T_t)) for the logits z of one forward pass over the completion."""
    policy = decoding_model(base, words)
    request = Request(PROMPT, seed=3, temperature=0.8, max_new_tokens=12, ignore_eos=True, annealing=HOT)
    (found,) = decode(SeparateModels(policy), [request], progress=False)
    ids = policy.encoder.encode_prompt(PROMPT)
    with torch.no_grad():
        logits = base(torch.tensor([[*ids, *found.tokens]])).logits[0, len(ids) - 1 : -1]
    logp = (logits / (0.8 * HOT.factors(torch.arange(12)))[:, None]).log_softmax(-1)
    assert found.sampled.tolist() == pytest.approx(logp[range(12), list(found.tokens)].tolist(), abs=1e-4)
    other = Request(PROMPT, seed=3, max_new_tokens=12)
    with pytest.raises(UsageError, match="same temperature annealing"):
        decode(SeparateModels(policy), [request, other], progress=False)


@pytest.mark.parametrize("corrected", [False, True])
def test_a_rollout_anneals_by_the_step_and_evaluation_does_not(base, words, corrected):
    """After three steps d = 4 + 3 · 2."""
    trainer = stand_in_trainer(base, words)
    prompts = [[dict(turn) for turn in PROMPT]] * 2
    rollout = ead(decay=4.0, slower=2.0, top=1.5, start=2, corrected=corrected)
    found = rollout(prompts, trainer)
    assert found["completion_ids"] == rollout(prompts, trainer)["completion_ids"]  # repeatable
    if corrected:
        policy = decoding_model(base, words)
        ids, tokens = policy.encoder.encode_prompt(PROMPT), found["completion_ids"][0]
        with torch.no_grad():
            logits = base(torch.tensor([[*ids, *tokens]])).logits[0, len(ids) - 1 : -1]
        factors = Annealing(10.0, 1.5, 0.1, 2).factors(torch.arange(len(tokens)))
        logp = (logits / factors[:, None]).log_softmax(-1)[range(len(tokens)), tokens]
        assert found["logprobs"][0] == pytest.approx(logp.tolist(), abs=1e-4)
    else:
        assert found["logprobs"] is None

    def draw(ids, images, fields, num_generations):
        return [[5] for _ in ids], None

    evaluated = rollout(prompts, stand_in_trainer(base, words, training=False, _generate_single_turn=draw))
    assert evaluated["completion_ids"] == [[5], [5]]
    with pytest.raises(UsageError, match="no repetition_penalty and no generation_kwargs"):
        rollout(prompts, stand_in_trainer(base, words, repetition_penalty=1.2))
    assert rollout(prompts, stand_in_trainer(base, words, top_k=-1)) == found  # as in TRL, no limit
    with pytest.raises(ValueError, match="0 < floor <= top"):
        ead(floor=0.0)
