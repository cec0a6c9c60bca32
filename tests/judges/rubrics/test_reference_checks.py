"""judges/rubrics/reference_checks.py: contents and styles worked out by hand."""

import pytest
from rewardlab.judges.rubrics.reference_checks import (
    FormCheck,
    checks_of,
    content_score,
    find_keywords,
    key_points,
    longest_common,
    style_score,
)

REFERENCE = "The sun heats the sea; water rises, cools and falls as rain on the sea."


def test_keywords_are_whole_words_and_content_their_share_in_the_references_order():
    assert find_keywords("Rain, then rainfall, then SEA-rain.", ["sea", "rain"]) == ["rain", "sea", "rain"]
    assert find_keywords("ice cream on ice", ["ice", "ice cream"]) == [
        "ice cream",
        "ice",
    ]  # the longer wording is read first
    assert find_keywords("a+b is not ab", ["a+b"]) == ["a+b"] and find_keywords("anything", []) == []
    for first, second, common in [("", "ab", 0), ("abc", "abc", 3), ("abcbdab", "bdcaba", 4)]:
        assert longest_common(first, second) == common == longest_common(second, first)
    # In the reference the keywords stand as sun, sea, rain, sea.
    for answer, share in [
        ("sun, sea, rain, sea", 1.0),
        ("sun and rain", 2 / 4),
        ("rain, sea, sun", 2 / 4),  # only rain before sea is in the reference's order
        ("sun sea rain sea sea sea sea sea", 4 / 8),  # saying a word more often than the reference costs
        ("sunny rainfall", 0.0),
        ("", 0.0),
    ]:
        assert content_score(answer, [REFERENCE], [[["sun", "sea", "rain"]]]) == share
    points = [[["sun"], ["rain"]], [["cools", "falls"]]]
    assert content_score("rain cools", [REFERENCE], points) == (1 + 1 / 2) / 2
    assert content_score("rain cools", [REFERENCE, "It cools."], points) == (1 + 1) / 2
    assert content_score("rain cools", ["Nothing of it."], points) == 0.0
    with pytest.raises(ValueError, match="content needs a reference and a key point, got 1 and 0"):
        content_score("a", ["b"], [])


def test_style_adds_up_the_weights_of_the_checks_that_pass():
    checks = [
        FormCheck(0.4, has=r"^- "),
        FormCheck(0.3, lacks="(?i)as an ai"),
        FormCheck(0.2, least=2, most=4),
        FormCheck(0.1, most=1),
    ]
    assert style_score("- one two three", checks) == pytest.approx(0.9)
    assert style_score("As an AI I say so", checks) == 0.0
    assert style_score("one", checks) == pytest.approx(0.3 + 0.1) and style_score("one", []) == 0.0


def test_points_and_checks_of_another_shape_are_refused():
    assert key_points([[["a", "b"], ["c"]]]) == ((("a", "b"), ("c",)),)
    assert checks_of([{"weight": 1, "has": "x", "most": 3}]) == (FormCheck(1, has="x", most=3),) and checks_of([]) == ()
    for values in [[], "a", ["a"], [["a"]], [[[]]], [[["a", ""]]], [[["a"], []]], [[[1]]]]:
        with pytest.raises(
            ValueError, match="keywords must be a list of points, each a list of wordings, each a list of"
        ):
            key_points(values)
    for values, message in [
        ({}, "checks must be a list of objects, got {}"),
        ([{"has": "x"}], "check 1 must have a weight and some of has, lacks, least, most"),
        ([{"weight": 1, "code": "def f(): ..."}], "check 1 must have a weight and some of"),
        ([{"weight": 1, "has": "x"}, {"weight": 1, "has": "("}], "check 2: not a regular expression"),
        ([{"weight": 1, "most": "3"}], "check 1: 'most' has the wrong type, got '3'"),
        ([{"weight": 1}], "check 1 has no condition"),
    ]:
        with pytest.raises(ValueError, match=message):
            checks_of(values)
