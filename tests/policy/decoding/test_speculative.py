"""Speculative decoding draws what plain guided decoding draws: by hand, by counting, token by token when greedy."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.decoding.engines import SeparateModels, decoding_model
from rewardlab.policy.decoding.guided import CompletionReader, decode
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.decoding.speculative import (
    Generation,
    accepted,
    draw,
    probabilities,
    residual,
    speculate,
    uniforms,
)
from rewardlab.policy.decoding.static.steps import Logits
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn
from scipy.stats import chisquare
from transformers import AutoConfig, AutoModelForCausalLM

from tests.policy.decoding.test_guided import prompt_ids, requests

BEES = user_turn("tell me about bees")


@pytest.fixture(scope="module")
def small(words):
    """A quarter of the base's width and one layer, trained for a shorter time."""
    torch.manual_seed(11)
    config = small_config(words, hidden=32, layers=1, heads=2, positions=256)
    model = AutoModelForCausalLM.from_config(config).float()
    models.pretrain(model, words, garden.supervised_examples(1000, seed=0), steps=60, batch_size=32)
    return model


@pytest.fixture(scope="module")
def big(base, words):
    return decoding_model(base, words)


@pytest.fixture(scope="module")
def guide(small, make_guide):
    return make_guide(on=small)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_token_is_kept_with_the_ratio_of_target_to_draft_and_residuals_are_drawn_from():
    p, q = rows([0.2, 0.8], [0.2, 0.8]), rows([0.8, 0.2], [0.8, 0.2])
    for numbers, expected in [((0.24, 0.24), 2), ((0.24, 0.26), 1), ((0.26, 0.1), 0)]:
        assert accepted(p, q, [0, 0], torch.tensor(numbers)) == expected  # 0.2 / 0.8 = 0.25
    assert accepted(p, q, [1, 0], torch.tensor([0.999, 0.24])) == 2  # more likely in the target: always kept
    torch.testing.assert_close(residual(*rows([0.5, 0.3, 0.2], [0.7, 0.2, 0.1])), rows(0.0, 0.1, 0.1))
    same = rows(0.5, 0.5)
    assert residual(same, same) is same
    mass = rows(0.0, 1.0, 0.0, 3.0, 0.0)
    assert [draw(mass, number) for number in (1e-10, 0.24, 0.26, 1 - 1e-10)] == [1, 1, 3, 3]
    assert torch.equal(uniforms(5, 0, 6)[:, 2:4], uniforms(5, 2, 2))
    assert len(uniforms(5, 0, 6).unique()) == 18
    assert not torch.equal(uniforms(5, 0, 1), uniforms(6, 0, 1))


def test_probabilities_are_a_softmax_a_truncated_one_or_a_point():
    u = rows([0.0, 1.0, 2.0]).log1p().float()  # 1 : 2 : 3
    for settings, expected in [
        ({}, [1 / 6, 2 / 6, 3 / 6]),
        ({"temperature": 0.5}, [1 / 14, 4 / 14, 9 / 14]),
        ({"top_k": 2}, [0, 0.4, 0.6]),
        ({"top_p": 0.4}, [0, 0, 1]),
        ({"min_p": 0.5}, [0, 0.4, 0.6]),
        ({"temperature": 0.0}, [0, 0, 1]),
    ]:
        torch.testing.assert_close(probabilities(u, Request(BEES, **settings)), rows(expected), atol=1e-6, rtol=0)


class Table:
    """Logits that depend on the token before, [M, states, V], in place of a model."""

    def __init__(self, logits):
        self.logits, self.device, self.forwards = logits, torch.device("cpu"), 0

    def read(self, answer, last):
        self.forwards += 1
        logits = self.logits[:, ([self.logits.shape[1] - 1, *answer])[-last:]]
        return Logits(logits[0], logits[1:].transpose(0, 1))

    def rewind(self, length):
        pass


def tables(vocabulary, disagree):
    """Big, small and guide."""
    random = torch.Generator().manual_seed(1)
    big, other, arm = (torch.randn(vocabulary + 1, vocabulary, generator=random) for _ in range(3))
    return big, -big if disagree else big + other, arm


