"""Counterfactual texts: what they keep and what they change."""

from rewardlab.benchmarks.explanation import edits
from rewardlab.benchmarks.explanation.edits import parts_of

TEXTS = ('He said "no." Then left.', "a\nb\n\nc", "", "  . ", "好。是吗？好", "3.5 is not. It is", "a" * 90)


def test_sentences_and_words_join_to_the_text():
    for text in TEXTS:
        assert "".join(edits.sentences(text)) == text
        assert "".join(word for sentence in parts_of(text).sentences for word in sentence) == text
        assert "".join(edits.words(text)) == text


def test_markdown_goes_and_code_and_text_stay():
    assert edits.plain("2 * 3 * 4 = snake_case - 1") == "2 * 3 * 4 = snake_case - 1"
    assert edits.plain("## A\n\n> **b** and ~~c~~\n10) d") == "A\n\nb and c\nd"
    assert edits.plain("```\n# x\n- y\n") == "# x\n- y\n"


def test_texts_of_another_length_end_with_whole_words():
    assert edits.shortened("one two three", 5) == "one two" and edits.shortened("one two", 99) == "one two"
    assert edits.repeated("one two", 18) == "one two one two one"
    for length in (0, 7, 50, 700):
        padded = edits.padded("one two", length)
        assert padded.startswith("one two") and abs(len(padded) - max(7, length)) < 12
    assert edits.repeated("", 9).strip() == ""


def test_orders_are_rotations_at_equal_distances_and_gaps_stay_in_place():
    parts = parts_of("A a.\nB b. C c.")
    assert parts.orders(6) == [[0, 1, 2], [1, 2, 0], [2, 0, 1]] and parts.orders(1) == [[0, 1, 2]]
    assert [parts.text(order) for order in parts.orders(6)] == ["A a.\nB b. C c.", "B b.\nC c. A a.", "C c.\nA a. B b."]
    assert len(parts_of("One. " * 40).orders(6)) == 6 and parts_of("").orders(6) == [[]]


def test_removed_words_leave_their_punctuation_and_removed_sentences_their_neighbours():
    parts = parts_of("One two, three. Four **five**!")
    assert parts.text(without={(0, 1)}) == "One, three. Four five!"
    assert parts.text(without={(0, 2)}) == "One two. Four five!"
    assert parts.text(without={*parts.indices(1)}) == "One two, three."
    assert parts.text([1, 0], {*parts.indices(0)}) == "Four five!"


def test_words_beyond_a_length_are_the_last_ones_of_an_order():
    parts = parts_of("One two. Four five.")
    assert parts.beyond([0, 1], 9) == {(1, 0), (1, 1)}
    assert parts.beyond([1, 0], 10) == {(0, 0), (0, 1)} and parts.beyond([0, 1], 99) == set()
