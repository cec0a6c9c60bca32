from pathlib import Path

import numpy as np
import pytest
from rewardlab.research.studies._design import paired_differences, read_claims
from rewardlab.research.studies._design.claims import STUDIES
from rewardlab.rm.errors import DataError, UsageError

CLAIM = """
- name: states
  claim: Current states are more accurate than stale ones.
  metric: accuracy
  arm: own
  control: stale
  direction: higher
  smallest_effect: 0.02
  family: primary
  decided: 2025-05-02
"""


def read(folder: Path, text: str):
    (folder / "toy").mkdir(exist_ok=True)
    (folder / "toy" / "claims.yaml").write_text(text, encoding="utf-8")
    return read_claims("toy", folder)


def test_claims_are_read_in_their_order(tmp_path):
    first, second = read(tmp_path, CLAIM + CLAIM.replace("name: states", "name: noise"))
    assert (first.name, second.name) == ("states", "noise")
    assert (first.arm, first.control, first.direction, first.smallest_effect) == ("own", "stale", "higher", 0.02)
    assert first.decided.isoformat() == "2025-05-02"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("  arm: own\n", "", "claim 1: 'arm' is missing; a claim has name, claim"),
        ("arm: own", "arms: own", "'arm"),
        ("arm: own", "arm: own\n  p: 0.05", "'p' is not known; a claim has"),
        ("higher", "up", "'direction' should be 'higher', 'lower' or 'different', got 'up'"),
        ("0.02", "0", "'smallest_effect' should be greater than 0, got 0"),
        ("0.02", ".inf", "'smallest_effect' should be a finite number"),
        ("2025-05-02", "'soon'", "'decided' should be a valid date, got 'soon'"),
        (CLAIM, "", "not a list of claims; begin each with"),
        (CLAIM, "- states", "claim 1: not a claim, got 'states'; a claim has name"),
        (CLAIM, "- [", "not a list of claims .*; write YAML"),
        (CLAIM, CLAIM + CLAIM, "more than one claim is called 'states'"),
    ],
)
def test_an_invalid_claim_is_refused_with_its_position_and_field(tmp_path, old, new, reason):
    with pytest.raises(DataError, match=f"claims.yaml.*{reason}"):
        read(tmp_path, CLAIM.replace(old, new))


def test_the_claims_of_every_study_can_be_read():
    files = [*STUDIES.glob("*/claims.yaml")]
    assert len(files) > 10 and all(read_claims(file.parent.name) for file in files)


def test_differences_are_arm_minus_control_and_keep_missing_seeds(tmp_path):
    claims = read(tmp_path, CLAIM)
    values = {"accuracy": {"own": np.array([0.7, 0.8, np.nan]), "stale": np.array([0.6, 0.9, 0.5])}}
    assert np.allclose(paired_differences(claims, values)["states"], [0.1, -0.1, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("values", "reason"),
    [({"gold": {}}, "no metric 'accuracy'"), ({"accuracy": {"owns": np.ones(2)}}, "no arm 'own'; did you mean 'owns'")],
)
def test_a_claim_about_results_that_do_not_exist_is_refused(tmp_path, values, reason):
    with pytest.raises(UsageError, match=f"claim 'states': {reason}"):
        paired_differences(read(tmp_path, CLAIM), values)
