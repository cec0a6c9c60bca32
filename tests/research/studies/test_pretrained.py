import numpy as np
import pytest
from rewardlab.rm.types import PreferencePair, user_turn

pytest.importorskip("trl")
from rewardlab.research.studies import pretrained as study
from rewardlab.research.studies.pretrained import models, plan, report, texts


def pair(prompt: str, chosen: str = "x", **more) -> PreferencePair:
    return PreferencePair("0", user_turn(prompt), chosen, "y", **more)


def test_pairs_of_one_prompt_are_in_one_part_and_parts_have_their_shares():
    assert texts.part_of(pair("How is it?", "a")) == texts.part_of(pair("how  IS it", "b"))
    parts = [texts.part_of(pair(f"question {number}")) for number in range(2_000)]
    shares = [parts.count(name) / len(parts) for name in ("held-out", "validation", "train")]
    assert np.abs(np.subtract(shares, [0.2, 0.1, 0.7])).max() < 0.03  # three standard errors


def test_many_pairs_of_a_prompt_are_thinned_evenly_and_few_are_all_kept():
    many, few = [pair("one", str(index)) for index in range(12)], [pair("two", "a"), pair("two", "b")]
    kept = list(texts.at_most([*many, *few], most=4))
    assert [one.chosen for one in kept] == ["0", "3", "6", "9", "a", "b"]


def test_a_mix_takes_its_shares_and_what_a_group_has():
    groups = {group: [pair(f"{group} {index}", subset=group) for index in range(10)] for group in texts.SOURCES}
    made = texts.Texts({"train": groups}, {})
    subsets = [one.subset for one in made.training("everything", 12, seed=3)]
    assert {group: subsets.count(group) for group in groups} == {"dialogue": 6, "facts": 3, "writing": 3}
    assert len(made.training("dialogue", 1_000, seed=0)) == 10
    assert made.training("dialogue", 5, seed=0) != made.training("dialogue", 5, seed=1)


def test_pairs_without_a_winner_are_left_out_and_swapped_ones_turned():
    found = texts.decided(
        [
            pair("tie", wins={"overall": 0.5}),
            pair("lost", wins={"overall": 0.0}),
            pair("no label", wins={"helpful": 1.0}),
        ]
    )
    assert [(one.prompt[0]["content"], one.chosen) for one in found] == [("lost", "y"), ("no label", "x")]


def test_temperature_makes_margins_as_sure_as_they_are_right():
    """731 of 1,000 margins of 2 are right: σ(2 / T) = 0.731 at T = 2."""
    assert report.temperature(np.array([2.0] * 731 + [-2.0] * 269)) == pytest.approx(2, abs=0.01)


def test_a_doubt_that_orders_mistakes_first_has_an_area_of_one():
    wrong, doubt = np.array([True, True, False, False]), np.array([4.0, 3, 2, 1])
    assert report._area(wrong, doubt, [np.array([0, 2]), np.array([1, 1, 3])]) == "1.000 [1.000, 1.000]"
    assert report._selected(wrong, doubt) == "100.0"


def test_samples_hold_whole_prompts():
    pairs = [pair("one", "a"), pair("two", "b"), pair("two", "c")]
    for sample in report._samples(pairs):
        assert (sample == 1).sum() == (sample == 2).sum()


@pytest.mark.slow
def test_a_dry_run_chooses_trains_rates_and_reports(tiny_pretrained, shared_data, tmp_path, monkeypatch):
    for module in (models, plan):
        monkeypatch.setattr(module, "fetched", tiny_pretrained)
    found = study.pretrained(shared_data.parent, tmp_path / "cache", rows=15, workers=1)
    assert {row.scorer for row in found.evaluations["rewardbench"].report.rows} >= {"mean of 5", "longest", "random"}
    assert "## Calibration" in found.text and "## Length control" in found.text and "nan" not in found.text
    again = study.pretrained(shared_data.parent, tmp_path / "cache", rows=15, workers=1, log=(told := []).append)
    assert again.text == found.text and not [line for line in told if line.startswith("0 of")]
