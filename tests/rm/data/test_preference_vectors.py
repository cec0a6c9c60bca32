import numpy as np
import pytest
import torch
from rewardlab.rm.data import preference_vectors as vectors
from rewardlab.rm.errors import UsageError

NAMES = ["helpful", "harmless"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_preference_goes_by_name_also_from_text():
    assert vectors.preference_vector({"harmless": 0.25, "helpful": 0.75}, NAMES).tolist() == [0.75, 0.25]
    both = [{"helpful": 1, "harmless": 0}, {"harmless": 1, "helpful": 0}]
    assert vectors.preference_matrix(both, NAMES).tolist() == [[1, 0], [0, 1]]
    assert vectors.preference_vector({"helpful": 0.33333, "harmless": 0.66666}, NAMES).sum() == 1
    assert vectors.parse_preference("helpful=0.7,harmless=0.3") == {"helpful": 0.7, "harmless": 0.3}
    for wrong in ("helpful", "helpful=much", "", "helpful=1,helpful=0"):
        with pytest.raises(UsageError, match="such as helpful=0.7|twice"):
            vectors.parse_preference(wrong)


def test_what_is_no_preference_is_refused_with_the_way_out():
    for preference, sentence in [
        (None, "a preference is missing; give shares of helpful, harmless"),
        ({"helpful": 0.5, "harmless": 0.6}, "sums to 1.1"),
        ({"helpful": 1.0}, "has no share for harmless; add harmless=0"),
        ({"helpful": float("nan"), "harmless": 0.5}, "shares are >= 0"),
        ({"helpful": 1.5, "harmless": -0.5}, "shares are >= 0"),
        ({"helpful": 0.5, "harmles": 0.5}, "no objective 'harmles' in this model; did you mean 'harmless'"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            vectors.preference_vector(preference, NAMES)


def test_the_grid_holds_every_multiple_of_a_step_once_in_order():
    assert vectors.simplex_grid(2, 10).shape == (11, 2)
    three = vectors.simplex_grid(3, 5)
    assert three.shape == (21, 3) and len(np.unique(three, axis=0)) == 21
    np.testing.assert_allclose(three.sum(1), 1)
    assert (three * 5 == np.round(three * 5)).all() and (three >= 0).all()
    assert [tuple(row) for row in three] == sorted(tuple(row) for row in three)
    assert vectors.simplex_grid(1, 3).tolist() == [[1.0]]
    with pytest.raises(UsageError, match="2 objectives in 0 steps"):
        vectors.simplex_grid(2, 0)


def test_draws_lie_on_the_simplex_with_their_mean_spread_and_share_of_vertices():
    for sampler in (vectors.dirichlet(3), vectors.vertex_sampler(3), vectors.grid_sampler(3, 5)):
        drawn = sampler(500, generator())
        assert drawn.shape == (500, 3) and (drawn >= 0).all(), sampler
        torch.testing.assert_close(drawn.sum(dim=1), torch.ones(500))
        assert torch.equal(drawn, sampler(500, generator())) and not torch.equal(drawn, sampler(500, generator(1)))
    drawn = vectors.dirichlet(2, 0.5, vertices=0.0)(20_000, generator())[:, 0]
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.01)
    assert drawn.var().item() == pytest.approx(0.125, abs=0.003)  # 1 / (4 (2a + 1))
    single = (
        (vectors.dirichlet(2, 5.0, vertices=0.25)(20_000, generator()).max(dim=1).values == 1).float().mean().item()
    )
    assert single == pytest.approx(0.25, abs=0.01)
    assert {*map(tuple, vectors.vertex_sampler(2)(50, generator()).tolist())} == {(0.0, 1.0), (1.0, 0.0)}
    grid = {tuple(np.round(one, 6)) for one in vectors.simplex_grid(2, 4)}
    assert {tuple(np.round(one, 6)) for one in vectors.grid_sampler(2, 4)(200, generator()).tolist()} == grid
    with pytest.raises(UsageError, match="concentration must be > 0"):
        vectors.dirichlet(2, 0.0)
