import json

import numpy as np
import pytest
from rewardlab.research.studies._runs import checked_requests
from rewardlab.research.studies._runs.checked_requests import pass_shares
from rewardlab.research.studies.pretrained_requests import pretrained_requests


@pytest.mark.parametrize(
    ("kind", "completion", "expected"),
    [
        ("short", "Bread is baked.", True),
        ("short", "Bread", False),
        ("short", "one two three four five six seven eight nine ten eleven twelve thirteen", False),
        ("list", "- a\n- b\n\n- c\n", True),
        ("list", "- a\n- b", False),
        ("list", "- a\nb\n- c", False),
        ("keyword", "In Winter it snows.", True),
        ("keyword", "Winters are cold.", False),
        ("capitals", "BREAD IS GOOD!", True),
        ("capitals", "BREAD IS good", False),
        ("closing", "Bread is good. The end.", True),
        ("closing", "The end. Bread is good and brown.", False),
        ("closing", "The end.", False),
    ],
)
def test_checks_by_hand(kind, completion, expected):
    assert checked_requests.CHECKS[kind](completion, "winter") is expected
    assert checked_requests.fulfilled([""], [completion], [kind], ["winter"]) == [float(expected)]


def test_held_out_requests_have_other_topics_and_every_kind_alike():
    rows, held_out = (checked_requests.requests(held_out=held_out) for held_out in (False, True))
    assert (len(rows), len(held_out)) == (5 * 40, 5 * 12)
    assert not {row["prompt"] for row in rows} & {row["prompt"] for row in held_out}
    assert all(f"'{row['keyword']}'" in row["prompt"] for row in rows if row["kind"] == "keyword")
    assert pass_shares(np.array([["Bread is baked.", "Bread"]])).tolist() == [[1.0, 0.0]]


def test_a_dry_run_trains_checks_and_reports(tmp_path, small_language_model):
    study = pretrained_requests(tmp_path / "cache", rows=1, workers=1, model=small_language_model, log=lambda _: None)
    assert "| all, greedy |" in study.text and "| keyword |" in study.text
    assert json.dumps(study.facts) and set(study.figures) == {"curves"}
