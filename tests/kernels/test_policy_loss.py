"""kernels/policy_loss/__init__.py"""

import math

import pytest
import torch
from rewardlab.kernels.policy_loss import ClipRule, _check, divergence, policy_loss

from tests.stand_ins.kernel_cases.policy_loss import example

INF = math.inf
PPO = ClipRule((0.0, 1.2), (0.8, INF))
DUAL = ClipRule((0.0, 1.2), (0.8, 3.0))
DAPO = ClipRule((0.0, 1.28), (0.8, INF))
GSPO = ClipRule((0.0, 1.02), (0.97, INF), level="sequence")
CISPO = ClipRule((0.0, 1.3), (0.0, 1.3), through="logprob")
REINFORCE = ClipRule((1.0, 1.0), (1.0, 1.0), through="logprob")
LENGTHS = [5, 1, 0, 17]


@pytest.fixture(params=["reference", "eager", "triton"])
def way(request, monkeypatch):
    """Every way through the door; float64 is served by PyTorch in any case."""
    if request.param == "triton":
        request.getfixturevalue("triton")
    monkeypatch.setenv("REWARDLAB_KERNELS", request.param)


def world(dtype=torch.float64, per_sequence=False, spread=0.3):
    """Log-probabilities that want a gradient, and the other tensors, of sequences of LENGTHS."""
    generator = torch.Generator().manual_seed(0)
    T, lengths = sum(LENGTHS), torch.tensor(LENGTHS)

    def draw(number=T):
        return torch.randn(number, generator=generator, dtype=torch.float64)

    logprob, advantage = -draw().abs(), draw()
    old = logprob + spread * draw()
    if per_sequence:
        advantage = torch.tensor([1.5, -1.0, 1.0, -0.5], dtype=torch.float64).repeat_interleave(lengths)
    given = [logprob, old, advantage, draw().abs() / T]
    bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    given = [one.to(dtype) for one in given]
    return given[0].requires_grad_(), *given[1:], bounds


def value_and_gradient(total, logprob):
    return total.detach(), torch.autograd.grad(total, logprob)[0]


def test_tokens_and_a_sequences_ratio_worked_out_by_hand(way):
    # r = 1.5: A = 1 is cut to 1.2, A = -1 is not cut; r = 0.5: A = 1 is not cut, A = -1 is cut to 0.8
    old, logprob = torch.zeros(4), torch.tensor([1.5, 1.5, 0.5, 0.5]).log().requires_grad_()
    advantage, weight = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.full((4,), 0.25)
    out = policy_loss(logprob, old, advantage, weight, torch.tensor([0, 3, 4]), rule=PPO)
    torch.testing.assert_close(out.total, torch.tensor((-1.2 + 1.5 - 0.5 + 0.8) / 4))
    torch.testing.assert_close(out.sums, torch.tensor([[-0.2 / 4, 0, 1, 3, 3.5], [0.8 / 4, 0, 1, 1, 0.5]]))
    (gradient,) = torch.autograd.grad(out.total * 8, logprob)
    torch.testing.assert_close(gradient, torch.tensor([0.0, 3.0, -1.0, 0.0]))
    # log-ratios log 2 and log 8: mean log 4, r = 4; w A = 1/2 and 1/4: L = -4 (1/2 + 1/4); each gets -4 (3/4) / 2
    logprob, old = torch.tensor([2.0, 8.0]).log().requires_grad_(), torch.zeros(2)
    advantage, weight = torch.tensor([1.0, 0.5]), torch.full((2,), 0.5)
    free = ClipRule((0.0, INF), (0.0, INF), level="sequence")
    out = policy_loss(logprob, old, advantage, weight, torch.tensor([0, 2]), rule=free)
    torch.testing.assert_close(out.total, torch.tensor(-3.0))
    torch.testing.assert_close(torch.autograd.grad(out.total, logprob)[0], torch.tensor([-1.5, -1.5]))
    token = policy_loss(
        logprob, old, advantage, weight, torch.tensor([0, 2]), rule=free._replace(level="sequence-token")
    )
    torch.testing.assert_close(token.total, torch.tensor(-3.0))
    torch.testing.assert_close(torch.autograd.grad(token.total, logprob)[0], torch.tensor([-2.0, -1.0]))


