import json

import numpy as np
import pytest
from rewardlab.apps.inspector.tabs.judgments.explanation import queries as why
from rewardlab.apps.inspector.tabs.judgments.explanation.figures import objectives_figure
from rewardlab.apps.inspector.texts import tokens
from rewardlab.benchmarks.explanation.types import Attribution, Cause, Explanation, Pieces
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.types import Example, user_turn

from tests.apps.inspector.gallery import save_base

PROMPT = user_turn("tell me about bees")
LABELS = ("response 1", "response 3")


def explanation_of(causes, rewards, pieces=(("a",), ("b",)), objectives=("reward",)) -> Explanation:
    """An explanation in which each piece has the value 1, 2 and so on, against the second response."""
    values = [np.arange(1.0, 1 + len(texts))[None].repeat(len(objectives), 0) for texts in pieces]
    first, second = (
        Pieces(tuple(texts), sign * value) for texts, value, sign in zip(pieces, values, (1, -1), strict=True)
    )
    attribution = Attribution(tuple(causes), (first, second), "It is a sum.")
    return Explanation("rm", "abc", objectives, LABELS, np.array(rewards, float), attribution)


def test_the_main_cause_is_a_sentence_and_all_causes_and_the_remainder_are_a_table():
    causes = [
        Cause("the word '<b>'", np.array([0.4])),
        Cause("length", np.array([-1.8]), "36 against 2,687 characters"),
    ]
    page = why.explanation_html(explanation_of(causes, [[-1.0], [1.1]]), 0, ["A note."])
    lead = "Length explains 1.8 of the margin of 2.1 for response 3 (36 against 2,687 characters)."
    assert lead in page and page.index("lead") < page.index(">length") < page.index("the word &#x27;&lt;b&gt;&#x27;")
    assert ">not explained<" in page and ">-0.7<" in page and ">-2.1<" in page and "A note." in page
    assert "Response 3" in page and "The causes sum" not in page and "<b>" not in page


def test_causes_that_sum_to_the_margin_say_so_and_have_no_remainder():
    page = why.explanation_html(explanation_of([Cause("length", np.array([2.0]))], [[3.0], [1.0]]), 0)
    assert "The causes sum to the margin (up to 0)." in page and "not explained" not in page


def test_one_colour_stands_for_each_response_in_words_causes_and_legend():
    """Words that raised the reward were blue and sentences that lowered it were blue."""
    causes = [Cause("length", np.array([2.0])), Cause("order", np.array([-1.0]))]
    page = why.explanation_html(explanation_of(causes, [[3.0], [2.0]]), 0)
    colours = [line.split(";")[0] for line in page.split('style="--c:')[1:]]
    assert colours == [tokens.UP, tokens.DOWN, tokens.UP, tokens.DOWN]
    assert "for response 3 -" in page and "reward for response 1" in page


def test_four_thousand_words_are_half_a_megabyte_and_unmeasured_ones_are_underlined():
    explanation = explanation_of([], [[0.0], [0.0]], (("word ",) * 4000, ("x",)))
    page = why.explanation_html(explanation, 0)
    assert page.count("<i ") == 4001 and len(page) < 500_000
    unknown = explanation.attribution.pieces[0]._replace(values=np.full((1, 4000), np.nan), note="None was removed.")
    attribution = explanation.attribution._replace(pieces=(unknown, explanation.attribution.pieces[1]))
    page = why.explanation_html(explanation._replace(attribution=attribution), 0)
    assert page.count('class="unread" title="not removed"') == 4000 and "None was removed." in page


def test_the_objectives_are_a_figure():
    explanation = explanation_of([], [[3.0, 1.0], [5.0, 0.0]], objectives=("<b>kind</b>", "safe"))
    bars = objectives_figure(explanation)
    assert [*bars.data[1].y] == [5.0, 0.0] and bars.data[0].x[0] == "&lt;b&gt;kind&lt;/b&gt;"
    assert bars.data[1].name == "Response 3"


def explained(rewards, objectives=("reward",)) -> Explanation:
    return explanation_of([], rewards, objectives=objectives)


def test_the_scores_of_the_run_are_compared_under_the_same_contract():
    contracts, scores = {"old": "abc", "other": "xyz"}, {"old": (1.0, 2.0), "other": (9.0, 9.0)}
    assert "These are the scores of 'old'" in why.stored_scores_note(explained([[1.0], [2.0]]), contracts, scores)
    assert "differ by 0.5: the model" in why.stored_scores_note(explained([[1.0], [2.5]]), contracts, scores)
    assert "No score in this run" in why.stored_scores_note(explained([[1.0], [2.0]]), {"other": "xyz"}, scores)
    assert "No score in this run" in why.stored_scores_note(explained([[1.0], [2.0]]), {"old": "abc"}, {"old": ()})
    both = explained([[0.0, 2.0], [2.0, 2.0]], ("helpful", "harmless"))
    assert "These are" in why.stored_scores_note(both, {"rm": "abc"}, {"rm": (1.0, 2.0)})
    assert "These are" in why.stored_scores_note(both, {"rm": "abc"}, {"rm": (0.0, 2.0)}, "helpful")


def test_the_length_term_of_a_controlled_training_is_added_to_the_margin(tmp_path):
    """d = 3 tokens with a = 2 and s = 3: 2 tanh(1) = 1.523."""
    model = load_autoregressive(save_base(tmp_path / "base"), beta=1.0)
    pair = (Example(PROMPT, "bees bees bees bees"), Example(PROMPT, "bees"))
    assert why.length_term_note(tmp_path, model, pair, 1.0) == ""
    (tmp_path / "manifest.json").write_text(json.dumps({"length_term": {"overall": {"weight": 2, "scale": 3}}}))
    note = why.length_term_note(tmp_path, model, pair, 1.0)
    assert "length alone explained +1.523 of" in note and "with it the margin is +2.523." in note
    (tmp_path / "manifest.json").write_text(json.dumps({"length_term": {"a": {"weight": 2}}}))
    assert why.length_term_note(tmp_path, model, pair, 1.0) == ""


def test_colours_are_full_where_most_values_lie_within_and_a_hostile_token_is_text():
    scale = tokens.scale_of([np.linspace(-1, 1, 201)], quantile=0.95)
    assert scale == tokens.Scale(0.0, pytest.approx(0.95))
    assert [scale.share(value) for value in (-9.0, 0.0, 0.475)] == pytest.approx([-1, 0, 0.5])
    assert tokens.scale_of([]) == tokens.scale_of([np.zeros(3)]) == tokens.Scale(0.0, 1.0)
    assert tokens.shades([1.0, -1.0], tokens.Scale(0.0, 2.0)) == [(tokens.UP, 0.5), (tokens.DOWN, 0.5)]
    page = tokens.heat_html(["<script>", '"><img src=x onerror=1>', "\n"], [tokens.Shade("#000", 0.1)] * 3, ['a"b'] * 3)
    assert "<script>" not in page and "<img" not in page and "↵\n" in page and 'title="a&quot;b"' in page
