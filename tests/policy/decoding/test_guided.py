"""Guided decoding against its definition: whole prefixes through whole models, one request after the other."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.decoding import guided
from rewardlab.policy.decoding.engines import SeparateModels, SharedBackbone, decoding_model
from rewardlab.policy.decoding.guided import decode, stream
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.decoding.static.steps import GRAPH_FROM
from rewardlab.rm.types import user_turn

LEAN = {"helpful": 0.8, "harmless": 0.2}


def requests(number, seed=0, preference=LEAN, **settings):
    """Requests with seeds and, where there is a preference, shares of their own."""
    shares = np.random.default_rng(seed).random(number).round(2).tolist()
    rows = enumerate(zip(garden.prompts(number, seed), shares, strict=True), 1000 * seed)
    return [
        Request(prompt, preference and {"helpful": share, "harmless": 1 - share},
                **{"seed": row, "max_new_tokens": 24} | settings)
        for row, (prompt, share) in rows
    ]  # fmt: skip


def prompt_ids(words, request):
    return words.apply_chat_template(list(request.prompt), add_generation_prompt=True, return_dict=False)


@torch.no_grad()
def mixture(base, guide, words, request, written, guide_words=None):
    """log π̃ after `written`, from the whole prefix and without a cache."""
    adapter = guide.adapter
    if adapter.settings.follows_preference:
        adapter.set_preference(request.preference)
    own, other = (
        torch.tensor([[*prompt_ids(tokenizer, request), *written]]) for tokenizer in (words, guide_words or words)
    )
    z, arm = base(own).logits[0, -1], adapter.model(other).logits[0, -1]
    return (z.log_softmax(0) + request.weight * arm.log_softmax(0)).log_softmax(0), arm.log_softmax(0), z.log_softmax(0)


def assert_same_completions(first, second, tolerance=2e-4):
    for one, other in zip(first, second, strict=True):
        assert one.tokens == other.tokens and one.text == other.text and one.finished == other.finished
        for name in ("base", "mixed", "sampled", "entropy", "kl"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=tolerance)
        for name, values in one.guides.items():
            np.testing.assert_allclose(values, other.guides[name], atol=tolerance)


@pytest.mark.parametrize("kind", ["moslora", "pblora", "lora"])
def test_tokens_and_logprobs_are_those_of_whole_prefixes_without_a_cache(base, words, make_guide, kind):
    objectives = ("helpful",) if kind == "lora" else ("helpful", "harmless")
    guide = make_guide(kind, objectives)
    asked = requests(4, temperature=0.0, weight=1.5, preference=None if kind == "lora" else LEAN)
    for request, answer in zip(asked, decode(SharedBackbone(guide), asked), strict=True):
        for step, token in enumerate(answer.tokens):
            mixed, arm, own = mixture(base, guide, words, request, answer.tokens[:step])
            assert token == mixed.argmax()
            found = (answer.mixed[step], answer.guides["guide"][step], answer.base[step], answer.entropy[step])
            expected = (mixed[token], arm[token], own[token], -(mixed.exp() * mixed).sum())
            np.testing.assert_allclose(found, [float(one) for one in expected], atol=1e-4)
        assert answer.prompt_tokens == len(prompt_ids(words, request))


def test_with_weight_0_the_base_model_writes_as_generate_does(base, words, make_guide):
    asked = requests(6, temperature=0.0, weight=0.0)
    engine = SharedBackbone(make_guide())
    for request, answer in zip(asked, decode(engine, asked), strict=True):
        prompt = torch.tensor([prompt_ids(words, request)])
        expected = base.generate(prompt, do_sample=False, max_new_tokens=24, attention_mask=torch.ones_like(prompt))
        assert answer.tokens == tuple(expected[0, prompt.shape[1] :].tolist())
        assert np.isnan(answer.guides["guide"]).all() and (answer.kl == 0).all()
    assert engine.counters.guide == 0 and engine.counters.forwards == max(
        len(one.tokens) for one in decode(engine, asked)
    )


def test_plain_decoding_is_weight_0_and_an_untrained_guide_sharpens_the_base_to_its_square(base, words, make_guide):
    asked = requests(6, weight=0.0)
    plain = decode(SeparateModels(decoding_model(base, words)), asked)
    without = [replace(one, guides={"guide": np.full(len(one.tokens), np.nan)}) for one in plain]
    assert_same_completions(decode(SharedBackbone(make_guide()), asked), without)
    engine = SharedBackbone(make_guide(size=0.0))
    asked = requests(6, weight=1.0)
    half = requests(6, weight=0.0, temperature=0.5)
    assert [one.tokens for one in decode(engine, asked)] == [one.tokens for one in decode(engine, half)]


def test_base_and_guide_may_have_different_templates(base, words, make_guide):
    other = copy.deepcopy(words)
    other.chat_template = "<|system|> please </s> " + words.chat_template
    guide = make_guide(tokenizer=other)
    asked = requests(3, temperature=0.0)
    answers = decode(SeparateModels(decoding_model(base, words), guide), asked)
    assert_same_completions(decode(SharedBackbone(guide, encoder=decoding_model(base, words).encoder), asked), answers)
    for request, answer in zip(asked, answers, strict=True):
        for step, token in enumerate(answer.tokens):
            assert token == mixture(base, guide, words, request, answer.tokens[:step], other)[0].argmax()


def test_a_shared_backbone_writes_what_two_models_write(base, words, make_guide):
    guide, settings = make_guide(), {"max_new_tokens": 32, "ignore_eos": True}
    asked = [*requests(20, temperature=0.0, **settings), *requests(20, seed=1, **settings)]
    shared = decode(SharedBackbone(guide), asked)
    apart = decode(SeparateModels(decoding_model(base, words), guide), asked)
    assert all(len(answer.tokens) == 32 for answer in shared)
    assert len({token for answer in shared for token in answer.tokens}) >= 20
    assert np.mean([answer.entropy.mean() for answer in shared]) >= 0.5
    assert sum(one.tokens != other.tokens for one, other in zip(shared, apart, strict=True)) <= 1, "a draw by rounding"


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_late_branching_writes_what_the_full_batch_writes(request, make_guide, architecture):
    guide = make_guide(on=request.getfixturevalue(architecture), from_layer=1, size=0.3)
    asked = requests(6)
    full, late = SharedBackbone(guide), SharedBackbone(guide, late=True)
    assert_same_completions(decode(full, asked), decode(late, asked))
    assert_same_completions(decode(full, asked[:1]), decode(late, asked[:1]))
    assert late.counters.row_tokens * 2 == full.counters.row_tokens


def test_an_answer_depends_neither_on_its_batch_nor_on_its_place_there(make_guide):
    engine = SharedBackbone(make_guide())
    long = Request(user_turn("bees and roses " * 40 + "tell me about ponds"), LEAN, seed=4, max_new_tokens=24)
    asked = [*requests(3), long, *requests(2, seed=1, temperature=0.0)]
    asked += [*requests(2, seed=2, top_k=5, top_p=0.9, min_p=0.01), *requests(1, seed=3, weight=0.0, max_new_tokens=3)]
    together = decode(engine, asked)
    assert_same_completions(together, decode(engine, asked[::-1])[::-1])
    assert_same_completions(together, decode(engine, asked, batch_size=5))
    assert_same_completions(together, [decode(engine, [one])[0] for one in asked])


def test_finished_rows_change_nothing_and_the_batch_ends_with_the_last(make_guide):
    engine = SharedBackbone(make_guide())
    asked = requests(10, max_new_tokens=40)
    answers = decode(engine, asked)
    lengths = {len(answer.tokens) for answer in answers}
    assert len(lengths) > 3 and {answer.finished for answer in answers} >= {"eos"}
    assert engine.counters.forwards == max(lengths)
    endless = requests(10, max_new_tokens=40, ignore_eos=True)
    for answer, longer in zip(answers, decode(engine, endless), strict=True):
        assert longer.tokens[: len(answer.tokens)] == answer.tokens and len(longer.tokens) == 40


def test_how_often_the_device_is_asked_changes_no_answer(make_guide, monkeypatch):
    engine = SharedBackbone(make_guide())
    asked = [*requests(6, max_new_tokens=40), *requests(6, seed=1, max_new_tokens=23, stop=("the",))]
    often = decode(engine, asked)
    monkeypatch.setitem(guided.POLL, "cpu", 16)
    assert_same_completions(often, decode(engine, asked), tolerance=0)


def test_a_full_context_ends_the_answer_and_says_so(make_guide):
    guide = make_guide()
    endless = Request(user_turn("bees " * 230), LEAN, max_new_tokens=2000, ignore_eos=True)
    asked = [endless, replace(endless, seed=1), *requests(1, seed=2, max_new_tokens=5, ignore_eos=True)]
    first, second, short = decode(SharedBackbone(guide), asked)
    for answer in (first, second):
        assert answer.finished == "context" and answer.prompt_tokens + len(answer.tokens) == 256
    assert short.finished == "length" and len(short.tokens) == 5


def test_a_stop_string_ends_an_answer_and_nobody_elses(make_guide):
    engine = SharedBackbone(make_guide())
    free = decode(engine, requests(8, max_new_tokens=30))
    word = free[0].text.split()[2]
    stopped = decode(engine, requests(8, max_new_tokens=30, stop=(word,)))
    assert stopped[0].finished == "stop" and stopped[0].text == free[0].text[: free[0].text.index(word)]
    for one, other in zip(stopped, free, strict=True):
        assert other.tokens[: len(one.tokens)] == one.tokens
        assert one.text == other.text.partition(word)[0]
        assert (one.finished == "stop") == (word in other.text)


def test_pieces_stream_in_and_add_up(make_guide):
    engine = SharedBackbone(make_guide())
    asked = requests(5)
    answers = decode(engine, asked)
    for pieces in (list(stream(engine, asked)), found := []):
        if pieces is found:
            decode(engine, asked, on_token=found.append, batch_size=2)
        for row, answer in enumerate(answers):
            own = [piece for piece in pieces if piece.row == row]
            assert "".join(piece.text for piece in own) == answer.text
            assert sum((piece.tokens for piece in own), ()) == answer.tokens
            assert [piece.completion is None for piece in own] == [True] * (len(own) - 1) + [False]
    assert decode(SharedBackbone(make_guide()), []) == []


@pytest.mark.gpu
@pytest.mark.parametrize("late", [False, True])
def test_a_gpu_writes_what_the_cpu_writes(make_guide, late):
    guide = make_guide(from_layer=1)
    asked = [
        *requests(6, temperature=0.0, max_new_tokens=GRAPH_FROM + 8),
        *requests(6, seed=1, stop=("the",)),
        *requests(6, seed=2, top_p=0.9),
    ]
    here = decode(SharedBackbone(guide, late=late), asked)
    guide.adapter.model.cuda()
    assert_same_completions(here, decode(SharedBackbone(guide, late=late), asked), tolerance=2e-3)