@pytest.mark.parametrize(
    "rule",
    [PPO, CISPO, GSPO._replace(level="sequence-token", through="logprob")],
    ids=lambda rule: f"{rule.level}-{rule.through}",
)
def test_a_token_that_is_none_is_not_even_read(way, rule):
    logprob, old, advantage, weight, bounds = world(torch.float32)
    chosen = {"rule": rule, "beta": 0.1, "kl": "k3"}
    dead = torch.arange(len(old)) % 3 == 1
    keep, base = ~dead, old - 0.1
    short = torch.tensor([int(keep[: int(end)].sum()) for end in bounds])
    alone = [one.detach()[keep] for one in (logprob, old, advantage, weight)]
    alone[0].requires_grad_()
    expected = policy_loss(*alone, short, **chosen, base=base[keep])
    for rubbish in (torch.nan, torch.inf):
        said = logprob.detach().masked_fill(dead, rubbish).requires_grad_()
        spoilt = [one.masked_fill(dead, rubbish) for one in (old, advantage, base)]
        for mask, w in ((keep, weight.masked_fill(dead, rubbish)), (None, weight.masked_fill(dead, 0))):
            out = policy_loss(said, *spoilt[:2], w, bounds, **chosen, base=spoilt[2], mask=mask)
            torch.testing.assert_close(out, expected)
            (gradient,) = torch.autograd.grad(out.total, said)
            assert torch.equal(gradient[dead], torch.zeros(int(dead.sum())))
            torch.testing.assert_close(
                gradient[keep], torch.autograd.grad(expected.total, alone[0], retain_graph=True)[0]
            )


def test_a_ratio_beyond_floats_is_bounded_also_in_a_corrected_kl(way):
    logprob, bounds = torch.tensor([-0.5, -0.5]).requires_grad_(), torch.tensor([0, 2])
    old, advantage, weight = torch.tensor([-200.0, -200.0]), torch.ones(2), torch.ones(2)
    for rule in (PPO, GSPO, CISPO):
        out = policy_loss(logprob, old, advantage, weight, bounds, rule=rule)
        high = rule.positive[1]  # twice -high A, and for CISPO, whose gradient goes on, twice -high A log π
        total, slope = (2 * high * 0.5, -high) if rule is CISPO else (-2 * high, 0.0)
        for one, expected in zip(value_and_gradient(out.total, logprob), (total, slope), strict=True):
            torch.testing.assert_close(one, torch.full_like(one, expected))
    logprob, old, base = torch.tensor([-0.5]).requires_grad_(), torch.tensor([-90.5]), torch.tensor([-1.5])
    chosen = {"rule": PPO, "base": base, "beta": 1.0, "kl": "k1", "corrected": True}
    out = policy_loss(logprob, old, torch.zeros(1), torch.ones(1), torch.tensor([0, 1]), **chosen)
    total, slope = value_and_gradient(out.total, logprob)  # e^20 times log π - log base, which is 1
    torch.testing.assert_close(total, torch.tensor(math.exp(20)))
    torch.testing.assert_close(slope, torch.tensor([math.exp(20)]))


@pytest.mark.parametrize("rule", [PPO, GSPO, GSPO._replace(level="sequence-token")], ids=lambda rule: rule.level)
def test_where_a_rule_has_no_bound_a_log_ratio_counts_up_to_20(way, rule):
    logprob, bounds = torch.tensor([-0.5, -0.5]).requires_grad_(), torch.tensor([0, 2])
    old, weight = torch.tensor([-90.5, -90.5]), torch.ones(2)  # a ratio of e^90, which float32 does not have
    out = policy_loss(logprob, old, -torch.ones(2), weight, bounds, rule=rule)
    total, slope = value_and_gradient(out.total, logprob)
    torch.testing.assert_close(total, torch.tensor(2 * math.exp(20)))
    assert slope.tolist() == [0.0, 0.0]
    assert out.sums[0, 2:].tolist() == pytest.approx([2, 2, 2 * math.exp(20)])
    near = policy_loss(logprob, torch.tensor([-20.0, -20.0]), -torch.ones(2), weight, bounds, rule=rule)
    torch.testing.assert_close(torch.autograd.grad(near.total, logprob)[0], torch.full((2,), math.exp(19.5)))


