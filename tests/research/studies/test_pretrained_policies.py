import json

from rewardlab.research.studies.pretrained_policies import pretrained_policies


def test_a_dry_run_trains_every_arm_rates_its_completions_and_reports(shared_data, tmp_path, small_language_model):
    study = pretrained_policies(
        shared_data.parent,
        tmp_path / "cache",
        rows=60,
        workers=1,
        model=small_language_model,
        encoder=small_language_model,
        log=lambda _: None,
    )
    assert all(f"| {arm}, seed 0 |" in study.text for arm in ("GRPO", "PPO", "R2M", "R2M, stale states"))
    assert json.dumps(study.facts) and set(study.figures) == {"curves"}
