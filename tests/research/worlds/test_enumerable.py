import pytest
import torch
from rewardlab.research.worlds.enumerable import (
    CONFLICT,
    LENGTH,
    PROMPT,
    WORDS,
    answers,
    guided_distribution,
    ideal_guide,
    kl,
    labelled_pairs,
    language_model,
    next_logits,
    optimum,
    rewards,
    sequence_logprobs,
    word_rewards,
)
from rewardlab.rm.backbones.logprobs import completion_logprobs
from rewardlab.rm.errors import UsageError

EVERY = answers()
WORTH = word_rewards()
GOLD = rewards(EVERY, WORTH)
PREFERENCE = torch.tensor([0.3, 0.7], dtype=torch.float64)
EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def base() -> torch.Tensor:
    """What a base says before each word, [M, T, V]."""
    with torch.no_grad():
        return next_logits(language_model(), EVERY)


@pytest.fixture(scope="module")
def independent() -> torch.Tensor:
    """A base whose words do not depend on each other, only on their place, [T, V]."""
    return torch.randn(LENGTH, WORDS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


# ---- the language ----


def test_every_answer_is_listed_once():
    assert answers(3, 2).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert EVERY.shape == (1296, 4) and len(EVERY.unique(dim=0)) == 1296
    assert answers(2, 1).shape == (2, 1) and answers(8, 6).shape == (262_144, 6)


@pytest.mark.parametrize(("words", "length"), [(9, 2), (1, 3), (8, 7), (4, 0)])
def test_a_language_that_cannot_be_listed_is_refused(words, length):
    with pytest.raises(UsageError, match=f"{words} words in answers of {length}"):
        answers(words, length)


# ---- the base ----


@pytest.mark.parametrize("seed", range(4))
def test_the_base_is_far_from_uniform_and_from_certain(seed):
    with torch.no_grad():
        log_base = sequence_logprobs(next_logits(language_model(seed=seed), EVERY), EVERY)
    assert log_base.dtype == torch.float64
    assert log_base.exp().sum().item() == pytest.approx(1, abs=1e-9)
    entropy = -(log_base.exp() * log_base).sum().item() / LENGTH
    assert 1.0 < entropy < 1.6  # uniform words have log 6 = 1.79


def test_probabilities_of_answers_are_those_that_scoring_finds(base):
    model = language_model()
    tokens = torch.cat([torch.full_like(EVERY[:, :1], PROMPT), EVERY], dim=1)
    with torch.no_grad():
        scored = completion_logprobs(model, tokens, torch.ones_like(tokens), torch.ones(len(tokens), dtype=torch.long))
    torch.testing.assert_close(sequence_logprobs(base, EVERY), scored.sum(1).double(), rtol=0, atol=1e-4)


def test_beginnings_have_the_probability_of_all_that_continue_them(base):
    chance = sequence_logprobs(base, EVERY).exp().reshape([WORDS] * LENGTH)
    torch.testing.assert_close(chance.sum((1, 2, 3)), base[0, 0].softmax(0), **EXACT)
    after_two_one = chance[2, 1].sum(1) / chance[2, 1].sum()
    place = int((EVERY[:, :2] == torch.tensor([2, 1])).all(1).nonzero()[0])
    torch.testing.assert_close(after_two_one, base[place, 2].softmax(0), **EXACT)


def test_a_model_is_its_seed_and_leaves_the_random_state_alone():
    state = torch.random.get_rng_state()
    first, again, other = (next_logits(language_model(seed=seed), EVERY[:50]) for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.requires_grad


# ---- rewards and labels ----


@pytest.mark.parametrize("seed", range(3))
def test_the_first_two_objectives_conflict(seed):
    worth = word_rewards(3, seed=seed)
    torch.testing.assert_close(worth.mean(1), torch.zeros(3, dtype=torch.float64), **EXACT)
    correlation = torch.tensor([[1, CONFLICT, 0], [CONFLICT, 1, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(worth @ worth.T / WORDS, correlation, **EXACT)
    assert not torch.equal(worth, word_rewards(3, seed=seed + 10))


def test_an_answer_is_worth_the_sum_of_its_words():
    worth = torch.tensor([[1.0, 2.0, 4.0], [0.0, -1.0, 3.0]])
    assert rewards(torch.tensor([[0, 0, 2], [1, 1, 1]]), worth).tolist() == [[6.0, 3.0], [6.0, -3.0]]
    for objectives, words in ((4, 6), (2, 2), (1, 6)):
        with pytest.raises(UsageError, match=f"{objectives} objectives over {words} words"):
            word_rewards(objectives, words)


def test_labels_are_the_chances_of_bradley_and_terry(base):
    log_base = sequence_logprobs(base, EVERY)
    found = labelled_pairs(20_000, 0, EVERY, GOLD, log_base)
    assert found.first.shape == found.second.shape == (20_000, LENGTH) and found.wins.shape == (20_000, 2)
    differences = rewards(found.first, WORTH) - rewards(found.second, WORTH)
    torch.testing.assert_close(found.wins, differences.sigmoid(), **EXACT)
    assert torch.equal(found.wins, labelled_pairs(20_000, 0, EVERY, GOLD, log_base).wins)
    # answers are the base's: the first word has its chances, up to four standard errors
    shares = torch.bincount(found.first[:, 0], minlength=WORDS) / 20_000
    torch.testing.assert_close(shares.double(), base[0, 0].softmax(0), rtol=0, atol=4 * 0.5 / 20_000**0.5)


def test_sampled_labels_are_draws_from_the_chances(base):
    log_base = sequence_logprobs(base, EVERY)
    soft, drawn = (labelled_pairs(20_000, 0, EVERY, GOLD, log_base, sampled=sampled) for sampled in (False, True))
    assert torch.equal(soft.first, drawn.first) and torch.equal(soft.second, drawn.second)
    assert set(drawn.wins.unique().tolist()) == {0.0, 1.0}
    sure = soft.wins > 0.9
    assert drawn.wins[sure].mean().item() == pytest.approx(soft.wins[sure].mean().item(), abs=0.01)


# ---- the optimum ----


def test_no_policy_near_the_optimum_has_a_better_trade():
    log_base = torch.randn(1296, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).log_softmax(0)
    best = optimum(log_base, GOLD, PREFERENCE, 0.5)
    assert best.exp().sum().item() == pytest.approx(1)

    def trade(log_policy):
        return (log_policy.exp() @ (GOLD @ PREFERENCE) - 0.5 * kl(log_policy, log_base)).item()

    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        step = torch.randn(1296, dtype=torch.float64, generator=generator)
        assert trade((best + 0.1 * step).log_softmax(0)) < trade(best)
    # its trade is the soft maximum: β log E_base exp(r / β)
    assert trade(best) == pytest.approx(0.5 * (log_base + GOLD @ PREFERENCE / 0.5).logsumexp(0).item())
    with pytest.raises(UsageError, match="β = 0"):
        optimum(log_base, GOLD, PREFERENCE, 0)


def test_divergence_by_hand():
    half, quarter = torch.tensor([0.5, 0.5, 0.0]).log(), torch.tensor([0.25, 0.25, 0.5]).log()
    assert kl(half, quarter).item() == pytest.approx(0.693147, abs=1e-6)
    assert kl(half, half).item() == 0
    assert kl(quarter, half).item() == float("inf")


# ---- guiding ----


def test_weight_zero_is_the_base(base):
    guide = next_logits(language_model(seed=9), EVERY)
    assert torch.equal(guided_distribution(base, guide, EVERY, 0.0), sequence_logprobs(base, EVERY))


def test_the_base_as_its_own_guide_is_its_square_at_each_word(base):
    said = base.softmax(-1).square()
    by_word = (said / said.sum(-1, keepdim=True)).gather(2, EVERY[..., None]).log().sum((1, 2))
    torch.testing.assert_close(guided_distribution(base, base, EVERY, 1.0), by_word, **EXACT)
    square = (2 * sequence_logprobs(base, EVERY)).log_softmax(0)
    assert kl(square, by_word) > 0.01  # the square of whole answers is another distribution


def test_logits_and_log_probabilities_guide_alike(base):
    guide = next_logits(language_model(seed=9), EVERY)
    normalised = guided_distribution(base.log_softmax(-1), guide.log_softmax(-1), EVERY, 0.7)
    torch.testing.assert_close(guided_distribution(base, guide, EVERY, 0.7), normalised, **EXACT)


def test_the_ideal_guide_says_the_reward_up_to_a_constant():
    beta_r = 0.5
    said = beta_r * sequence_logprobs(ideal_guide(WORTH, PREFERENCE, beta_r), EVERY)
    constant = said - GOLD @ PREFERENCE
    torch.testing.assert_close(constant, constant[:1].expand(len(EVERY)), **EXACT)


@pytest.mark.parametrize(("beta", "beta_r"), [(1.0, 1.0), (2.0, 0.5), (0.25, 3.0)])
def test_the_tilt_of_whole_answers_is_the_optimum_at_the_product_of_temperatures(base, beta, beta_r):
    log_base = sequence_logprobs(base, EVERY)
    said = sequence_logprobs(ideal_guide(WORTH, PREFERENCE, beta_r), EVERY)
    tilted = (log_base + said / beta).log_softmax(0)
    torch.testing.assert_close(tilted, optimum(log_base, GOLD, PREFERENCE, beta * beta_r), **EXACT)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_guiding_is_the_optimum_where_words_are_independent(independent, beta):
    log_base = sequence_logprobs(independent, EVERY)
    guided = guided_distribution(independent, ideal_guide(WORTH, PREFERENCE, 0.5), EVERY, 1 / beta)
    best = optimum(log_base, GOLD, PREFERENCE, beta * 0.5)
    torch.testing.assert_close(guided, best, **EXACT)
    assert abs(kl(best, guided).item()) < 1e-12


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_guiding_misses_the_optimum_where_they_are_not_but_comes_nearer_than_the_base(base, beta):
    log_base = sequence_logprobs(base, EVERY)
    best = optimum(log_base, GOLD, PREFERENCE, beta)
    guided = guided_distribution(base, ideal_guide(WORTH, PREFERENCE, 1.0), EVERY, 1 / beta)
    assert guided.exp().sum().item() == pytest.approx(1)
    assert 1e-3 < kl(best, guided) < 0.5 * kl(best, log_base)
    square = guided_distribution(base, base, EVERY, 1 / beta)  # a guide that has learnt nothing
    assert kl(best, guided) < kl(best, square)
