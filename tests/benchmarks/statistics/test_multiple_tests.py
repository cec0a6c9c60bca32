import numpy as np
import pytest
from rewardlab.benchmarks.statistics.multiple_tests import holm, holm_levels, tied_groups


def test_adjusted_p_and_levels_by_hand():
    p = np.array([0.04, 0.01, 0.5, 0.02])
    # in order 0.01, 0.02, 0.04, 0.5 times 4, 3, 2, 1, never falling: 0.04, 0.06, 0.08, 0.5
    assert holm(p) == pytest.approx([0.08, 0.04, 0.5, 0.06])
    assert holm(np.array([0.4, 0.6, 0.5])).tolist() == [1.0, 1.0, 1.0]
    assert holm(np.array([0.04, 0.01]), tests=6) == pytest.approx([0.2, 0.06])  # times 5 and 6
    # 5 % over 4, 3, 2 and 1, from the smallest p on; of equal p the first is the smaller.
    levels = [1 - 0.05 / 2, 1 - 0.05 / 4, 0.95, 1 - 0.05 / 3]
    assert holm_levels(np.array([0.04, 0.01, 0.5, 0.02])) == pytest.approx(levels)
    assert holm_levels(np.array([0.2, 0.2])) == pytest.approx([0.975, 0.95])


def test_what_holm_rejects_is_rejected_at_its_level():
    for seed in range(20):
        p = np.random.default_rng(seed).random(8) ** 3
        assert (p < 1 - holm_levels(p))[holm(p) < 0.05].all(), seed


def two_sided_p(samples: np.ndarray) -> float:
    """Twice the smaller share of samples beyond 0, above 0."""
    return min(1.0, 2 * (min((samples <= 0).sum(), (samples >= 0).sum()) + 1) / (len(samples) + 1))


def grouped(values: list[float], samples: np.ndarray) -> list[str]:
    """The groups of scorers a, b, ..., whose figures have these bootstrap samples [S, N]."""
    columns = dict(zip("abcd", samples.T, strict=False))
    figures = dict(zip("abcd", values, strict=False))
    return ["".join(group) for group in tied_groups(figures, lambda i, j: two_sided_p(columns[i] - columns[j]))]


def test_ranks_are_led_by_the_best_that_is_left():
    # a and b differ by noise alone, c is surely below both, d is below c by noise alone
    noise = np.random.default_rng(0).normal(size=(1000, 4)) * 0.01
    values = [0.60, 0.90, 0.59, 0.895]
    assert grouped(values, values + noise) == ["bd", "ac"]
    assert grouped(values, values + 0 * noise) == ["b", "d", "a", "c"]
    assert grouped(values[:1], values[:1] + noise[:, :1]) == ["a"] and not tied_groups({}, lambda *_: 0.0)
    # b does not differ significantly from a, nor c from b; but c is surely below a, and leads the next rank
    samples = np.random.default_rng(0).normal([0.03, 0.015, 0.0], 0.007, (2000, 3))
    assert grouped([0.03, 0.015, 0.0], samples) == ["ab", "c"]
    for p, groups in [(0.016, [["a"], ["b"], ["c"]]), (0.018, [["a", "b", "c"]])]:
        assert tied_groups({"a": 0.9, "b": 0.8, "c": 0.7}, lambda *_, p=p: p) == groups


def test_baselines_do_not_count_for_the_models():
    values = {"a": 0.9, "b": 0.8, "longest": 0.5, "random": 0.4}

    def p_value(first: str, second: str) -> float:
        return 0.04 if (first, second) == ("a", "b") else 1.0

    assert tied_groups(values, p_value) == [["a", "b", "longest", "random"]]
    assert tied_groups(values, p_value, lambda name: len(name) > 1) == [["a", "longest", "random"], ["b"]]
    # each of two baselines might have been compared with each of two models: four pairs
    tests = [
        tied_groups(values, lambda first, second, p=p: p if second == "random" else 1.0, lambda name: len(name) > 1)
        for p in (0.012, 0.013)
    ]
    assert tests == [[["a", "b", "longest"], ["random"]], [["a", "b", "longest", "random"]]]
