"""kernels/guided_sampler/__init__.py"""

import math

import pytest
import torch
from rewardlab.kernels import guided_sampler as module
from rewardlab.kernels import philox
from rewardlab.kernels.guided_sampler import Sampled, guided_sampler, mixed, reference
from scipy import stats
from torch import Tensor

from tests.stand_ins.kernel_cases.guided_sampler import example

TINY = torch.log(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
SETTINGS = {
    "plain": (1.0, 0, 1.0, 0.0),
    "hot": (1.7, 0, 1.0, 0.0),
    "top-k": (1.0, 4, 1.0, 0.0),
    "top-p": (1.3, 0, 0.8, 0.0),
    "min-p": (1.0, 0, 1.0, 0.1),
    "all": (0.9, 6, 0.9, 0.05),
}


def draw(base: Tensor, guides: Tensor | None = None, weights: Tensor | None = None, **options) -> Sampled:
    """Rows of logits; numbers serve all rows, seed 0 and positions 0, 1, 2, ... unless told."""
    rows = len(base)
    guides = base.new_zeros(rows, 0, base.shape[1]) if guides is None else guides
    weights = base.new_zeros(rows, 0) if weights is None else weights
    settings = {"temperature": 1.0, "seed": 0, "position": torch.arange(rows)} | options
    given = {name: torch.as_tensor(value).expand(rows) for name, value in settings.items() if value is not None}
    return guided_sampler(base, guides, weights, **{"temperature": None} | given)


def limits(temperature: float, top_k: int, top_p: float, min_p: float) -> dict:
    return {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}


def distribution(u: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """What is sampled from, one row, token by token in float64."""
    p = (u.double() / temperature).softmax(0)
    if top_k:
        p = torch.where(p >= p.sort(descending=True).values[top_k - 1], p, 0)
        p = p / p.sum()
    if top_p < 1:  # a token stays while those above it have less than top_p
        p = torch.where(torch.stack([p[p > one].sum() < top_p for one in p]), p, 0)
    p = torch.where(p >= min_p * p.max(), p, 0)
    return p / p.sum()


def chance(counts: Tensor, p: Tensor) -> float:
    """The chi-square test's p-value of draws, where p > 0."""
    assert not counts[p == 0].any()
    if (p > 0).sum() == 1:
        return 1.0
    return stats.chisquare(counts[p > 0].numpy(), (p[p > 0] * counts.sum()).numpy()).pvalue


def logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- facts ----


def test_three_tokens_worked_out_by_hand():
    # u = log(.5, .3, .2) + log(1, 1, 2): p = (5, 3, 4) / 12, and greedy takes token 0
    guide = torch.tensor([[[0.0, 0.0, math.log(2)]]], dtype=torch.float64)
    out = draw(TINY[None], guide, torch.ones(1, 1, dtype=torch.float64), temperature=None)
    p = torch.tensor([5, 3, 4]) / 12
    assert out.token.item() == 0 and out.logprob.item() == 0
    assert out.guided.item() == pytest.approx(math.log(5 / 12))
    assert out.base.item() == pytest.approx(math.log(0.5))
    assert out.entropy.item() == pytest.approx(-(p * p.log()).sum().item())
    # log(p / base) = log(5/12 / .5) = log(5/6) for the first two and log(4/12 / .2) = log(5/3) for the third
    assert out.kl.item() == pytest.approx(8 / 12 * math.log(5 / 6) + 4 / 12 * math.log(5 / 3))


def test_a_normalising_constant_of_any_model_changes_nothing():
    base, guides = logits(4, 50), logits(4, 1, 50, seed=1)
    weights = torch.full((4, 1), 0.7, dtype=torch.float64)
    plain, moved = draw(base, guides, weights), draw(base + 3, guides - 5, weights)
    for one, other in zip(plain, moved, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("guides", "dtype"), [(0, torch.bfloat16), (1, torch.float32), (3, torch.bfloat16)])
def test_facts_at_a_real_vocabulary_are_those_of_float64(guides, dtype):
    arguments = example({"N": 4, "G": guides, "V": 32001, "truncated": True}, dtype)
    truth = reference(**{name: one.double() if one.is_floating_point() else one for name, one in arguments.items()})
    out = guided_sampler(**arguments)
    assert torch.equal(out.token, truth.token)
    for name, tolerance in {"logprob": 3e-5, "guided": 3e-5, "base": 3e-5, "entropy": 5e-5, "kl": 5e-5}.items():
        difference = (getattr(out, name).double() - getattr(truth, name)).abs().max()
        assert difference <= tolerance, (name, difference)


def test_without_a_guide_the_divergence_is_exactly_zero():
    base, guides = logits(3, 40).float(), logits(3, 1, 40, seed=1).float()
    plain, weightless = draw(base), draw(base, guides, torch.zeros(3, 1))
    assert not plain.kl.any() and not weightless.kl.any()
    for one, other in zip(plain, weightless, strict=True):
        assert torch.equal(one, other)


def test_the_log_probability_is_that_of_what_was_sampled():
    row = 1.5 * logits(12)
    for setting in SETTINGS.values():
        out = draw(row.repeat(20, 1), **limits(*setting))
        torch.testing.assert_close(out.logprob, distribution(row, *setting)[out.token].log())
        torch.testing.assert_close(out.guided, row.log_softmax(0)[out.token])


# ---- masks ----


def test_a_masked_token_stays_masked_for_every_sign_of_a_weight_and_an_unread_guide_masks_none():
    base = torch.tensor([[0.0, 0.0, -torch.inf, 0.0]]).repeat(3, 1)
    guide = torch.tensor([[[-torch.inf, 1.0, 1.0, 1.0]]]).repeat(3, 1, 1)
    weights = torch.tensor([[1.0], [-1.0], [0.0]])
    u = mixed(base, guide, weights)
    inf = torch.inf
    assert u.tolist() == [[-inf, 1.0, -inf, 1.0], [-inf, -1.0, -inf, -1.0], [0.0, 0.0, -inf, 0.0]]
    out = draw(base, guide, weights)
    assert out.entropy.exp().tolist() == pytest.approx([2, 2, 3])
    assert not torch.stack(out[1:]).isnan().any()


def test_weights_that_are_all_positive_mix_as_among_others():
    arguments = example({"N": 4, "G": 2, "V": 1025, "masked": True}, torch.float32)
    base, guides, weights = arguments["base"], arguments["guides"], torch.tensor([[0.5, 2.0]]).repeat(4, 1)
    among = weights.index_fill(0, torch.tensor([3]), 0)
    assert torch.equal(mixed(base, guides, weights)[:3], mixed(base, guides, among)[:3])


def test_a_masked_cell_is_never_drawn():
    base = torch.full((500, 3000), -torch.inf)
    base[:, 1100:1110] = 0
    out = draw(base)
    assert out.token.min() == 1100 and out.token.max() == 1109
    torch.testing.assert_close(out.logprob, torch.full((500,), -math.log(10)))


@pytest.mark.parametrize(("temperature", "top_k"), [(None, 0), (1.0, 0), (1.0, 2)])
@pytest.mark.parametrize("kernels", ["eager", "reference"])
def test_a_row_without_a_finite_logit_is_nan_and_leaves_the_others_alone(temperature, top_k, kernels, monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", kernels)
    base = logits(3, 20)
    alone = draw(base, temperature=temperature, top_k=top_k)
    base[1] = -torch.inf
    out = draw(base, temperature=temperature, top_k=top_k)
    assert 0 <= out.token[1] < 20
    assert out.guided[1].isnan() and out.entropy[1].isnan() and out.kl[1].isnan()
    assert all(torch.equal(one[::2], other[::2]) for one, other in zip(out, alone, strict=True))


# ---- greedy and ties ----


def test_greedy_takes_the_lowest_of_equals_also_beside_sampled_rows_and_touches_no_random_numbers(monkeypatch):
    base = torch.tensor([[0.0, 2.0, 1.0, 2.0]]).repeat(2, 1)
    assert draw(base, temperature=0.0).token.tolist() == draw(base, temperature=None).token.tolist() == [1, 1]
    mixed_rows = draw(base, temperature=torch.tensor([0.0, 1.0]))
    assert mixed_rows.token[0] == 1 and mixed_rows.logprob[0] == 0
    assert all(
        torch.equal(one[0], other[0]) for one, other in zip(mixed_rows, draw(base, temperature=0.0), strict=True)
    )
    monkeypatch.setattr(philox, "words", lambda *_: pytest.fail("random numbers for a greedy batch"))
    base = logits(3, 20)
    for temperature in (0.0, None):
        assert torch.equal(draw(base, temperature=temperature).token, base.argmax(1))


def test_tokens_that_tie_with_a_threshold_are_all_kept_and_top_p_counts_within_the_top_k():
    base = torch.log(torch.tensor([0.4, 0.2, 0.2, 0.1, 0.1])).repeat(400, 1)
    assert draw(base, top_k=2).token.unique().tolist() == [0, 1, 2]
    assert draw(base, top_p=0.5).token.unique().tolist() == [0, 1, 2]
    assert draw(base, min_p=0.45).token.unique().tolist() == [0, 1, 2]
    # of the first three, 4/9 + 3/9 reach 0.75; of all four, 0.4 + 0.3 do not
    base = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1])).repeat(400, 1)
    assert draw(base, top_k=3, top_p=0.75).token.unique().tolist() == [0, 1]
    assert draw(base, top_p=0.75).token.unique().tolist() == [0, 1, 2]


