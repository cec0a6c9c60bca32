from types import SimpleNamespace

import numpy as np
import pytest
from rewardlab.apps.inspector.html import LONGEST
from rewardlab.apps.inspector.tabs.judgments.explanation import queries as why
from rewardlab.apps.inspector.texts import tokens
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.implicit.model import load_implicit
from rewardlab.rm.types import Example, user_turn

from tests.apps.inspector.gallery import save_base

ASKED = user_turn("tell me about bees")
TWO = ("bees about herbs", "friend describe ponds")


class CountsWords:
    """The reward is the number of words, and minus the number of letters `x`."""

    contract = ScoringContract(kind="linear", objectives=("words", "plain"))

    def rate(self, examples):
        return np.array([[len(one.completion.split()), -one.completion.count("x")] for one in examples], float)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return save_base(tmp_path_factory.mktemp("why") / "base")


def test_the_tokens_of_an_autoregressive_model_add_up_to_its_rewards(base):
    model = load_autoregressive(base, beta=0.5)
    found = why.explain("arm", model, ASKED, TWO)
    assert found.by_token and found.objectives == ("reward",) and found.beta == 0.5
    assert why.sum_error(found) < 1e-4
    logprobs = model.logprobs([Example(ASKED, TWO[0])])[0]
    np.testing.assert_allclose(found.parts[0].values, 0.5 * logprobs[None])
    assert found.parts[0].pieces == ("bees", " about", " herbs", "</s>")


def test_a_model_that_follows_a_preference_is_read_at_each_objective(base):
    settings = AdapterSettings(kind="moslora", objectives=("helpful", "harmless"), embedding="random")
    found = why.explain("arm", load_autoregressive(base, beta=0.1, adapter=settings), ASKED, TWO)
    assert found.objectives == ("helpful", "harmless") and found.parts[1].values.shape[0] == 2
    assert why.sum_error(found) < 1e-4


def test_the_tokens_of_an_implicit_reward_are_log_ratios(base, tmp_path):
    found = why.explain(
        "dpo", load_implicit(save_base(tmp_path / "policy", seed=7), reference=base, beta=0.3), ASKED, TWO
    )
    assert why.sum_error(found) < 1e-4 and "log π - log π_ref in nats, β = 0.3" in why.explanation_html(found, 0)
    assert {*np.sign(np.concatenate([part.values[0] for part in found.parts]))} == {-1.0, 1.0}


def test_a_sum_that_is_not_the_reward_is_told_and_four_thousand_tokens_are_half_a_megabyte():
    part = why.TokenRewards(("a", "b"), np.array([[1.0, 2.0]]), 3)
    found = why.Explanation("m", "k", "c", ("reward",), np.array([[3.5]]), (part,), 1.0)
    page = why.explanation_html(found, 0)
    assert why.sum_error(found) == 0.5 and "do NOT add up to the reward: they are off by 0.5" in page
    assert "3 tokens at the beginning did not fit" in page and 'title="+2.0000, sum +3.0000"' in page
    part = why.TokenRewards(("word ",) * 4000, np.linspace(-1, 1, 4000)[None], 0)
    found = why.Explanation("m", "k", "c", ("reward",), np.array([[0.0]]), (part,), 1.0)
    page = why.explanation_html(found, 0)
    assert page.count("<i ") == 4000 and len(page) < 500_000


def test_the_running_sums_and_the_objectives_are_figures():
    part = why.TokenRewards(("a", "b", "c"), np.array([[1.0, -2.0, 4.0]]), 0)
    rewards = np.array([[3.0, 1.0], [5.0, 0.0]])
    found = why.Explanation("m", "k", "c", ("<b>kind</b>", "safe"), rewards, (part, part), 1.0)
    sums = why.sums_figure(found, 0)
    assert [*sums.data[1].y] == [1.0, -1.0, 3.0] and sums.layout.yaxis.title.text == "reward so far"
    bars = why.objectives_figure(found)
    assert [*bars.data[1].y] == [5.0, 0.0] and bars.data[0].x[0] == "&lt;b&gt;kind&lt;/b&gt;"


