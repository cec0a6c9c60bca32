import json

from rewardlab.research.studies.sample_pretrained import sample_pretrained


def test_a_dry_run_selects_by_the_scorer_and_reports_the_held_out_reward(shared_data, tmp_path, small_language_model):
    study = sample_pretrained(
        shared_data.parent,
        tmp_path / "cache",
        rows=60,
        workers=1,
        model=small_language_model,
        encoder=small_language_model,
        log=lambda _: None,
    )
    parts = ("| scorer | ", "| held_out | ", "| of helpful pairs | 2 |", "| of harmless pairs | 2 |", "| all | 4 |")
    assert not [part for part in parts if part not in study.text] and json.dumps(study.facts)
