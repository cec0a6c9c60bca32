"""Exact attributions: the contributions sum to the margin, whatever the responses are."""

import numpy as np
import pytest
from rewardlab.benchmarks.explanation.exact import term_of_length
from rewardlab.benchmarks.explanation.explain import explain
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.embedding.model import Embedder, EmbeddingRewardModel
from rewardlab.rm.kinds.implicit.model import load_implicit
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.types import Example, PreferencePair, TokenRewards, user_turn

from tests.apps.inspector.gallery import save_base

PROMPT = user_turn("tell me about bees")
TEXTS = (
    "Bees make honey. Bees sting!",
    "honey",
    "",
    "kind bees, kind honey and kind herbs\n\n- ponds",
    "unheard of 植物",
)
PAIRS = [(first, second) for first in TEXTS for second in TEXTS if first != second]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return save_base(tmp_path_factory.mktemp("exact") / "base")


@pytest.fixture(scope="module")
def linear():
    pairs = [PreferencePair(str(k), PROMPT, f"kind bees {'honey ' * k}", f"rude bees {'ponds ' * k}") for k in range(9)]
    return new_linear().fit(pairs)


@pytest.fixture(scope="module")
def embedding(base, tmp_path_factory) -> EmbeddingRewardModel:
    cache = tmp_path_factory.mktemp("cache") / "embeddings.sqlite"
    embedder = Embedder(base, max_length=64, dtype="float32", cache=cache)
    size = embedder.model.config.hidden_size
    return EmbeddingRewardModel(embedder, np.random.default_rng(0).normal(size=size))


@pytest.fixture(scope="module")
def guide(base):
    return load_autoregressive(base, beta=0.5)


@pytest.mark.parametrize("kind", ["linear", "embedding", "guide"])
def test_causes_sum_to_the_margin_and_pieces_to_the_text(kind, request):
    model = request.getfixturevalue(kind)
    for texts in PAIRS:
        explanation = explain("rm", model, PROMPT, texts)
        size = max(1.0, float(np.abs(explanation.rewards).max()))
        assert np.abs(explanation.remainder).max() < 1e-5 * size, texts
        first, second = explanation.attribution.pieces
        if kind != "guide":  # which reads an end token too
            assert ("".join(first.texts), "".join(second.texts)) == texts
        in_pieces = first.values.sum() + second.values.sum()
        others = sum(cause.values.sum() for cause in explanation.attribution.causes if "word" not in cause.name)
        assert in_pieces == pytest.approx((explanation.margin - others).sum(), abs=1e-5 * size), texts


def test_the_terms_of_a_linear_model_sum_to_its_reward(linear):
    for text in TEXTS:
        terms = linear.terms(Example(PROMPT, text))
        assert sum(terms.words.values()) + terms.length == pytest.approx(linear.rate([Example(PROMPT, text)])[0, 0])
    kind = linear.terms(Example(PROMPT, "kind bees"))
    assert kind.words.keys() == {"kind", "bees", "kind bees"} and kind.spans == [(0, 4), (5, 9)]


def test_a_word_of_one_response_counts_for_it_and_of_the_other_against_it(linear):
    forwards, backwards = (explain("rm", linear, PROMPT, texts) for texts in (TEXTS[:2], TEXTS[1::-1]))
    assert forwards.margin == pytest.approx(-backwards.margin)
    values = {cause.name: cause.values for cause in backwards.attribution.causes}
    for cause in forwards.attribution.causes:
        assert cause.values == pytest.approx(-values[cause.name])


def test_longer_responses_of_equal_tokens_differ_by_length_alone():
    """Tokens of reward 2 after a prompt of four tokens of reward 1: (4 + 2 * 4) / 8 - (4 + 2 * 1) / 5 = 0.3."""

    class Means:
        contract = type("Contract", (), {"objectives": ("reward",), "hash": lambda self: ""})()

        def token_rewards(self, example):
            words = example.text.split()
            return TokenRewards(np.ones(4), 2 * np.ones(len(words)), tuple(words))

        def rate(self, examples):
            tokens = [self.token_rewards(example) for example in examples]
            return np.array([[np.concatenate([part.before, part.rewards]).mean()] for part in tokens])

    explanation = explain("rm", Means(), PROMPT, ("a b c d", "a"))
    assert (
        explanation.lead(0) == "Length explains 0.3 of the margin of 0.3 for the first response (4 against 1 tokens)."
    )
    assert explanation.remainder == pytest.approx(0)


def test_a_model_that_follows_a_preference_is_read_at_each_objective(base):
    settings = AdapterSettings(kind="moslora", objectives=("helpful", "harmless"), embedding="random")
    model = load_autoregressive(base, beta=0.1, adapter=settings)
    explanation = explain("arm", model, PROMPT, TEXTS[:2])
    assert explanation.objectives == ("helpful", "harmless") and explanation.attribution.pieces[0].values.shape[0] == 2
    assert explanation.remainder == pytest.approx(np.zeros(2), abs=1e-4)


def test_the_tokens_of_an_implicit_reward_are_log_ratios(base, tmp_path):
    model = load_implicit(save_base(tmp_path / "policy", seed=7), reference=base, beta=0.3)
    explanation = explain("dpo", model, PROMPT, TEXTS[:2])
    assert explanation.remainder == pytest.approx(0, abs=1e-4)
    ratios = 0.3 * model.logprobs([Example(PROMPT, TEXTS[0])])[0]
    values = explanation.attribution.pieces[0].values[0]
    np.testing.assert_allclose(values - values[0], ratios - ratios[0], atol=1e-6)


def test_the_length_term_of_a_training_is_the_formula_of_its_loss():
    assert term_of_length(2.0, 10.0, 5.0) == pytest.approx(2 * np.tanh(0.5))


def test_one_response_has_no_margin(linear):
    with pytest.raises(UsageError, match="give two responses, got 1"):
        explain("rm", linear, PROMPT, TEXTS[:1])