TEXTS = ('He said "no." Then left.', "a\nb\n\nc", "", "  . ", "好。是吗？好", "3.5 is not. It is")


def test_sentences_add_up_to_the_text_and_count_by_what_the_reward_becomes_without_them():
    assert ["".join(why.sentences(text)) for text in TEXTS] == [*TEXTS]
    found = why.explain("words", CountsWords(), ASKED, ("One two three. Four x.", "Alone"))
    assert not found.by_token
    np.testing.assert_array_equal(found.parts[0].values, [[-3.0, -2.0], [0.0, 1.0]])
    assert np.isnan(found.parts[1].values).all()
    page = why.explanation_html(found, 0)
    assert 'title="without it -3.0000"' in page and "nothing would remain without it" in page


def test_sentences_beyond_the_first_sixty_are_told_and_not_tried():
    asked = []
    model = SimpleNamespace(rate=lambda examples: asked.extend(examples) or np.zeros((len(examples), 1)))
    text = "".join(f"Number {place}. " for place in range(64))
    found = why.sentence_effects(model, Example(ASKED, text), np.zeros(1))
    assert len(asked) == 60 and found.untried == 4 and "".join(found.sentences) == text
    many = why.sentence_effects(model, Example(ASKED, "x. " * 500_000), np.zeros(1))
    assert len(many.sentences) == 2 and many.untried == 499_999
    one = why.Explanation("m", "k", "c", ("reward",), np.zeros((1, 1)), (many,))
    assert len(why.explanation_html(one, 0)) < 2 * LONGEST


def explained(rewards, objectives=("reward",)) -> why.Explanation:
    part = why.SentenceEffects(("a",), np.zeros((len(objectives), 1)), 1)
    return why.Explanation("rm", "scalar", "abc", objectives, np.array(rewards, float), (part, part))


def test_the_scores_of_the_run_are_compared_under_the_same_contract():
    contracts, scores = {"old": "abc", "other": "xyz"}, {"old": (1.0, 2.0), "other": (9.0, 9.0)}
    assert "These are the scores of 'old'" in why.stored_scores_note(explained([[1.0], [2.0]]), contracts, scores)
    assert "differ by 0.5: its weights" in why.stored_scores_note(explained([[1.0], [2.5]]), contracts, scores)
    assert "No score in this run" in why.stored_scores_note(explained([[1.0], [2.0]]), {"other": "xyz"}, scores)
    assert "No score in this run" in why.stored_scores_note(explained([[1.0], [2.0]]), {"old": "abc"}, {"old": ()})
    both = explained([[0.0, 2.0], [2.0, 2.0]], ("helpful", "harmless"))
    assert "These are" in why.stored_scores_note(both, {"rm": "abc"}, {"rm": (1.0, 2.0)})
    assert "These are" in why.stored_scores_note(both, {"rm": "abc"}, {"rm": (0.0, 2.0)}, "helpful")


def test_colours_are_full_where_most_values_lie_within_and_a_hostile_token_is_text():
    scale = tokens.scale_of([np.linspace(-1, 1, 201)], quantile=0.95)
    assert scale == tokens.Scale(0.0, pytest.approx(0.95))
    assert [scale.share(value) for value in (-9.0, 0.0, 0.475)] == pytest.approx([-1, 0, 0.5])
    assert tokens.scale_of([]) == tokens.scale_of([np.zeros(3)]) == tokens.Scale(0.0, 1.0)
    assert tokens.shades([1.0, -1.0], tokens.Scale(0.0, 2.0)) == [(tokens.UP, 0.5), (tokens.DOWN, 0.5)]
    page = tokens.heat_html(["<script>", '"><img src=x onerror=1>', "\n"], [tokens.Shade("#000", 0.1)] * 3, ['a"b'] * 3)
    assert "<script>" not in page and "<img" not in page and "↵\n" in page and 'title="a&quot;b"' in page
