import json
from contextlib import nullcontext
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
from rewardlab.apps.inspector.tabs.playground import decoded as files
from rewardlab.apps.inspector.tabs.playground import guided
from rewardlab.apps.inspector.tabs.playground import queries as views
from rewardlab.apps.inspector.tabs.playground import view as playground
from rewardlab.rm.errors import DataError, UsageError

SETTING = views.Setting((("helpful", 0.75), ("harmless", 0.25)), 2.0, 1.0, 3, 8)


def answer(**changes) -> guided.ShownCompletion:
    """Two tokens under two guides of weights 2 and 1."""
    facts = {"title": "one", "text": "bees hum", "finished": "length", "pieces": ("bees", " hum")}
    facts |= {"base": np.array([-3.0, -1.0]), "mixed": np.array([-1.0, -2.0])}
    facts |= {
        "kl": np.array([0.5, 0.25]),
        "entropy": np.array([1.0, 2.0]),
        "weights": {"helpful": 2.0, "harmless": 1.0},
    }
    facts |= {"guides": {"helpful": np.array([-1.0, -2.0]), "harmless": np.array([-2.0, -1.0])}}
    return guided.ShownCompletion(**facts | changes)


def test_a_setting_is_the_request_that_decode_makes():
    request = SETTING.request("tell me about bees")
    assert request.preference == {"helpful": 0.75, "harmless": 0.25} and request.weight == 2.0
    assert (request.seed, request.temperature, request.max_new_tokens, request.top_p) == (3, 1.0, 8, 1.0)
    assert SETTING._replace(shares=()).request("x").preference is None
    assert SETTING.label == "helpful 0.75 · harmless 0.25 · w 2 · T 1 · seed 3"
    for empty in ("", " \n"):
        with pytest.raises(UsageError, match="the prompt is empty"):
            SETTING.request(empty)
    assert views.normalise_values(["a", "b", "c"], [1.0, 2.0, 1.0]) == (("a", 0.25), ("b", 0.5), ("c", 0.25))
    assert views.normalise_values(["a", "b"], [0, 0]) == (("a", 0.5), ("b", 0.5))


def test_a_sweep_goes_evenly_over_the_weight_or_between_two_objectives():
    assert [one.weight for one in views.sweep_settings(SETTING, views.WEIGHT, 3, 0.0, 4.0)] == [0.0, 2.0, 4.0]
    three = SETTING._replace(shares=(("a", 0.5), ("b", 0.1), ("c", 0.4)))
    dealt = [dict(one.shares) for one in views.sweep_settings(three, "a → c", 3, 0, 0)]
    assert [one["a"] for one in dealt] == pytest.approx([0.9, 0.45, 0.0])
    assert [one["c"] for one in dealt] == pytest.approx([0.0, 0.45, 0.9]) and {one["b"] for one in dealt} == {0.1}
    assert views.axes_of(["a", "b", "c"]) == ["a → b", "a → c", "b → c", views.WEIGHT]
    for over, steps, sentence in (
        (views.WEIGHT, 1, "2 to 21 steps, got 1"),
        (views.WEIGHT, 22, "2 to 21 steps, got 22"),
        ("a → <b>", 3, "unknown sweep 'a → <b>'; choose one of helpful → harmless"),
    ):
        with pytest.raises(UsageError, match=sentence):
            views.sweep_settings(SETTING, over, steps, 0.0, 1.0)


def test_a_field_that_was_emptied_is_told_in_a_sentence():
    for low, high, name in ((None, 1.0, "lowest"), (0.0, None, "highest")):
        with pytest.raises(UsageError, match=f"the {name} weight is empty; fill in a number"):
            playground._swept(SETTING, views.WEIGHT, 3, low, high)
    with pytest.raises(UsageError, match="the seed is empty"):
        playground._setting((), (1.0, 1.0, None, 8))
    with pytest.raises(UsageError, match=r"the maximum of tokens must be a whole number, got 1.5"):
        playground._setting((), (1.0, 1.0, 0, 1.5))


def test_a_newer_request_of_a_visitor_or_none_ends_the_one_before():
    asks, ada, bob = playground.Asks(), SimpleNamespace(session_hash="ada"), SimpleNamespace(session_hash="bob")
    first, other = asks.begin(ada), asks.begin(bob)
    assert not first() and not other()
    second = asks.begin(ada)
    assert first() and not second() and not other()
    assert "Cancelled." in asks.end(None, ada) and second()
    assert asks.end(playground.Decoded([], {}), bob) == gr.skip() and other()
    third = asks.begin(ada)
    asks.forget(ada)
    assert third()


