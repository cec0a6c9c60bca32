from rewardlab.research.speed.coverage import Cell, SectionCell, measure_cell, measure_sections


def test_intervals_near_the_edge_cover_the_truth_where_percentiles_do_not():
    for cell in [Cell(0.97, 0.3, 30, 4), Cell(0.99, 0.3, 100, 4), Cell(0.99, 0.0, 350, 1)]:
        found = measure_cell(cell, data_sets=1000, samples=400)
        assert 0.925 <= found.accuracy <= 0.985 and found.percentile < 0.9, cell


def test_the_interval_of_very_unequal_sections_covers_the_truth():
    measured = measure_sections(SectionCell((20, 500), (0.97, 0.97)), data_sets=300, samples=300)
    assert measured.accuracy > 0.93 and measured.as_equal < 0.6
