"""Effects of counterfactual responses on models whose rewards are formulas."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from rewardlab.benchmarks.explanation.counterfactuals import MOST_PARTS
from rewardlab.benchmarks.explanation.explain import explain
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.types import Steps, completion_text, user_turn

PROMPT = user_turn("question")
LONG, SHORT = "One two three four. Five six seven eight. Nine ten.", "Six words are in this text."


class Formula:
    """A reward model whose rewards are a function of the text."""

    def __init__(self, *functions):
        self.functions = functions
        self.contract = ScoringContract(kind="scalar", objectives=tuple(f"r{k}" for k in range(len(functions))))
        self.texts: list[str] = []

    def rate(self, examples):
        self.texts += [example.text for example in examples]
        return np.array([[f(example.text) for f in self.functions] for example in examples], float)


def causes(model, *texts, objective=0):
    explanation = explain("rm", model, PROMPT, texts)
    return explanation, {cause.name: float(cause.values[objective]) for cause in explanation.attribution.causes}


def test_characters_that_count_are_length_and_no_word_has_an_effect():
    explanation, values = causes(Formula(len), LONG, SHORT)
    assert values["length"] == pytest.approx(len(LONG) - len(SHORT), abs=6)  # ends of words
    assert max(abs(value) for name, value in values.items() if name != "length") <= 6
    assert explanation.lead(0).startswith("Length explains") and "for the first response" in explanation.lead(0)
    assert causes(Formula(len), SHORT, LONG)[0].lead(0).endswith("for the second response (27 against 51 characters).")


def test_sentences_that_all_count_are_the_amount_of_content_and_not_length():
    numbers = {*["one", "two", "three", "four", "five", "six", "seven", "ten"]}
    model = Formula(lambda text: len({*re.findall(r"\w+", text.lower())} & numbers))
    explanation, values = causes(model, "One two three. Four five six. Seven ten.", "Six words are here.")
    assert values["the amount of content"] >= 3 and abs(values["length"]) <= 1
    assert explanation.ranked(0)[0].name == "the amount of content"


def test_markdown_that_counts_is_format():
    model = Formula(lambda text: text.count("**"))
    explanation, values = causes(model, "**One** and **two**.", "One and two.")
    assert values["Markdown formatting"] == 4.0 and explanation.remainder == pytest.approx(0)


def test_a_first_sentence_that_counts_is_order():
    explanation, values = causes(Formula(lambda text: text.startswith("Six")), "Six. Two. One.", "One. Two. Six.")
    assert values["the order of the sentences"] == 1.0
    assert explanation.ranked(0)[0].name == "the order of the sentences"
    assert explanation.remainder == pytest.approx(0)


def test_a_word_is_named_in_both_responses_and_apart_from_length():
    model = Formula(lambda text: 3 * re.findall(r"\w+", text.lower()).count("six") + len(text) / 10)
    explanation, values = causes(model, "Two six words six here.", "Six of one.")
    assert values["the word 'six'"] == pytest.approx(3.0, abs=0.3)
    pieces = dict(
        zip(explanation.attribution.pieces[0].texts, explanation.attribution.pieces[0].values[0], strict=True)
    )
    assert pieces["six "] == pytest.approx(3.0, abs=0.2)
    assert explanation.attribution.pieces[1].values[0][0] == pytest.approx(-3.0, abs=0.2)


def test_of_a_long_response_sentences_are_removed_and_then_the_words_of_the_strongest():
    text = " ".join(f"W{2 * k}x w{2 * k + 1}y." for k in range(MOST_PARTS)) + " Here is kano."
    model = Formula(lambda text: 5.0 * ("w9y" in text))
    explanation, values = causes(model, text, "short")
    assert values["the word 'w9y'"] == 5.0 and explanation.remainder == pytest.approx(0)
    pieces = explanation.attribution.pieces[0]
    assert "".join(pieces.texts) == text and "W0x w1y. " in pieces.texts and "W8x " in pieces.texts
    assert np.isnan(pieces.values[0, -1]) and pieces.note == "3 words at the end were not tested."


def test_what_interacts_is_not_explained():
    both = Formula(lambda text: 4.0 * ("left" in text and "right" in text))
    explanation, values = causes(both, "go left or right as you like it", "go up or down as you like it")
    assert values["the word 'left'"] == values["the word 'right'"] == 4.0
    assert explanation.remainder == pytest.approx(-4.0)
    either = Formula(lambda text: 4.0 * ("left" in text or "right" in text))
    explanation, _ = causes(either, "go left or right as you like it", "go up or down as you like it")
    assert explanation.remainder == pytest.approx(4.0)
    assert explanation.lead(0) == "None of the tested causes explains the margin of 4 for the first response."


def test_objectives_have_causes_of_their_own():
    model = Formula(len, lambda text: "six" in text)
    explanation, values = causes(model, LONG, SHORT, objective=1)
    assert values["the word 'six'"] == 1.0 and explanation.lead(0) != explanation.lead(1)


def test_responses_that_are_no_plain_text_are_read_as_text_first():
    model = SimpleNamespace(contract=ScoringContract(kind="process"))
    model.rate = lambda examples: np.array([[2.0 * isinstance(item.completion, Steps)] for item in examples])
    explanation = explain("rm", model, PROMPT, (Steps(("One.", "Two.")), "One."))
    assert explanation.lead(0).startswith(
        "Parts other than plain text, such as tool calls explains 2 of the margin of 2"
    )
    assert completion_text(Steps(("One.", "Two."))) == "".join(explanation.attribution.pieces[0].texts)


def test_equal_rewards_and_empty_responses_have_sentences():
    assert causes(Formula(lambda text: 1.0), LONG, SHORT)[0].lead(0) == "Both responses have the same reward."
    explanation, values = causes(Formula(len), "Alone", "")
    assert values["length"] == 5.0 and np.isnan(explanation.attribution.pieces[0].values).all()


def test_the_number_of_texts_is_bounded():
    model = Formula(len)
    causes(model, "Word after word. " * 500, " ".join(f"w{k}." for k in range(500)))
    assert len(model.texts) < 2 * (3 * MOST_PARTS)