def count(words, big, small, arm, *, number, draft, **settings):
    """How often each sequence was written, and the share of drafts that were kept."""
    vocabulary, length = big.shape[1], settings.pop("length", 3)
    found, drafted, kept = np.zeros((vocabulary,) * length), 0, 0
    for seed in range(number):
        request = Request(BEES, seed=seed, max_new_tokens=length, ignore_eos=True, **settings)
        reads = [Table(big[None]), Table(torch.stack([small, arm][: 1 + (request.weight != 0)]))]
        reader = CompletionReader(request, words, frozenset(), 100)
        answer, counts = Generation(reader, *reads, frozenset(), draft).finish(1)
        found[answer.tokens] += 1
        drafted, kept = drafted + counts.drafted, kept + counts.accepted
    return found, kept / drafted


def expected(big, arm, length=3, **settings):
    """The chance of each sequence, enumerated."""
    request = Request(BEES, **settings)
    logs = (big.double() + request.weight * arm.double()).log_softmax(1)
    p = probabilities(logs, request).numpy()
    chances = np.zeros((p.shape[1],) * length)
    for sequence in product(range(p.shape[1]), repeat=length):
        chances[sequence] = np.prod(
            [p[before, token] for before, token in zip((-1, *sequence), sequence, strict=False)]
        )
    return chances


def p_value(found, chances):
    """Chi-square over sequences; those expected fewer than 5 times count as one."""
    number = found.sum()
    assert chances.sum() == pytest.approx(1) and not found[chances == 0].any()
    rare = chances * number < 5
    observed, wanted = ([*values[~rare], values[rare].sum()] for values in (found, chances / chances.sum() * number))
    if wanted[-1] < 1e-9:
        observed, wanted = observed[:-1], wanted[:-1]
    assert len(wanted) > 5
    return chisquare(observed, wanted).pvalue


CASES = {
    "one draft": {"draft": 1},
    "four drafts": {"draft": 4},
    "big and small disagree": {"draft": 4, "disagree": True},
    "guide avoided": {"draft": 2, "weight": -1.0},
    "cool and truncated": {"draft": 2, "temperature": 0.7, "top_k": 3, "top_p": 0.95},
}


