"""DACR: both agents' credit against plain loops, and a talk turn by turn."""

import math
from statistics import stdev
from types import SimpleNamespace

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.advantages.dacr import adv_dacr, dacr, location_function
from rewardlab.policy.decoding.engines import SeparateModels, decoding_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.decoding.search import derived
from rewardlab.policy.rollouts import dacr as search
from rewardlab.policy.rollouts._partners import Side
from rewardlab.policy.types import Rollout
from rewardlab.rm.contract.scoring_contract import PLAIN_TEMPLATE
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Message, user_turn

from tests.policy.rollouts.stand_in_trainer import stand_in_trainer

NAN = math.nan
GROUP = [0] * 4 + [1] * 4 + [2] * 2


def table(*rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def rollout(group) -> Rollout:
    rows = len(group)
    return Rollout(torch.tensor(group), torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def rewards(seed: int, missing: float = 0.1) -> torch.Tensor:
    """[N, 4]: answer, rewrite, partner's answer, partner's rewrite."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(GROUP), 4, generator=generator, dtype=torch.float64)
    return values.masked_fill(torch.rand(len(GROUP), 4, generator=generator) < missing, NAN)


def both(values, gamma, loc="mean", shape=None) -> torch.Tensor:
    return adv_dacr(
        values[:, [0, 2]], values[:, [1, 3]], torch.tensor(GROUP), gamma, location_function(loc, shape, 1, 1e-3)
    )


def test_an_advantage_worked_out_by_hand():
    """γ = 1/2. Agent 1: 1 + (3 - 1)/2 = 2 and 2 + (0 - 0)/2 = 2, 0 + (1 - 3)/2 = -1, 1; agent 2's Δ is of agent 1."""
    answers, rewrites = table([0, 1], [2, 0], [0, 3], [1, 1]), table([1, 3], [2, 0], [0, 1], [1, 1])
    # R_1 = 2, 2, -1, 1 with means 2 and 0; R_2 = 3.5, 0, 1, 1 with means 1.75 and 1
    gaps = table([0, 1.75], [0, -1.75], [-1, 0], [1, 0])
    found = adv_dacr(answers, rewrites, torch.tensor([0, 0, 1, 1]), 0.5, location_function("mean", None, 1, 1e-3), 0.0)
    spreads = [stdev([2, 2, -1, 1]), stdev([3.5, 0, 1, 1])]
    torch.testing.assert_close(found, gaps / table(spreads))


def test_critiques_that_change_nothing_are_worth_nothing_and_whoever_is_called_first_makes_no_difference():
    values = rewards(1, missing=0.0)
    values[:, 3] = values[:, 2]
    for gamma in (0.5, 3.0):
        torch.testing.assert_close(both(values, gamma)[:, 0], both(values, 0.0)[:, 0])
        assert not torch.allclose(both(values, gamma)[:, 1], both(values, 0.0)[:, 1])
    values = rewards(2)
    torch.testing.assert_close(both(values, 0.7).flip(1), both(values[:, [2, 3, 0, 1]], 0.7))


def test_a_robust_centre_is_of_verdicts_the_more_frequent_one():
    # Three of ten are right: the mean is 0.3, and the robust centre 0, so that nobody is ever pushed down
    values = torch.zeros(10, 4, dtype=torch.float64)
    values[:3, [1, 3]] = 1.0
    values[:, 2] = values[:, 3]
    settings = {"gamma": 0.5, "loc": "are", "shape": 0.5}
    with pytest.warns(UserWarning, match="the more frequent one; use loc=mean"):
        found = dacr(**settings)(values, rollout([0] * 10))
    assert found[3:].abs().max() < 0.02 and found[:3].min() > 1.9
    assert dacr(gamma=0.5)(values, rollout([0] * 10))[3:].max() < -0.5


def test_the_estimator_is_the_policys_and_refuses_what_makes_no_sense():
    values = rewards(5)
    torch.testing.assert_close(dacr([1.0] * 4, gamma=0.5)(values, rollout(GROUP)), both(values, 0.5)[:, 0])
    assert not dacr(gamma=0.5, loc="are", shape=0.5)(torch.ones(4, 4), rollout([0] * 4)).any()
    for settings, message in (
        ({"loc": "are"}, "loc=are needs a shape"),
        ({"loc": "median"}, "loc is mean or are, got 'median'"),
        ({"weights": [1.0, 0.0, 1.0, 1.0]}, "weight 1, got"),
    ):
        with pytest.raises(ValueError, match=message):
            dacr(gamma=0.5, **settings)
    with pytest.raises(ValueError, match="answer, rewrite, partner_answer, partner_rewrite, got 2"):
        dacr(gamma=0.5)(torch.ones(4, 2), rollout([0] * 4))
    with pytest.raises(ValueError, match="needs two agents, got 3"):
        adv_dacr(
            torch.ones(2, 3), torch.ones(2, 3), torch.tensor([0, 0]), 1.0, location_function("mean", None, 1, 1e-3)
        )


CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.mark.parametrize("template", [models.TEMPLATE, CHATML, PLAIN_TEMPLATE], ids=["toy", "chatml", "plain"])
@pytest.mark.parametrize("cut", [False, True], ids=["ended", "cut off"])
def test_a_conversation_in_tokens_is_the_conversation_in_turns(base, template, cut):
    """Nothing is said twice and nothing left out, whether an answer ended by itself or was cut off."""
    words = models.tokenizer()
    words.chat_template = template
    who, prompt = decoding_model(base, words), user_turn("tell me about bees")
    side = Side(who, [prompt], max_new_tokens=4 if cut else 40)
    (answer,) = side.generate(
        [next(seed for seed in range(50) if ends(Side(who, [prompt], max_new_tokens=40), seed, words))]
    )
    before = [*side.tokens[0]]
    side.append_turn(["honey and wax"])
    told = side.tokens[0][len(before) :]
    turns = (*prompt, Message(role="assistant", content=answer), Message(role="user", content="honey and wax"))
    wrote = [token for token in before if token not in words.convert_tokens_to_ids([*models.ROLE_TOKENS])]
    if template == PLAIN_TEMPLATE and not cut:  # it closes no turn, so that the end stands where it was drawn alone
        assert wrote.pop() == words.eos_token_id
    assert who.encoder.encode_prompt(prompt) + wrote + told == who.encoder.encode_prompt(turns)
    assert side.mask[0] == [1] * len(before) + [0] * len(told) and (before[-1] == words.eos_token_id) != cut


def ends(side: Side, seed: int, words) -> bool:
    """Whether an answer of more than four tokens ends by itself."""
    side.generate([seed])
    return len(side.tokens[0]) > 4 and side.tokens[0][-1] == words.eos_token_id


def trainer_of(base, words, listening=True):
    """A trainer whose reward keeps in `heard` what the two say."""
    heard = []
    source = SimpleNamespace(**({"listen": heard.append} if listening else {}))
    sources = SimpleNamespace(sources={"talk": source})
    return stand_in_trainer(base, words, max_completion_length=12, sources=sources, heard=heard)


def test_a_talk_is_its_plain_loop(base, words, monkeypatch):
    """Six turns a row, each by whoever is shown its own conversation so far; the policy's are one completion."""
    who, end = decoding_model(base, words), words.eos_token_id
    monkeypatch.setattr(search, "open_partner", lambda source, **options: decoding_model(base, words))
    prompts = [list(one) for one in garden.prompts(3, 0)]
    trainer = trainer_of(base, words)
    found = search.dacr(partner="any", longest=9, seed=7)(prompts, trainer)
    (talk,) = trainer.heard
    for place, prompt in enumerate(map(tuple, prompts)):
        rows, masks, texts = ([], []), ([], []), ([], [])
        for number, request in enumerate((search.CRITICISE, search.REWRITE, None)):
            for which, longest in ((0, 12), (1, 9)):
                seed = derived(7, 4, 6 * place + 2 * number + which)
                asked = Request(prompt, prefix=tuple(rows[which]), seed=seed, max_new_tokens=longest)
                (said,) = decode(SeparateModels(who), [asked])
                rows[which].extend(said.tokens)
                masks[which].extend([1] * len(said.tokens))
                texts[which].append(said.text)
            for which in (0, 1) if request else ():
                told = f"</s> <|user|> {request.format(texts[1 - which][-1])} </s> <|assistant|>"
                ids = words(told, add_special_tokens=False).input_ids[int(rows[which][-1] == end) :]
                rows[which].extend(ids)
                masks[which].extend([0] * len(ids))
        for number, column in enumerate((talk.completions, talk.critiques, talk.rewrites)):
            assert [one[place] for one in column] == [one[number] for one in texts]
        assert found["completion_ids"][place] == rows[0] and found["env_mask"][place] == masks[0]
    assert found["prompt_ids"] == trainer._tokenize_prompts(prompts)[0] and talk.prompts == tuple(map(tuple, prompts))
    assert len({*talk.completions[0]}) == 3 and talk.completions[0] != talk.completions[1]


def test_a_talk_that_nobody_rates_is_refused(base, words, monkeypatch):
    monkeypatch.setattr(search, "open_partner", lambda source, **options: decoding_model(base, words))
    with pytest.raises(UsageError, match=r"no reward source rates the dialogue; give --reward 'dacr\(reward=SOURCE\)'"):
        search.dacr(partner="any", longest=4)([list(garden.prompts(1, 0)[0])], trainer_of(base, words, listening=False))
    with pytest.raises(ValueError, match="at least 1 token, got longest=0"):
        search.dacr(partner="any", longest=0)
