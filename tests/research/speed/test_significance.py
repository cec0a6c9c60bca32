import numpy as np
import pytest
from rewardlab.benchmarks.statistics.cluster_bootstrap import cluster_draws
from rewardlab.research.speed.significance import Cell, board_differs, main, subsets_differ
from scipy import stats


@pytest.mark.parametrize(("prompts", "tests"), [(30, 27), (100, 27)])
def test_many_tests_of_equal_scorers_are_rarely_significant(prompts, tests):
    cell, random, draws = Cell(prompts, tests), np.random.default_rng(0), cluster_draws(np.arange(prompts), 100)
    most = stats.binom.ppf(0.999, 30, 0.05)
    assert sum(subsets_differ(cell, random, draws) for _ in range(30)) <= most
    assert sum(board_differs(cell, random, draws) for _ in range(30)) <= most


@pytest.mark.slow
def test_false_positives_are_as_rare_as_stated(capsys):
    assert main([]) == 0, capsys.readouterr().out