@pytest.mark.parametrize("rule", [PPO, GSPO], ids=lambda rule: rule.level)
def test_a_sequence_alone_is_the_sequence_among_others(rule):
    logprob, old, advantage, weight, bounds = world()
    whole = policy_loss(logprob, old, advantage, weight, bounds, rule=rule)
    gradient = torch.autograd.grad(whole.total, logprob)[0]
    for s in range(len(LENGTHS)):
        part = slice(int(bounds[s]), int(bounds[s + 1]))
        alone = logprob.detach()[part].requires_grad_()
        given = (alone, old[part], advantage[part], weight[part], torch.tensor([0, len(alone)]))
        out = policy_loss(*given, rule=rule)
        torch.testing.assert_close(out.sums[0], whole.sums[s])
        torch.testing.assert_close(torch.autograd.grad(out.total, alone)[0], gradient[part])


@pytest.mark.parametrize("kl", ["k1", "k2", "k3", "forward"])
def test_a_divergence_is_measured_without_and_added_with_beta(kl):
    logprob, old, advantage, weight, bounds = world()
    base = old + 0.2
    chosen = {"rule": PPO, "base": base, "kl": kl}
    without = policy_loss(logprob, old, advantage, weight, bounds, rule=PPO)
    measured = policy_loss(logprob, old, advantage, weight, bounds, **chosen)
    added = policy_loss(logprob, old, advantage, weight, bounds, **chosen, beta=0.5)
    expected = divergence(kl, logprob, base)
    torch.testing.assert_close(measured.total, without.total)
    torch.testing.assert_close(measured.sums[:, 1].sum(), expected.sum().detach())
    torch.testing.assert_close(added.sums, measured.sums)
    plain = without.total + 0.5 * (weight * expected).sum()
    for one, other in zip(value_and_gradient(added.total, logprob), value_and_gradient(plain, logprob), strict=True):
        torch.testing.assert_close(one, other)


def test_divergences_worked_out_by_hand():
    # π says the token twice as often as the base, then half as often: d = -log 2 and log 2
    logprob, base, log2 = torch.tensor([0.5, 0.25]).log(), torch.tensor([0.25, 0.5]).log(), math.log(2)
    expected = {
        "k1": [log2, -log2],
        "k2": [log2**2 / 2] * 2,
        "k3": [0.5 + log2 - 1, 2 - log2 - 1],
        "forward": [0.5 * -log2 + 0.5, 2 * log2 - 1],
    }
    for kind, values in expected.items():
        torch.testing.assert_close(divergence(kind, logprob, base), torch.tensor(values))