@pytest.mark.parametrize(
    "case", [case if case == "one draft" else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_sequences_come_as_often_as_they_should(words, case):
    settings = dict(CASES[case])
    big, small, arm = tables(4, settings.pop("disagree", False))
    draft = settings.pop("draft")
    found, acceptance = count(words, big, small, arm, number=500, draft=draft, **settings)
    assert p_value(found, expected(big, arm, **settings)) > 1e-3
    assert 0 < acceptance < 1


@pytest.mark.slow
def test_greedy_answers_are_those_of_plain_guided_decoding(big, guide):
    asked = requests(50, temperature=0.0)
    plain = decode(SeparateModels(big, guide), asked)
    for draft in (1, 4):
        found = speculate(big, guide, asked, draft=draft)
        assert [one.completion.tokens for one in found] == [one.tokens for one in plain]
        assert [one.completion.text for one in found] == [one.text for one in plain]
        assert [one.completion.finished for one in found] == [one.finished for one in plain]


@torch.no_grad()
def logprobs(model, words, request, tokens):
    """log π after every prefix of the answer, from the whole text and without a cache."""
    prompt = prompt_ids(words, request)
    return model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].log_softmax(1).numpy()


def test_what_is_said_of_the_tokens_is_what_whole_prefixes_say_without_a_cache(base, words, big, guide):
    asked = [*requests(4, weight=1.5, temperature=0.8), *requests(2, weight=0.0, temperature=0.8)]
    for request, (answer, _) in zip(asked, speculate(big, guide, asked, draft=3), strict=True):
        weight, places = request.weight, (np.arange(len(answer.tokens)), np.array(answer.tokens))
        guide.adapter.set_preference(request.preference)
        own, arm = (logprobs(model, words, request, answer.tokens) for model in (base, guide.adapter.model))
        mixed = torch.tensor(own + weight * arm).log_softmax(1)
        sampled = (mixed / 0.8).log_softmax(1).numpy()
        mixed = mixed.numpy()
        near = {"atol": 1e-4, "rtol": 0}
        np.testing.assert_allclose(answer.base, own[places], **near)
        np.testing.assert_allclose(answer.mixed, mixed[places], **near)
        np.testing.assert_allclose(answer.sampled, sampled[places], **near)
        np.testing.assert_allclose(answer.guides["guide"], arm[places] if weight else np.full(len(own), np.nan), **near)
        np.testing.assert_allclose(answer.entropy, -(np.exp(mixed) * mixed).sum(1), **near)
        np.testing.assert_allclose(answer.kl, (np.exp(mixed) * (mixed - own)).sum(1), **near)


def test_forwards_and_drafts_are_counted(big, make_guide):
    """An untrained adapter on a copy of the big model: the draft is the target, and all of it is kept."""
    same = make_guide(size=0.0)
    (one,) = speculate(big, same, requests(1, weight=0.0, max_new_tokens=20, ignore_eos=True), draft=4)
    assert (one.counts.big, one.counts.small, one.counts.drafted, one.counts.accepted) == (4, 16, 16, 16)
    assert one.counts.acceptance == 1 and len(one.completion.tokens) == 20
    (one,) = speculate(big, same, requests(1, max_new_tokens=20, ignore_eos=True), draft=4)
    assert (one.counts.big, one.counts.small, one.counts.drafted, one.counts.accepted) == (4, 20, 16, 16)


def test_an_answer_depends_on_its_request_alone(big, guide):
    asked = requests(3)
    together = speculate(big, guide, asked)
    alone = [speculate(big, guide, [request])[0] for request in reversed(asked)][::-1]
    assert [one.completion.tokens for one in together] == [one.completion.tokens for one in alone]
    assert len({one.completion.tokens for one in together}) == 3


def test_answers_end_where_they_should(big, guide):
    free = speculate(big, guide, requests(6, max_new_tokens=40))
    assert {"eos"} <= {one.completion.finished for one in free} <= {"eos", "length"}
    for one in free:
        assert (one.completion.tokens[-1] in (3,)) == (one.completion.finished == "eos")
        assert 3 not in one.completion.tokens[:-1]
    word = free[0].completion.text.split()[2]
    for one, whole in zip(speculate(big, guide, requests(6, max_new_tokens=40, stop=(word,))), free, strict=True):
        answer, written = one.completion, whole.completion
        assert answer.text == written.text.partition(word)[0] and len(answer.kl) == len(answer.tokens)
        assert answer.tokens == written.tokens[: len(answer.tokens)]
    for limit in (1, 5):
        for one in speculate(big, guide, requests(2, max_new_tokens=limit, ignore_eos=True)):
            assert one.completion.finished == "length" and len(one.completion.tokens) == limit
    long = Request(user_turn("bees " * 230), requests(1)[0].preference, max_new_tokens=2000, ignore_eos=True)
    (one,) = speculate(big, guide, [long])
    assert one.completion.finished == "context" and one.completion.prompt_tokens + len(one.completion.tokens) == 256


def test_a_sliding_window_is_taken_back_too(words, make_guide):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"vocab_size": len(words), "num_hidden_layers": 2, "max_position_embeddings": 256, "sliding_window": 16}
    config = AutoConfig.for_model("mistral", eos_token_id=words.eos_token_id, **sizes)
    torch.manual_seed(2)
    model, other = (AutoModelForCausalLM.from_config(config).float().eval() for _ in range(2))
    with torch.no_grad():
        for own, weight in zip(other.parameters(), model.parameters(), strict=True):
            own.lerp_(weight, 0.7)
    big, guide = decoding_model(model, words), make_guide(on=other, size=0.3)
    asked = requests(3, temperature=0.0, max_new_tokens=24, ignore_eos=True)
    found = speculate(big, guide, asked)
    assert [one.completion.tokens for one in found] == [one.tokens for one in decode(SeparateModels(big, guide), asked)]
    assert 0 < np.mean([one.counts.acceptance for one in found]) < 1


def test_a_prefix_is_read_as_part_of_the_answer(big, guide):
    (whole,) = speculate(big, guide, requests(1, temperature=0.0))
    begun = requests(1, temperature=0.0, prefix=whole.completion.tokens[:5])
    (rest,) = speculate(big, guide, begun)
    assert rest.completion.tokens == whole.completion.tokens[5:]


def test_what_cannot_be_done_is_refused(base, big, words, guide):
    with pytest.raises(UsageError, match="give a guide with an adapter"):
        speculate(big, decoding_model(copy.deepcopy(base), words), requests(1))
    with pytest.raises(UsageError, match="big model has an adapter of its own"):
        speculate(guide, guide, requests(1))
    with pytest.raises(UsageError, match="draft, a number of tokens, must be at least 1, got 0"):
        speculate(big, guide, requests(1), draft=0)
    assert speculate(big, guide, []) == []
