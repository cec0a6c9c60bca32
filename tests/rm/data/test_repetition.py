import math

import pytest
from rewardlab.rm.data.text_style import distinct, repetition


def test_repetition_is_the_share_of_phrases_said_before():
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([1, 2, 3, 1, 2, 3]) == pytest.approx(1 / 4)
    assert repetition([7] * 12) == pytest.approx(9 / 10)
    assert repetition([1, 1, 2, 1], n=1) == pytest.approx(1 / 2)
    assert math.isnan(repetition([1, 2])) and math.isnan(repetition([]))


def test_variety_is_the_share_of_different_phrases_of_all_answers():
    assert distinct([["a", "b"], ["a", "c", "a"]]) == pytest.approx(3 / 5)
    assert distinct([["a", "b"], ["a", "b", "a"]], 2) == pytest.approx(2 / 3)  # ab ab ba
    assert math.isnan(distinct([[], []]))
    assert distinct([[1, 2], [1, 2], [1, 2]], 2) == pytest.approx(1 / 3)  # 21 is in none of them