def test_limits_that_are_off_are_no_limits():
    base = logits(50, 30)
    plain, off = draw(base), draw(base, top_k=0, top_p=1.0, min_p=0.0)
    assert all(torch.equal(one, other) for one, other in zip(plain, off, strict=True))
    assert torch.equal(draw(base, top_k=30).token, plain.token)


def test_many_ties_and_flat_rows_reach_beyond_the_leading_logits():
    base = torch.zeros(40, 3000)
    out = draw(base, top_p=0.9)
    assert out.token.max() > 2000
    torch.testing.assert_close(out.logprob, torch.full((40,), -math.log(3000)))  # all tie, all stay
    slope = torch.linspace(0, -0.1, 3000).repeat(40, 1)
    kept = int((distribution(slope[0], 1.0, 0, 0.9, 0.0) > 0).sum())
    wide = draw(slope, top_p=0.9)
    assert 2000 < kept < 3000 and wide.token.max() < kept
    torch.testing.assert_close(wide.logprob, (slope[0] - slope[0, :kept].logsumexp(0))[wide.token], atol=1e-5, rtol=0)


# ---- the distribution that is drawn from ----


@pytest.mark.parametrize(
    ("setting", "by"), [("plain", "seed"), ("top-p", "seed"), *((name, "position") for name in SETTINGS)]
)
def test_draws_follow_the_distribution(setting, by):
    row, guide = 1.5 * logits(12, seed=2), logits(12, seed=3)
    rows = 4000
    places = {"position": 5, "seed": 2**33} | {by: torch.arange(rows)}
    out = draw(
        *(row.float().expand(rows, -1), guide.float().expand(rows, 1, -1), torch.ones(rows, 1)),
        **limits(*SETTINGS[setting]) | places,
    )
    p = distribution(row + guide, *SETTINGS[setting])
    assert chance(out.token.bincount(minlength=12), p) > 1e-3


