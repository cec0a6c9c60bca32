import math

import pytest
import torch
from rewardlab.rm.errors import UsageError
from rewardlab.rm.losses.sequence_logistic import FORMS, sequence_logistic
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

NAN = float("nan")
GAP = torch.tensor([3.0, -40.0, 0.5, 0.0], dtype=torch.float64)
WINS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.3], [0.5, 0.5]], dtype=torch.float64)
ALPHA = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.0, 1.0], [0.3, 0.7]], dtype=torch.float64)


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def test_one_objective_is_genarms_loss_and_does_not_start_at_ln_2():
    """Log-probabilities of -112 and -76 at β_r = 0.01: no reference takes the difference away."""
    row = torch.tensor([-112.0 + 76.0]), torch.tensor([[1.0]]), torch.tensor([[1.0]])
    assert sequence_logistic(0.01, weight=0.0)(*row).item() == pytest.approx(softplus(0.36), abs=1e-6)
    assert softplus(0.36) == pytest.approx(0.889, abs=1e-3)
    # one objective: the global term is the same
    assert sequence_logistic(0.01)(*row).item() == pytest.approx(1.5 * softplus(0.36), abs=1e-6)


def test_the_weighted_sum_over_objectives_is_one_soft_label():
    """Σ_i α_i l_i = BCE(β_r Δ, t) with t = Σ_i α_i t_i."""
    beta = 0.7
    won, lost = logsigmoid(beta * GAP), logsigmoid(-beta * GAP)
    each = sum(ALPHA[:, i] * (-WINS[:, i] * won - (1 - WINS[:, i]) * lost) for i in range(2))
    soft = binary_cross_entropy_with_logits(beta * GAP, (ALPHA * WINS).sum(1), reduction="none")
    found = sequence_logistic(beta, weight=0.0)(GAP, WINS, ALPHA)
    torch.testing.assert_close(found, each)
    torch.testing.assert_close(found, soft)


def test_a_tie_has_no_global_term():
    even = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    for form in ("scalarised", "mixed_label"):
        with_it, without = (sequence_logistic(0.1, weight=w, form=form)(GAP[:1].float(), *even) for w in (1.0, 0.0))
        assert with_it.item() == without.item(), form


def test_global_forms_by_hand():
    gap, wins, alpha = torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.75, 0.25]])
    plain = sequence_logistic(0.5, weight=0.0)(gap, wins, alpha).item()
    assert plain == pytest.approx(0.75 * softplus(-1) + 0.25 * softplus(1), abs=1e-6)
    added = {
        "scalarised": softplus(-0.5 * 0.5 * 2),
        "mixed_label": softplus(-0.5 * 2),
        "vertices": softplus(0.5 * 3),  # Δ = 3 at the vertex of the second objective, which prefers the other answer
        "scores": softplus(0.5 * 2 + 0.5),  # q = 0.75 * 1 - 0.25 * 5 = -0.5
    }
    extra = {"vertex": torch.tensor([[0.0, 1.0]]), "vertex_gap": torch.tensor([3.0])}
    extra |= {"scores": torch.tensor([[1.0, -5.0]])}
    for form in FORMS:
        value = sequence_logistic(0.5, weight=2.0, form=form)(gap, wins, alpha, **extra).item()
        assert value == pytest.approx(plain + 2 * added[form], abs=1e-6), form


def test_an_objective_without_a_label_says_nothing_and_neither_does_an_ignored_tie():
    for form in ["scalarised", "mixed_label"]:
        loss, plain = sequence_logistic(0.3, form=form), sequence_logistic(0.3, weight=0.0)
        wins, alpha = torch.tensor([[1.0, NAN]]), torch.tensor([[0.6, 0.4]])
        gap = torch.tensor([0.7], requires_grad=True)
        assert plain(gap, wins, alpha).item() == pytest.approx(0.6 * softplus(-0.21), abs=1e-6)
        loss(gap, wins, alpha).backward()
        assert torch.isfinite(gap.grad).all(), form
        assert loss(gap, wins, torch.tensor([[0.0, 1.0]])).item() == 0, form
    gap, alpha = torch.tensor([3.0]).double(), torch.tensor([[0.6, 0.4]]).double()
    tie, missing = torch.tensor([[1.0, 0.5]]).double(), torch.tensor([[1.0, NAN]]).double()
    for form in ("scalarised", "mixed_label"):
        ignoring = sequence_logistic(0.1, form=form, ignore_ties=True)
        assert ignoring(gap, tie, alpha).item() == sequence_logistic(0.1, form=form)(gap, missing, alpha).item()
        assert ignoring(gap, tie, alpha).item() != sequence_logistic(0.1, form=form)(gap, tie, alpha).item()


def test_label_smoothing_margin_and_a_beta_for_each_objective_by_hand():
    gap, one = torch.tensor([2.0]), torch.tensor([[1.0]])
    smoothed = sequence_logistic(0.5, weight=0.0, label_smoothing=0.1)(gap, one, one).item()
    assert smoothed == pytest.approx(0.9 * softplus(-1) + 0.1 * softplus(1), abs=1e-6)
    assert sequence_logistic(0.5, weight=0.0, margin=1.0)(gap, one, one).item() == pytest.approx(math.log(2), abs=1e-6)
    # β of 0.1 and 0.3, Δ = 5: 0.6 · 2 · softplus(-0.5) + 0.4 · (2/3) · softplus(1.5); at Δ = 0 all pull alike.
    loss = sequence_logistic([0.1, 0.3], weight=0.0)
    wins, alpha = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.6, 0.4]]).double()
    value = loss(torch.tensor([5.0]).double(), wins, alpha).item()
    assert value == pytest.approx(0.6 * 2 * softplus(-0.5) + 0.4 * 2 / 3 * softplus(1.5))
    pulls = []
    for vertex in torch.eye(2).double():
        gap = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        loss(gap, torch.ones(1, 2).double(), vertex[None]).sum().backward()
        pulls.append(gap.grad.item())
    assert pulls == [pytest.approx(-0.1), pytest.approx(-0.1)]  # -β̄ / 2


def test_gradients_are_those_of_the_formula_and_settings_that_mean_nothing_are_refused():
    gap = GAP.clone().requires_grad_()
    scores = torch.tensor([[1.0, -2.0], [0.5, 0.5], [0.0, -0.4], [2.0, 1.0]], dtype=torch.float64)
    for form in ("scalarised", "mixed_label", "scores"):
        loss = sequence_logistic(0.4, form=form)
        assert torch.autograd.gradcheck(lambda gap, loss=loss: loss(gap, WINS, ALPHA, scores=scores), (gap,)), form
    betas = [{"beta": beta} for beta in (0.0, [0.1, -1.0], [])]
    for wrong in (*betas, {"weight": -1.0}, {"label_smoothing": 0.5}, {"form": "hinge"}):
        with pytest.raises(UsageError, match="global form must be one of scalarised|beta must be > 0"):
            sequence_logistic(**wrong)
