import pytest
from rewardlab.research.studies import difficulty, generative, latent, process, r2m_online, replay, wmss
from rewardlab.research.studies._run import run_study

LIMITS = "What this cannot say"
PARTS = {
    "difficulty": (8, ("`ha_dw_on_hard_prompts_4`", "## Bias by enumeration", LIMITS, *difficulty.ARMS)),
    "generative": (4, ("SFT, then RL on random labels", *generative.ARMS)),
    "latent": (4, tuple(f"| {arm} |" for arm in latent.ARMS)),
    "process": (4, ("outcome, same labels", *process.ARMS)),
    "r2m_online": (8, ("`r2m_beats_frozen_75`", LIMITS, *r2m_online.ARMS)),
    "replay": (8, ("`cbs_beats_random`", "## Headroom", *replay.ARMS)),
    "wmss": (8, ("## Saturation", "`wmss_beats_scaled_logits`", *wmss.ARMS)),
}
"""Completions of each request, and what the report says."""


@pytest.mark.slow
@pytest.mark.parametrize("study", PARTS)
def test_a_dry_run_trains_every_arm_measures_and_reports(study, tmp_path):
    rows, parts = PARTS[study]
    run_study(study, output=str(tmp_path / "run"), cache=str(tmp_path / "cache"), rows=rows, workers=1)
    report = (tmp_path / "run" / "report.md").read_text()
    assert not [part for part in ("A dry run", *parts) if part not in report]
    assert "nan" not in report and "A part of the study" not in report  # all seeds of the dry run were run