# ---- the random numbers belong to the row ----


@pytest.mark.parametrize(("vocabulary", "dtype"), [(17, torch.float32), (1500, torch.bfloat16), (33000, torch.float32)])
def test_a_row_draws_the_same_in_any_batch_and_at_any_place(vocabulary, dtype):
    arguments = example({"N": 6, "G": 2, "V": vocabulary, "truncated": True}, dtype)
    whole = guided_sampler(**arguments)
    backwards = guided_sampler(**{name: one.flip(0) for name, one in arguments.items()})
    for row in range(6):
        alone = guided_sampler(**{name: one[row : row + 1] for name, one in arguments.items()})
        for one, single, other in zip(whole, alone, backwards, strict=True):
            assert torch.equal(one[row : row + 1], single) and torch.equal(one[row], other[5 - row])


def test_threads_do_not_change_a_draw():
    arguments = example({"N": 1, "G": 1, "V": 70001}, torch.float32)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(guided_sampler(**arguments))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for result in results[1:] for one, other in zip(result, results[0], strict=True))


def test_seed_and_position_change_the_draw_and_other_tokens_limits_leave_it():
    base = torch.zeros(200, 500)
    first = draw(base)
    assert torch.equal(first.token, draw(base).token)
    assert (first.token != draw(base, seed=1).token).float().mean() > 0.9
    assert first.token.unique().numel() > 100  # positions differ from row to row
    # Top-2 of the three that top-3 keeps: where top-3 drew one of the two, top-2 draws the same
    base = torch.log(torch.tensor([0.4, 0.35, 0.2, 0.05])).repeat(200, 1)
    three, two = draw(base, top_k=3).token, draw(base, top_k=2).token
    assert (three == 2).any() and torch.equal(three[three < 2], two[three < 2])


def test_shapes_that_do_not_fit_are_told_so():
    with pytest.raises(ValueError, match=r"be \[2, G, 5\] and weights \[2, G\], got \(2, 1, 4\) and \(2, 1\)"):
        module._check(torch.zeros(2, 5), torch.zeros(2, 1, 4), torch.zeros(2, 1))