def test_the_parts_of_the_push_add_up_to_it():
    """First token: wanted 2·(-1) + (-2) = -4, c = (-3 - 4 + 1) / 3 = -2; so 2·(-1 + 2) = 2 and (-2 + 2) = 0."""
    np.testing.assert_array_equal(answer().push, [2.0, -1.0])
    parts = answer().by_guide
    np.testing.assert_allclose(parts["helpful"], [2.0, -4 / 3])
    np.testing.assert_allclose(parts["harmless"], [0.0, 1 / 3])
    np.testing.assert_allclose(parts["helpful"] + parts["harmless"], answer().push)


def test_a_guide_that_was_not_read_has_no_part_and_the_other_all_of_the_push():
    unread = answer().guides | {"harmless": np.full(2, np.nan)}
    alone = answer(weights={"helpful": 2.0, "harmless": 0.0}, guides=unread)
    assert [*alone.by_guide] == ["helpful"]
    np.testing.assert_allclose(alone.by_guide["helpful"], alone.push)
    assert "harmless" not in guided.answers_html([alone], guided.ALL)
    assert answer(weights={}).by_guide == answer(guides={"guide": np.zeros(2)}, weights={"guide": 1.0}).by_guide == {}
    assert views.weights_of(SETTING, ("helpful", "harmless")) == {"helpful": 1.5, "harmless": 0.5}
    assert views.weights_of(SETTING, ("guide",)) == {"guide": 2.0}


def test_tokens_are_coloured_by_the_push_a_part_or_whoever_pushed_most():
    assert guided.colours_of([answer()]) == [guided.WHO, guided.ALL, "helpful", "harmless", "KL", "entropy"]
    assert guided.colours_of([answer(weights={})]) == [guided.ALL, "KL", "entropy"]
    page = guided.answers_html([answer()], guided.ALL)
    assert page.count("<i ") == 2 and "cut at the longest length" in page and "KL 0.75 nats" in page
    assert "push +2.000, helpful +2.000, harmless +0.000, log p: base -3.000, mixed -1.000" in page
    who = guided.answers_html([answer()], guided.WHO)
    assert f'style="--c:{guided.PALETTE[0]};--v:75%"' in who and f"--c:{guided.PALETTE[1]}" in who
    assert "unread" in guided.answers_html([answer(weights={})], "helpful")


def test_names_and_answers_of_strangers_are_text():
    hostile = "<img src=x onerror=window.hacked=1>"
    page = guided.answers_html([answer(title=hostile, pieces=(hostile, " "), guides={hostile: np.zeros(2)})])
    assert "<img" not in page and "<img" not in guided.streaming_html([hostile], [hostile])
    assert "<img" not in views.settings_html([SETTING._replace(shares=((hostile, 1.0),))])


def test_measures_are_rewards_and_what_base_and_guides_say():
    found = views.measures([answer(), answer(guides={})], {"rm · a": [1.0, 2.0]})
    assert [*found] == ["rm · a", views.BASE, "reward of helpful (nats)", "reward of harmless (nats)"]
    assert found[views.BASE] == [-2.0, -2.0]
    assert found["reward of helpful (nats)"][0] == -3.0 and np.isnan(found["reward of helpful (nats)"][1])
    assert views.first_axes({"r1": 0, "r2": 0, "base": 0, "guide": 0}, 2) == ("r1", "r2")
    assert views.first_axes({"r1": 0, "base": 0, "guide": 0}, 1) == ("base", "r1")
    assert views.first_axes({"base": 0, "guide": 0}, 0) == ("base", "guide")


def test_points_that_none_beats_are_on_the_front():
    found = {"x": [0.0, 1.0, 2.0, np.nan], "y": [2.0, 0.5, 1.0, 9.0]}
    figure = views.sweep_figure(["a", "b", "<b>c", "d"], found, "x", "y")
    line, front, beaten = figure.data
    assert [*line.x] == [0.0, 1.0, 2.0] and [*front.x] == [0.0, 2.0] and [*beaten.x] == [1.0]
    assert [*front.hovertext] == ["a", "&lt;b&gt;c"] and figure.layout.xaxis.title.text == "x"
    with pytest.raises(UsageError, match="nothing was measured as 'z'"):
        views.sweep_figure(["a"], found, "z", "y")


