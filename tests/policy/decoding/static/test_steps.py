"""A step is a function of tensors on the device: replayed it is the next step, and it never waits."""

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.kernels import guided_sampler
from rewardlab.policy.decoding.engines import SeparateModels, SharedBackbone, decoding_model, language_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.decoding.static import forward
from rewardlab.policy.decoding.static.steps import DecodingSteps

from .recording import Recorded, forbid_reads

TOKENS = 9
PLAIN, LEAN = None, {"helpful": 0.8, "harmless": 0.2}
ENGINES = ["plain", "moslora", "late", "two models", "by objective"]
ENGINES += [pytest.param(name, marks=pytest.mark.slow) for name in ("lora", "pblora")]


@pytest.fixture
def open_engine(base, words, make_guide):
    def opened(name):
        plain = decoding_model(base, words)
        if name == "plain":
            return SeparateModels(plain), PLAIN
        if name == "by objective":
            names = ("helpful", "harmless")
            guides = {name: make_guide("lora", (name,), seed=seed) for seed, name in enumerate(names)}
            return SeparateModels(plain, guides), LEAN
        if name == "two models":
            return SeparateModels(plain, make_guide()), LEAN
        if name == "late":
            return SharedBackbone(make_guide(from_layer=1, targets=("all-linear",)), late=True), LEAN
        alone = name == "lora"
        guide = make_guide(name, ("helpful",) if alone else (*LEAN,), targets=("all-linear",))
        return SharedBackbone(guide), PLAIN if alone else LEAN

    return opened


def requests(preference):
    """Rows that differ in everything that a request has, prompt length and truncation included."""
    rows = [{"temperature": 0.0}, {"top_k": 9}, {"top_p": 0.8, "weight": 2.0}, {"min_p": 0.05}, {}]
    shares = [preference and {"helpful": share, "harmless": 1 - share} for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    return [
        Request(prompt, share, seed=seed, max_new_tokens=TOKENS, ignore_eos=True, **settings)
        for seed, (prompt, share, settings) in enumerate(zip(garden.prompts(5, 0), shares, rows, strict=True))
    ]


@pytest.mark.parametrize("name", ENGINES)
def test_a_step_never_waits_for_the_device_and_its_repetition_is_the_next_step(name, open_engine, monkeypatch):
    """The sampler's definition stands in for its GPU kernel, as PyTorch's version looks at values on a CPU."""
    monkeypatch.setattr("rewardlab.policy.decoding.static.steps.guided_sampler", guided_sampler.reference)
    engine, preference = open_engine(name)
    asked = requests(preference)
    expected = decode(engine, asked)
    monkeypatch.setitem(forward.WINDOW, "cpu", 64)
    with torch.no_grad(), engine.session(asked) as session:
        steps = DecodingSteps(session, asked, TOKENS)
        steps.advance(3)
        session.grow()
        with monkeypatch.context() as patch, Recorded() as recorded:
            forbid_reads(patch)
            steps._step()
        for _ in range(TOKENS - 4):
            recorded.replay()
    assert steps.tokens.tolist() == [[*completion.tokens] for completion in expected]
    facts = torch.tensor(np.stack([[completion.base, completion.mixed, completion.kl] for completion in expected]))
    torch.testing.assert_close(steps.facts[..., [0, 1, 4]].double().mT, facts, atol=1e-5, rtol=1e-5)
    assert len({*steps.tokens.flatten().tolist()}) > 5


def test_a_step_that_fails_in_the_second_model_can_be_repeated(open_engine):
    """A step whose model waits for the GPU is made again without a graph; the base has run by then."""
    engine, preference = open_engine("two models")
    asked = requests(preference)
    expected = decode(engine, asked)

    def fail(*_):
        raise RuntimeError("called a synchronizing CUDA operation")

    with torch.no_grad(), engine.session(asked) as session:
        steps = DecodingSteps(session, asked, TOKENS)
        steps.advance(3)
        session.grow()
        hook = language_model(engine.guide_models[0]).register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="synchronizing"):
            steps._step()
        hook.remove()
        steps._step()
        steps.advance(TOKENS - 4)
    assert steps.tokens.tolist() == [[*completion.tokens] for completion in expected]


def test_without_guide_logprobs_only_those_are_missing(open_engine):
    engine, preference = open_engine("moslora")
    asked = requests(preference)
    for one, other in zip(decode(engine, asked), decode(engine, asked, guide_logprobs=False), strict=True):
        assert one.tokens == other.tokens and np.array_equal(one.kl, other.kl)
        assert np.isnan(other.guides["guide"]).all() and not np.isnan(one.guides["guide"]).any()