def test_divergences_mean_what_their_table_says():
    logits = torch.tensor([0.3, -1.0, 0.8], dtype=torch.float64, requires_grad=True)
    base = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).log()
    said = logits.log_softmax(0)
    p = said.detach().exp()
    backward, forward = (said.exp() * (said - base)).sum(), (base.exp() * (base - said)).sum()
    of_backward, of_forward = (torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (backward, forward))
    means = {kind: (p * divergence(kind, said, base)).sum() for kind in ("k1", "k2", "k3", "forward")}
    slopes = {kind: torch.autograd.grad(mean, logits, retain_graph=True)[0] for kind, mean in means.items()}
    torch.testing.assert_close(means["k1"], backward)
    torch.testing.assert_close(means["k3"], backward)
    torch.testing.assert_close(means["forward"], forward)
    torch.testing.assert_close(slopes["k1"], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(slopes["k2"], of_backward)
    torch.testing.assert_close(slopes["k3"], of_forward)


@pytest.mark.parametrize("kl", ["k1", "k3"])
def test_corrected_tokens_of_an_older_policy_have_the_mean_and_the_gradient_of_the_present_ones_kl(way, kl):
    """The sum over a vocabulary of 3, each token as often as the older policy says it, is exact."""
    logits = torch.tensor([0.3, -1.0, 0.8], requires_grad=True)
    old, base = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.5, 0.2, 0.3]).log()
    chosen = {"rule": PPO, "base": base, "beta": 1.0, "kl": kl, "corrected": True}
    rows = torch.zeros(3), old, torch.tensor([0, 3])
    found = policy_loss(logits.log_softmax(0), old.log(), *rows, **chosen).total
    truth = (logits.softmax(0) * (logits.log_softmax(0) - base)).sum()
    for one, other in zip(value_and_gradient(found, logits), value_and_gradient(truth, logits), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_a_policy_close_to_its_base_is_measured_in_float32(way):
    # e^d - d - 1 as it stands would be off by 6e-8, where d² / 2 is at most 2e-6
    gap = torch.linspace(-2e-3, 2e-3, 8)
    zeros, bounds = torch.zeros(8), torch.arange(9)
    for kl in ("k3", "forward"):
        out = policy_loss(zeros, zeros, zeros, torch.ones(8), bounds, rule=PPO, base=gap, kl=kl)
        truth = divergence(kl, zeros.double(), gap.double())
        torch.testing.assert_close(out.sums[:, 1].double(), truth, rtol=0, atol=3e-10)


def test_only_the_policy_gets_a_gradient(way):
    arguments = example({"lengths": [17], "rule": tuple(GSPO), "kl": "k3", "beta": 0.1}, torch.float32)
    for name in ("logprob", "old", "advantage", "weight", "base"):
        arguments[name].requires_grad_()
    out = policy_loss(**arguments)
    out.total.backward()
    assert not out.sums.requires_grad
    assert arguments["logprob"].grad is not None
    assert all(arguments[name].grad is None for name in ("old", "advantage", "weight", "base"))


def test_an_empty_sequence_sums_to_zeros_and_nan_is_seen_where_a_token_is_live(way):
    out = policy_loss(*world(), rule=PPO)
    assert out.sums[2].tolist() == [0] * 5
    nothing = [torch.zeros(0)] * 4
    out = policy_loss(*nothing, torch.tensor([0, 0]), rule=GSPO)
    assert out.total == 0 and out.sums.tolist() == [[0] * 5]
    logprob, old, advantage, weight, bounds = world(torch.float32)
    old[2] = torch.nan
    for rule in (PPO, GSPO, CISPO):
        out = policy_loss(logprob, old, advantage, weight, bounds, rule=rule)
        assert out.total.isnan() and out.sums[0, 0].isnan() and out.sums[1:].isfinite().all(), rule


def test_a_wrong_use_is_told_what_is_wrong():
    given = world()

    def told(match, *arguments, **chosen):
        with pytest.raises(ValueError, match=match):
            policy_loss(*(arguments or given), **{"rule": PPO, **chosen})

    told(r"0 <= low <= high, got \(1.2, 0.8\); inf is no bound", rule=PPO._replace(positive=(1.2, 0.8)))
    told(r"0 <= low <= high, got \(0.0, nan\)", rule=PPO._replace(negative=(0.0, math.nan)))
    told("rule.through must be one of ratio, logprob, got 'log'", rule=PPO._replace(through="log"))
    told("rule.level must be one of token, sequence, sequence-token, got 'row'", rule=PPO._replace(level="row"))
    told("kl must be one of k1, k2, k3, forward, got 'k4'", kl="k4")
    told("beta must be a finite number, got inf", beta=INF)
    told("beta is 0.1, but the reference log-probabilities are missing", beta=0.1)
    told(r"bounds must increase from 0 to 23 \(tokens\), got \[0, 22\]", *given[:4], torch.tensor([0, 22]))
    # Asked of the check itself, as the tests' annotations would refuse the shapes first
    logprob, old, advantage, weight, bounds = world()
    with pytest.raises(ValueError, match=r"logprob has 23 tokens, the other tensors \[22, 23, 23\]; use one length"):
        _check(logprob, (old[1:], advantage, weight, None, None), bounds, PPO, 0.0, "k3")
