import json

import numpy as np
import pytest
from rewardlab.research.studies._run import run_study
from rewardlab.research.studies.real_text_guides.models import OBJECTIVES, Completions, TextBase, corpus, halves
from rewardlab.research.studies.real_text_guides.report import Measured, text
from rewardlab.rm.data.conversation_split import first_turn


def test_guides_and_raters_share_no_first_turn_and_every_pair_has_one_objective(shared_data):
    split = halves(corpus(shared_data, 60))
    turns = [{first_turn(pair.prompt) for pair in pairs} for pairs in (split.guides, split.raters)]
    assert not turns[0] & turns[1] and len(split.guides) + len(split.raters) == 120
    assert all(len({*pair.wins} & {*OBJECTIVES}) == 1 for pair in split.guides + split.raters)


def test_other_files_have_another_digest(shared_data, tmp_path):
    for file in corpus(shared_data, None).files:
        copy = tmp_path / file.removeprefix(f"{shared_data}/")
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(b"another file")
    assert corpus(tmp_path, None).digest != corpus(shared_data, None).digest


def test_prompts_alternate_between_objectives_and_belong_to_the_raters(shared_data):
    files = corpus(shared_data, 60)
    asked = Completions(TextBase(files), prompts=6).asked
    wins = [[name for name in OBJECTIVES if name in pair.wins] for prompt in asked for pair in halves(files).raters
            if pair.prompt == prompt]  # fmt: skip
    assert len(asked) == 6 and [names[0] for names in wins][:2] == ["helpful", "harmless"]


def test_rewards_are_told_in_standard_deviations_of_the_base_models(shared_data):
    base = np.array([[0.0, 2.0, 4.0]] * 3)  # standard deviation 2
    ratings = {("linear", "helpful"): {"base model": base, "guide": base + np.array([[1.0], [2.0], [4.0]])}}
    lengths = {"base model": np.full((3, 3), 5), "guide": np.full((3, 3), 7)}
    facts = {"pairs": {"guides": 1, "raters": 1}, "steps": 1, "learning_rate": 0.1}
    report = text(Measured(1.0, {}, {}, ratings, {}, lengths), TextBase(corpus(shared_data, 1)), facts)
    assert "| guide | 0 | 1 | +0.50 [+0.50, +0.50] | 7.0 |" in report
    assert "| guide | 1 | 0 | +2.00 [+2.00, +2.00] | 7.0 |" in report


@pytest.mark.slow
def test_a_dry_run_trains_rates_and_reports(shared_data, tmp_path):
    places = {"output": str(tmp_path / "run"), "cache": str(tmp_path / "cache")}
    run_study("real_text_guides", data=str(shared_data), rows=12, workers=1, **places)
    report = (tmp_path / "run" / "report.md").read_text()
    assert all(name in report for name in ("UniARM, α", "PARM", "GenARM", "untrained guide", "small LM harmless"))
    facts = json.loads((tmp_path / "run" / "manifest.json").read_text())
    untrained = facts["guides"]["untrained guide"][0]
    assert untrained["helpful, labels helpful"] == untrained["harmless, labels helpful"]  # α changes nothing yet