def test_the_last_state_of_a_decoding_holds_every_component_and_what_a_model_refuses_is_text():
    """The page may show no other state: it gives the components of a state that it has not shown those of the next."""

    def rate(_examples):
        raise DataError("<img src=x onerror=window.hacked=1> ![x](https://elsewhere.example/x.png)")

    models = SimpleNamespace(names=["rm"], reward_model=lambda name: nullcontext(SimpleNamespace(rate=rate)))
    for number in (1, 2):
        state = playground._final_outputs(SimpleNamespace(models=models), "bees", "Done.", [answer()] * number)
        _, status, _, colour, figure, across, up = state
        assert gr.skip() not in state
        assert colour.visible is True and colour.value in [name for name, _ in colour.choices]
        assert {figure.visible, across.visible, up.visible} == {number == 2}
    assert "Done. rm gives no rewards: &lt;img src=x" in status and "<img" not in status


ROW = {"id": "1", "preference": {"helpful": 0.5, "harmless": 0.5}, "weight": 2.0}
ROW |= {"prompt": [{"role": "user", "content": "tell me"}], "completion": "bees about", "finished": "length"}
ROW |= {"tokens": [4, 5], "pieces": ["bees", " about"], "base": [-1.0, -2.0], "mixed": [-0.5, -2.0], "kl": [0.1, 0.2]}
ROW |= {"entropy": [1.0, 1.0], "helpful": [-1.0, -2.0], "harmless": [-1.5, None]}


def row(**changes) -> dict:
    return ROW | changes


def write(path, *rows, end=""):
    path.write_text("".join(json.dumps(one) + "\n" for one in rows) + end)
    return path


def test_a_file_has_its_answers_by_prompt_and_is_read_once_until_it_changes(tmp_path):
    path = write(tmp_path / "a.jsonl", row(), row(id="2"), row(), end='{"id": "3", "pre')  # a line that may grow
    found = files.read_answers(path)
    assert {id: len(rows) for id, rows in found.rows.items()} == {"1": 2, "2": 1} and found.note == ""
    assert found.prompt("1") == "user: tell me" and found.prompt("9") == ""
    assert files.read_answers(path) is found
    assert [*files.read_answers(write(path, row())).rows] == ["1"]
    with pytest.raises(DataError, match="no complete line"):
        files.read_answers(write(path, end='{"id": "1", "tok'))


def test_a_row_is_a_completion_with_the_weights_of_its_guides():
    told = files.decoded_completion(row())
    assert told.pieces == ("bees", " about") and told.title == "helpful 0.50, harmless 0.50"
    assert told.weights == {"helpful": 1.0, "harmless": 1.0} and np.isnan(told.guides["harmless"][1])
    assert [*told.guides] == ["helpful", "harmless"]
    plain = files.decoded_completion(row(preference={}))
    assert plain.title == "no preference" and plain.by_guide == {}


DAMAGES = (
    *({"base": [-1.0]}, {"completion": 3}, {"tokens": None}, {"preference": "all"}, {"mixed": ["a", "b"]}),
    *({"tokens": [-1, 2]}, {"tokens": ["a", "b"]}, {"tokens": [1.5, True]}, {"kl": [10**400, 0]}),
    *({"pieces": ["bees"]}, {"pieces": [1, 2]}, {"weight": "much"}, {"weight": None}),
)


def test_a_damaged_line_is_named_with_the_remedy(tmp_path):
    for changes in DAMAGES:
        path = write(tmp_path / "a.jsonl", *[row()] * len(str(changes)), row(**changes), row())
        number = len(str(changes)) + 1
        with pytest.raises(DataError, match=rf"a.jsonl:{number}: no line of `rewardlab decode --output`"):
            files.read_answers(path)
    for missing in ("completion", "pieces", "weight"):
        lacking = {name: value for name, value in row().items() if name != missing}
        with pytest.raises(DataError, match=rf"b.jsonl:1: no line .* \('{missing}'\); decode it again"):
            files.read_answers(write(tmp_path / "b.jsonl", lacking, *[row()] * len(missing)))
    with pytest.raises(DataError, match=r"c.jsonl:2: no line of `rewardlab decode --output`"):
        files.read_answers(write(tmp_path / "c.jsonl", row(), end="[" * 200_000 + "\n"))
