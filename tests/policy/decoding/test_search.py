"""Search ranks what decoding writes: by hand with a made-up score, and with the garden's true reward."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.decoding.engines import SeparateModels, SharedBackbone, decoding_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import DecodedCompletion, Request
from rewardlab.policy.decoding.search import Candidate, best_of_n, by_reward_model, derived, mean_logprob, step_beam
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, user_turn
from transformers import AutoModelForCausalLM

EVEN = {"helpful": 0.5, "harmless": 0.5}
BEES = user_turn("tell me about bees")
EOS = 3
FACTS = ("base", "mixed", "sampled", "entropy", "kl")


@pytest.fixture(scope="module")
def engine(make_guide):
    return SharedBackbone(make_guide())


@pytest.fixture(scope="module")
def plain(base, words):
    return SeparateModels(decoding_model(base, words))


def requests(number, preference=None, **settings):
    settings = {"max_new_tokens": 30} | settings
    return [
        Request(prompt, preference, seed=10 + seed, **settings) for seed, prompt in enumerate(garden.prompts(number, 0))
    ]


def made_up(tokens, mixed=(), text=""):
    values = np.array(mixed, float)
    return DecodedCompletion(text, tuple(tokens), "eos", 3, values, {}, *[values] * 4)


def test_the_mean_logprob_is_per_token_and_seeds_do_not_collide():
    short, long = made_up([1, 2], [-1.0, -3.0]), replace(made_up([1, 2, 3]), mixed=np.array([-1.0, -1.0, -1.0]))
    candidates = [Candidate(BEES, short), Candidate(BEES, long)]
    assert mean_logprob()(candidates).tolist() == [-2.0, -1.0]
    assert mean_logprob("base")(candidates[:1]).tolist() == [-2.0]
    seeds = {derived(seed, step, sample) for seed in range(5) for step in range(5) for sample in range(20)}
    assert len(seeds) == 500 and max(seeds) < 2**63
    assert derived(9, 0, 0) == 9


def test_a_reward_model_scores_by_objective_or_by_preference_and_needs_no_other_score():
    model = garden.gold(("helpful", "harmless"))
    candidates = [Candidate(BEES, made_up([1], [0], text)) for text in ("honey and smoke", "ask carefully")]
    helpful, harmless = model.rate([Example(one.prompt, one.completion.text) for one in candidates]).T
    assert by_reward_model(model, objective="harmless")(candidates).tolist() == harmless.tolist()
    mixed = by_reward_model(model, preference={"harmless": 0.25, "helpful": 0.75})(candidates)
    np.testing.assert_allclose(mixed, 0.75 * helpful + 0.25 * harmless)
    single = by_reward_model(garden.gold(("helpful",)))
    assert single(candidates).tolist() == helpful.tolist()
    for settings, sentence in [
        ({}, "score by one of them, or by a preference"),
        ({"objective": "helpfull"}, "no objective 'helpfull' in this model; did you mean 'helpful'"),
        ({"objective": "helpful", "preference": EVEN}, "by either an objective or a preference"),
        ({"preference": {"helpful": 1.0}}, "has no share for harmless"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            by_reward_model(model, **settings)

    class Half:
        contract = garden.gold(("helpful", "harmless")).contract

        def rate(self, examples):
            return np.array([[1.0, np.nan]] * len(examples))

    assert by_reward_model(Half(), objective="helpful")([Candidate(BEES, made_up([1]))]).tolist() == [1.0]


def test_best_of_1_is_decode_and_more_samples_contain_fewer(engine):
    asked = requests(4, EVEN)
    found = best_of_n(engine, asked, 1, mean_logprob())
    assert [one.completions[0].tokens for one in found] == [one.tokens for one in decode(engine, asked)]
    assert [one.scores.shape for one in found] == [(1,)] * 4
    asked = requests(3, EVEN)
    for few, many in zip(*(best_of_n(engine, asked, n, mean_logprob(), batch_size=7) for n in (3, 8)), strict=True):
        assert len(few.completions) == 3 and len(many.completions) == 8 and (np.diff(many.scores) <= 0).all()
        assert {one.tokens for one in few.completions} <= {one.tokens for one in many.completions}
        np.testing.assert_allclose(many.scores, [one.mixed.mean() for one in many.completions])


def test_equals_stay_in_the_order_of_sampling_and_what_has_no_score_comes_last(engine):
    (request,) = requests(1, EVEN)
    order = decode(engine, [replace(request, seed=derived(request.seed, 0, sample)) for sample in range(5)])
    seen = []

    def score(candidates):
        seen.extend(candidates)
        return np.array([0.0, np.nan, 1.0, np.nan, 0.0])

    (ranked,) = best_of_n(engine, [request], 5, score)
    assert [one.tokens for one in ranked.completions] == [order[place].tokens for place in (2, 0, 4, 1, 3)]
    assert ranked.unscored == 2 and np.isnan(ranked.scores[3:]).all()
    assert [one.prompt for one in seen] == [request.prompt] * 5


def test_what_makes_no_sense_is_refused(engine):
    with pytest.raises(UsageError, match="n must be at least 1, got 0"):
        best_of_n(engine, requests(1, EVEN), 0, mean_logprob())
    with pytest.raises(UsageError, match=r"one number per candidate, \[2\], got shape \(\)"):
        best_of_n(engine, requests(1, EVEN), 2, lambda candidates: 1.0)
    with pytest.raises(UsageError, match="branches must be at least 1, got 0"):
        step_beam(engine, requests(1, EVEN)[0], good_words, branches=0)
    with pytest.raises(UsageError, match="step_end must be at least 1, got 0"):
        step_beam(engine, requests(1, EVEN)[0], good_words, step_end="")
    assert best_of_n(engine, [], 2, good_words) == []
    for prefix, sentence in (((-1,), "prefix must be a tuple of token ids"), ((10**6,), "ids outside the vocabulary")):
        with pytest.raises(UsageError, match=sentence):
            decode(engine, requests(1, EVEN, prefix=prefix))


def test_a_prefix_goes_on_where_an_answer_was(engine, plain):
    for one, preference in ((engine, EVEN), (plain, None)):
        asked = [*requests(3, preference, temperature=0.0), *requests(3, preference)]
        for size, request, whole in zip((1, 2, 3) * 2, asked, decode(one, asked), strict=True):
            size = min(size, len(whole.tokens) - 1)  # not behind the end
            (rest,) = decode(one, [replace(request, prefix=whole.tokens[:size])])
            assert rest.tokens == whole.tokens[size:] and rest.prompt_tokens == whole.prompt_tokens + size
            for name in FACTS:
                np.testing.assert_allclose(getattr(rest, name), getattr(whole, name)[size:], atol=1e-4)


def chains(scored):
    """A score that remembers what it was asked, round by round."""
    rounds = []

    def score(candidates):
        rounds.append([one.completion for one in candidates])
        return scored(candidates)

    return score, rounds


def good_words(candidates):
    """Distinct words to the point: it never falls as a chain grows."""
    plain, daring = garden.TOPICS["bees"]
    return np.array([float(len({*one.completion.text.split()} & {*plain, *daring})) for one in candidates])


def beam(engine, score=good_words, seed=0, **settings):
    request = Request(BEES, EVEN if engine.guides else None, seed=seed, max_new_tokens=40)
    return step_beam(engine, request, score, **{"step_end": "the"} | settings)


def test_steps_end_where_they_should_and_kept_chains_go_on(engine):
    score, rounds = chains(good_words)
    found = beam(engine, score, beam=2, finished=3)
    assert len(rounds) > 1 and len(rounds[0]) <= 4 and all(len(one) <= 8 for one in rounds)
    for before, after in pairwise(rounds):
        values = good_words([Candidate(BEES, one) for one in before])
        kept = [before[place] for place in np.argsort(-values, kind="stable")[:2]]
        live = {one.tokens for one in kept if one.tokens[-1] != EOS}
        for one in after:
            (parent,) = [tokens for tokens in live if one.tokens[: len(tokens)] == tokens]
            new = one.text.split()[len(parent) :]
            assert "the" not in new[:-1] and (new[-1:] == ["the"] or one.finished == "eos")
    assert len(found.completions) <= 3 and (np.diff(found.scores) <= 0).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_finished_chains_are_whole_and_no_worse_than_the_first_steps_best(engine, seed):
    score, rounds = chains(good_words)
    found = beam(engine, score, seed)
    first = max(good_words([Candidate(BEES, one) for one in rounds[0]]))
    assert found.completions and found.scores[0] >= first and found.unscored == 0
    for answer, value in zip(found.completions, found.scores, strict=True):
        assert answer.finished == "eos" and answer.tokens[-1] == EOS and EOS not in answer.tokens[:-1]
        assert value == good_words([Candidate(BEES, answer)])[0]
        assert {len(getattr(answer, name)) for name in FACTS} == {len(answer.tokens)} == {len(answer.guides["guide"])}


def test_what_is_said_of_a_chain_is_what_one_text_says(base, words, engine):
    answer = beam(engine, max_steps=8).completions[0]
    request = Request(BEES, EVEN)
    adapter = engine.adapter
    adapter.set_preference(EVEN)
    prompt = words.apply_chat_template(list(request.prompt), add_generation_prompt=True, return_dict=False)
    text = torch.tensor([[*prompt, *answer.tokens]])
    with torch.no_grad():
        own, arm = (model(text).logits[0, len(prompt) - 1 : -1].log_softmax(1) for model in (base, adapter.model))
    place = torch.tensor(answer.tokens)[:, None]
    np.testing.assert_allclose(answer.base, own.gather(1, place)[:, 0], atol=1e-4)
    np.testing.assert_allclose(answer.mixed, (own + arm).log_softmax(1).gather(1, place)[:, 0], atol=1e-4)
    assert answer.prompt_tokens == len(prompt) and answer.text == words.decode(answer.tokens, skip_special_tokens=True)


def test_the_same_seed_gives_the_same_chains_and_what_has_no_score_is_kept_last_and_counted(engine):
    one, again, other = (beam(engine, seed=seed, max_steps=3) for seed in (1, 1, 2))
    assert [answer.tokens for answer in one.completions] == [answer.tokens for answer in again.completions]
    assert [answer.tokens for answer in one.completions] != [answer.tokens for answer in other.completions]
    found = beam(engine, lambda candidates: np.full(len(candidates), np.nan), max_steps=3)
    assert found.completions and np.isnan(found.scores).all() and found.unscored >= 4


def test_equal_chains_count_once_and_greedy_is_one_chain(engine):
    score, rounds = chains(mean_logprob())
    request = Request(BEES, EVEN, temperature=0.0, max_new_tokens=40)
    found = step_beam(engine, request, score, step_end="the")
    assert [len(one) for one in rounds] == [1] * len(rounds)
    assert [one.tokens for one in found.completions] == [one.tokens for one in decode(engine, [request])]


def test_an_equal_chain_stands_where_it_was_first_sampled(engine):
    score, rounds = chains(mean_logprob())
    request = Request(BEES, EVEN, max_new_tokens=1)
    step_beam(engine, request, score, beam=8, step_end="the")
    samples = decode(engine, [replace(request, seed=derived(request.seed, 0, index)) for index in range(16)])
    distinct = dict.fromkeys(one.tokens for one in samples)
    assert len(distinct) < 16 and [one.tokens for one in rounds[0]] == [*distinct]


def test_chains_that_no_limit_let_finish_come_back_as_cut(engine):
    for settings, limits in (({"max_steps": 1}, {"length"}), ({}, {"length"})):
        request = Request(BEES, EVEN, seed=1, max_new_tokens=6, ignore_eos=True)
        found = step_beam(engine, request, good_words, step_end="the", **settings)
        assert {one.finished for one in found.completions} == limits
        assert all(len(one.tokens) <= 6 for one in found.completions)
    endless = Request(user_turn("bees " * 230), EVEN, max_new_tokens=2000, ignore_eos=True)
    found = step_beam(engine, endless, good_words, beam=1, step_end="venom stings venom")
    (answer,) = found.completions
    assert answer.finished == "context" and answer.prompt_tokens + len(answer.tokens) == 256


def only(model, ids):
    """The model with all logits but a few pushed far down."""

    def narrow(_module, _inputs, logits):
        return logits.index_fill(-1, torch.tensor(ids), 100.0)

    model.lm_head.register_forward_hook(narrow)
    return model


def test_a_stop_string_finishes_a_chain_even_across_two_steps():
    """A model that can say three tokens only: the marker begins with the blank line that ends a step."""
    tokenizer = small_tokenizer(["a b c\n\nend plain words"], vocabulary=300)
    model = AutoModelForCausalLM.from_config(small_config(tokenizer, hidden=16, layers=1, heads=2)).float().eval()
    ids = [*tokenizer("a\ne").input_ids]
    assert len(ids) == 3
    speaking = SeparateModels(decoding_model(only(model, ids), tokenizer))
    request = Request(BEES, stop=("\n\ne",), max_new_tokens=200)
    found = step_beam(speaking, request, mean_logprob(), finished=1)
    (answer,) = found.completions
    assert answer.finished == "stop" and "\n\ne" not in answer.text
    assert tokenizer.decode(answer.tokens) == answer.text + "\n\ne"
