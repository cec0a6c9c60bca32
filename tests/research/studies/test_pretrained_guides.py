import json

import numpy as np
import pytest
from rewardlab.research.studies.pretrained_guides import pretrained_guides, report
from rewardlab.research.studies.pretrained_guides.models import ALPHAS, LENGTH, Guide
from rewardlab.research.studies.pretrained_guides.report import Standardised, slopes, weights_of, without_length
from rewardlab.research.studies.pretrained_guides.texts import OBJECTIVES, PARTS, load_texts, prepared
from rewardlab.rm.data.conversation_split import first_turn


@pytest.fixture(scope="module")
def texts(shared_data, tmp_path_factory):
    cache = tmp_path_factory.mktemp("texts")
    name, _ = prepared(shared_data.parent, cache, 150)
    return cache, name


def test_no_prompt_is_in_two_parts_and_every_pair_has_the_label_of_one_objective(texts):
    read = load_texts(*texts)
    turns = [{first_turn(pair.prompt) for pairs in read.pairs[part].values() for pair in pairs} for part in PARTS]
    assert not turns[0] & turns[1] and not turns[0] & turns[2] and not turns[1] & turns[2] and all(turns)
    assert all(set(pair.wins) == {name} for name in OBJECTIVES for pair in read.pairs["guides"][name])


def test_controls_change_labels_or_prompts_and_nothing_else(texts):
    cache, name = texts
    plain, shuffled, blind = (
        Guide(name, "x", 0, "uniarm", OBJECTIVES, 20, control=control).training_pairs(cache)
        for control in ("", "shuffled", "blind")
    )
    assert len(plain) == 20 and [pair.chosen for pair in plain] == [pair.chosen for pair in shuffled]
    assert {str(pair.wins) for pair in shuffled} == {str(pair.wins) for pair in plain}
    assert [pair.wins for pair in shuffled] != [pair.wins for pair in plain]
    assert [pair.prompt for pair in blind] != [pair.prompt for pair in plain] and blind[0].chosen == plain[0].chosen
    assert sorted(str(pair.prompt) for pair in blind) == sorted(str(pair.prompt) for pair in plain)


def test_the_positive_control_labels_pairs_by_length(texts):
    cache, name = texts
    pairs = Guide(name, "x", 0, "uniarm", LENGTH, 20, control="length").training_pairs(cache)
    assert {key for pair in pairs for key in pair.wins} == {*LENGTH} and len(pairs) > 10
    for pair in pairs:
        (objective, wins), is_longer = *pair.wins.items(), len(pair.chosen) > len(pair.rejected)
        assert wins == float(is_longer == (objective == "longer"))


def test_a_slope_is_the_change_from_no_weight_to_all_of_it():
    rewards = np.outer(ALPHAS, [2.0, -1.0]) + np.array([5.0, 7.0])
    assert slopes(rewards, weights_of("harmless")) == pytest.approx([2.0, -1.0])
    assert slopes(rewards, weights_of("helpful")) == pytest.approx([-2.0, 1.0])
    both = Standardised("harmless", {("a", 0.0): rewards, ("b", 0.0): rewards * 0})
    assert both.following("a", 0.0, "b").value == pytest.approx(0.5)


def test_ratings_that_are_length_alone_are_constant_without_it():
    lengths = {("a", 0.0): np.array([[1, 5], [3, 20]]), ("b", 0.0): np.array([[9, 2], [4, 4]])}
    ratings = {key: 3.0 + 0.7 * np.log1p(values) for key, values in lengths.items()}
    for values in without_length(ratings, lengths).values():
        assert values == pytest.approx(np.full((2, 2), 3.0))


def test_a_dry_run_trains_decodes_rates_and_reports(shared_data, tmp_path, small_language_model):
    folder = small_language_model
    log: list[str] = []
    study = pretrained_guides(
        shared_data.parent, tmp_path / "cache", rows=40, workers=1, model=folder, encoder=folder, log=log.append
    )
    assert all(name in study.text for name in ("UniARM", "PARM", "GenARM", "blind", "instructions", "## Texts"))
    assert "Positive control" in study.text
    assert [*study.figures] == ["fronts"] and json.dumps(study.facts)
    assert report.ALPHAS == ALPHAS and "shuffled labels" in study.text
