"""speed/coverage and speed/significance: intervals that hold the truth, and false positives as rare as stated."""

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.cluster_bootstrap import cluster_draws
from rewardlab.research.speed import significance
from rewardlab.research.speed.coverage import Cell, SectionCell, measure_cell, measure_sections
from rewardlab.research.speed.significance import board_differs, main, subsets_differ
from scipy import stats


def test_the_interval_of_very_unequal_sections_covers_the_truth():
    measured = measure_sections(SectionCell((20, 500), (0.97, 0.97)), data_sets=300, samples=300)
    assert measured.accuracy > 0.93 and measured.as_equal < 0.6


@pytest.mark.parametrize("cell", [Cell(0.97, 0.3, 30, 4), Cell(0.99, 0.3, 100, 4), Cell(0.99, 0.0, 350, 1)], ids=str)
def test_intervals_near_the_edge_cover_the_truth_where_percentiles_do_not(cell):
    found = measure_cell(cell, data_sets=1000, samples=400)
    assert 0.925 <= found.accuracy <= 0.985 and found.percentile < 0.9


@pytest.mark.parametrize(("prompts", "tests"), [(30, 27), (100, 27)])
def test_many_tests_of_equal_scorers_are_rarely_significant(prompts, tests):
    cell, random = significance.Cell(prompts, tests), np.random.default_rng(0)
    draws = cluster_draws(np.arange(prompts), 100)
    most = stats.binom.ppf(0.999, 30, 0.05)
    assert sum(subsets_differ(cell, random, draws) for _ in range(30)) <= most
    assert sum(board_differs(cell, random, draws) for _ in range(30)) <= most


@pytest.mark.slow
def test_false_positives_are_as_rare_as_stated(capsys):
    assert main([]) == 0, capsys.readouterr().out
