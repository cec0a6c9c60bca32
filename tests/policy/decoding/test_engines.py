"""What each engine runs, and what it refuses."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.decoding.engines import SeparateModels, SharedBackbone, decoding_model, shared_vocabulary
from rewardlab.policy.decoding.guided import decode, stream
from rewardlab.policy.decoding.requests import Request
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import user_turn
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

EVEN = {"helpful": 0.5, "harmless": 0.5}
NAMES = ("a", "b", "c", "d", "e")


def requests(preference, number=3, **settings):
    settings = {"max_new_tokens": 7, "ignore_eos": True} | settings
    return [Request(prompt, preference, seed=seed, **settings) for seed, prompt in enumerate(garden.prompts(number, 0))]


@pytest.mark.parametrize("k", [1, 5])
def test_a_token_costs_one_forward_of_base_and_guide_for_any_number_of_objectives(make_guide, k):
    engine = SharedBackbone(make_guide(objectives=NAMES[:k]))
    decode(engine, requests(dict.fromkeys(NAMES[:k], 1 / k)))
    assert (engine.counters.forwards, engine.counters.base, engine.counters.guide) == (7, 7, 7)


@pytest.mark.parametrize("k", [1, 3])
def test_a_guide_per_objective_costs_a_forward_each(base, words, make_guide, k):
    guides = {name: make_guide("lora", (name,), seed=place) for place, name in enumerate(NAMES[:k])}
    engine = SeparateModels(decoding_model(base, words), guides)
    decode(engine, requests(dict.fromkeys(NAMES[:k], 1 / k)))
    assert (engine.counters.forwards, engine.counters.base, engine.counters.guide) == (7 * (1 + k), 7, 7 * k)


def test_modulations_are_computed_once_per_batch(make_guide, monkeypatch):
    guide = make_guide()
    calls, compute = [], guide.adapter.modulations
    monkeypatch.setattr(guide.adapter, "modulations", lambda alpha: calls.append(len(alpha)) or compute(alpha))
    decode(SharedBackbone(guide), requests(EVEN))
    assert calls == [3]


def test_guides_by_objective_count_by_weight_and_share_and_run_only_where_they_count(base, words, make_guide):
    guides = {name: make_guide("lora", (name,), seed=place) for place, name in enumerate(("helpful", "harmless"))}
    shares = {"helpful": 0.25, "harmless": 0.75}
    (answer,) = decode(
        SeparateModels(decoding_model(base, words), guides), requests(shares, 1, weight=2.0, temperature=0.0)
    )
    written = torch.tensor(
        [words.apply_chat_template(list(garden.prompts(1, 0)[0]), add_generation_prompt=True, return_dict=False)]
    )
    with torch.no_grad():
        mixed = base(written).logits[0, -1].log_softmax(0)
        for name, guide in guides.items():
            mixed += 2.0 * shares[name] * guide.adapter.model(written).logits[0, -1].log_softmax(0)
    assert answer.tokens[0] == mixed.argmax()
    assert answer.mixed[0] == pytest.approx(float(mixed.log_softmax(0).max()), abs=1e-5)
    assert {*answer.guides} == {"helpful", "harmless"} and not any(np.isnan(v).any() for v in answer.guides.values())
    guides = {name: make_guide("lora", (name,), seed=place) for place, name in enumerate(("helpful", "harmless"))}
    engine = SeparateModels(decoding_model(base, words), guides)
    alone = decode(engine, requests({"helpful": 1.0, "harmless": 0.0}))
    assert engine.counters.guide == 7 and engine.counters.forwards == 14
    both = decode(engine, [*requests({"helpful": 1.0, "harmless": 0.0}), *requests(EVEN)])
    assert [one.tokens for one in alone] == [one.tokens for one in both[:3]]
    for answer in (*alone, *both[:3]):
        assert np.isnan(answer.guides["harmless"]).all() and not np.isnan(answer.guides["helpful"]).any()


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_context_of_a_guide_ends_a_completion_alone_as_beside_one_that_it_guides(base, words, weight):
    other = copy.deepcopy(base)
    engine = SeparateModels(decoding_model(base, words), decoding_model(other, words))
    (first, second) = requests(None, 2)
    other.config.max_position_embeddings = len(engine.base.encoder.encode_prompt(first.prompt)) + 4
    first, second = replace(first, weight=weight), replace(second, max_new_tokens=1)
    alone, beside = decode(engine, [first])[0], decode(engine, [first, second])[0]
    assert alone.tokens == beside.tokens and len(alone.tokens) == 4
    assert alone.finished == beside.finished == "context"


def test_any_language_model_may_be_a_guide_and_a_negative_weight_avoids_it(base, words):
    other = decoding_model(models.causal_lm(words, "llama", seed=9).eval(), words)
    engine = SeparateModels(decoding_model(base, words), other)
    near, far = (decode(engine, requests(None, 8, weight=weight, max_new_tokens=20)) for weight in (2.0, -2.0))
    likes = [np.mean(np.concatenate([one.guides["guide"] for one in answers])) for answers in (near, far)]
    assert likes[0] > likes[1]


def test_a_guides_own_fixed_preference_serves_where_a_request_has_none(words, make_guide):
    guide = make_guide()
    fixed = decoding_model(guide.adapter.model.base_model.model, words, guide.adapter, preference=EVEN)
    engine = SharedBackbone(fixed)
    first, second = decode(engine, requests(None)), decode(engine, requests(EVEN))
    assert [one.tokens for one in first] == [one.tokens for one in second]


def swapped(words, first, second):
    state = json.loads(words._tokenizer.to_str())
    ids = state["model"]["vocab"]
    ids[first], ids[second] = ids[second], ids[first]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        **{f"{name}_token": getattr(words, f"{name}_token") for name in ("pad", "unk", "bos", "eos")},
        chat_template=words.chat_template,
    )


def test_another_vocabulary_is_refused_and_padding_rows_and_further_tokens_are_cut_off(base, words, make_guide):
    bees = words.convert_tokens_to_ids("bees")
    other = swapped(words, "bees", "honey")
    with pytest.raises(DataError, match=f"token {bees} is 'bees' in .* and 'honey' in .* need the same vocabulary"):
        SeparateModels(decoding_model(base, words), make_guide(tokenizer=other))
    wide, more = copy.deepcopy(base), copy.deepcopy(words)
    wide.resize_token_embeddings(len(words) + 40, mean_resizing=False)
    with torch.no_grad():
        wide.get_input_embeddings().weight[len(words) :] = 100 * base.get_input_embeddings().weight[:40]
    more.add_special_tokens({"additional_special_tokens": ["<extra>"]}, replace_extra_special_tokens=False)
    assert shared_vocabulary([decoding_model(base, words), decoding_model(wide, more)]) == len(words)
    one, other = (decoding_model(wide, words), decoding_model(base, words))
    plain = decode(SeparateModels(other), requests(None, temperature=0.0))
    assert [a.tokens for a in decode(SeparateModels(one), requests(None, temperature=0.0))] == [a.tokens for a in plain]
    guided = decode(SeparateModels(one, make_guide()), requests(EVEN))
    assert max(token for answer in guided for token in answer.tokens) < len(words)


def test_preferences_prompts_and_engines_that_make_no_sense_are_refused(base, words, make_guide):
    engine = SharedBackbone(make_guide())
    for preference, sentence in [
        (None, "a preference is missing; give shares of helpful, harmless"),
        ({"helpful": 1.0}, "has no share for harmless"),
        ({"helpfull": 0.5, "harmless": 0.5}, "no objective 'helpfull' in this model; did you mean 'helpful'"),
        ({"helpful": 0.9, "harmless": 0.9}, "sums to 1.8"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            decode(engine, requests(preference))
    with pytest.raises(UsageError, match="the guide takes no preference, got .* remove the preference"):
        decode(SeparateModels(decoding_model(base, words), make_guide("lora", ("helpful",))), requests(EVEN))
    by_objective = SeparateModels(decoding_model(base, words), {"helpful": make_guide("lora", ("helpful",))})
    with pytest.raises(UsageError, match="a preference is missing; give shares of helpful"):
        decode(by_objective, requests(None))
    long = Request(user_turn("bees " * 300), EVEN)
    with pytest.raises(DataError, match="has 30[0-9] tokens, but .* a context of 256; shorten it to at most 255"):
        decode(SharedBackbone(make_guide()), [long])


def test_engines_that_make_no_sense_are_refused_and_one_serves_one_batch_at_a_time(base, words, make_guide):
    guide = make_guide(from_layer=1)
    with pytest.raises(UsageError, match="needs a guide with an adapter; use SeparateModels for two models"):
        SharedBackbone(decoding_model(base, words))
    with pytest.raises(UsageError, match="the guide 'helpful' is conditioned on a preference"):
        SeparateModels(decoding_model(base, words), {"helpful": guide})
    with pytest.raises(UsageError, match="base and guide are the same model; use SharedBackbone"):
        decode(SeparateModels(guide, guide), requests(EVEN))
    other = copy.deepcopy(words)
    other.chat_template = "<|system|> please </s> " + words.chat_template
    late = SharedBackbone(guide, encoder=decoding_model(base, other).encoder, late=True)
    with pytest.raises(UsageError, match="with late=True, base and guide must read the same prompt"):
        decode(late, requests(EVEN))
    engine = SharedBackbone(make_guide())
    first = stream(engine, requests(EVEN))
    next(first)
    with pytest.raises(UsageError, match="the model is decoding another batch"):
        decode(engine, requests(EVEN))
    first.close()
    assert len(decode(engine, requests(EVEN))) == 3


def test_the_model_is_left_as_it_was(make_guide):
    guide = make_guide()
    guide.adapter.set_preference(EVEN)
    tokens = torch.tensor([[5, 9, 21]])
    with torch.no_grad():
        before = guide.adapter.model(tokens).logits
        for late in (False, True):
            decode(SharedBackbone(guide, late=late), requests(EVEN))
            assert torch.equal(guide.adapter.model(tokens).logits, before)
