import json

import pytest
from rewardlab.apps.assembly.human_labels import read_labels
from rewardlab.judges.types import Case
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import content_hash, user_turn

CASES = [Case("a", user_turn("a?"), ("yes", "no")), Case("b", user_turn("b?"), ("x", "y", "z"), best=(1,))]
CASES.append(Case("hard/7", user_turn("c?"), ("left", "right"), subset="hard"))


def labels(tmp_path, *rows):
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_labels(str(path), CASES)


@pytest.mark.parametrize(
    ("row", "credit", "score"),
    [
        ({"case": "a", "verdict": "agree"}, 1.0, None),
        ({"id": "a", "verdict": "tie"}, 0.5, None),
        ({"case": "b", "verdict": "disagree", "who": "Ada"}, 0.0, None),
        ({"case": "b", "best": 1}, 1.0, None),
        ({"case": "b", "best": "1"}, 1.0, None),
        ({"case": "b", "best": [2]}, 0.0, None),
        ({"case": "a", "best": [0, 1]}, 0.5, None),
        ({"case": "b", "scores": [1, 4, 4]}, 0.5, 3.0),
        ({"case": "a", "scores": [2, 5]}, 0.0, 3.5),
        ({"id": 7, "subset": "hard", "best": 1}, 0.0, None),
        ({"case": "hard/7", "best": 0}, 1.0, None),
        ({"prompt": "a?", "chosen": "no", "rejected": "yes"}, 0.0, None),
        ({"prompt": "a?", "chosen": "yes", "rejected": "no", "score_chosen": 1, "score_rejected": 1}, 0.5, None),
    ],
)
def test_every_form_of_a_label(tmp_path, row, credit, score):
    ((label,), unused) = labels(tmp_path, row)[0].values(), labels(tmp_path, row).unused
    assert (label.credit, unused) == (credit, 0)
    assert label.score == score or (score is None and label.score != label.score)


def test_readers_are_averaged_and_the_last_row_of_each_counts(tmp_path):
    rows = [
        {"case": "a", "verdict": "disagree", "who": "Ada"},
        {"case": "a", "verdict": "agree", "who": "Bob"},
        {"case": "a", "verdict": "tie", "who": "Ada"},
        {"case": "elsewhere", "verdict": "tie", "who": "Ada"},
        {"id": 7, "subset": "easy", "best": 0},
        {"prompt": "b?", "chosen": "no", "rejected": "yes", "wins": {"helpful": 1.0}},
        {"prompt": "a?", "chosen": "no", "rejected": "yes", "wins": {"helpful": 1.0}, "who": "Bob"},
    ]
    result = labels(tmp_path, *rows)
    assert result.labels["a"].credit == 0.75 and result.unused == 4


def test_a_mean_score_is_over_the_readers_who_gave_one(tmp_path):
    rows = [{"case": "a", "scores": [5, 2], "who": "Ada"}, {"case": "a", "verdict": "disagree", "who": "Bob"}]
    label = labels(tmp_path, *rows).labels["a"]
    assert (label.credit, label.score) == (0.5, 3.5)


def test_bad_labels_may_be_skipped_and_are_counted(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"case": "a", "verdict": "agree"}\n{"case": "b", "verdict": "perhaps"}\n')
    assert read_labels(str(path), CASES, "skip").unused == 1


def test_annotations_of_other_texts_are_not_used(tmp_path):
    texts = content_hash(json.dumps([CASES[0].prompt, CASES[0].texts, CASES[0].best]))
    stale, current = ({"case": "a", "verdict": "agree", "texts": value} for value in ("0" * 16, texts))
    assert labels(tmp_path, stale, current | {"who": "Ada"}).unused == 1
    with pytest.raises(DataError, match="none of its 1 labels is for a case of this run; label cases such as '"):
        labels(tmp_path, stale)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"verdict": "agree"}, "no column 'case' or 'id': the row has verdict"),
        ({"case": "a", "verdict": "yes"}, "'verdict' must be one of agree, tie, disagree; got 'yes'"),
        ({"case": "a", "best": 2}, "'best' is not one or more indices below 2: 2"),
        ({"case": "a"}, "no 'verdict' or 'scores', and 'best' is not one or more indices below 2"),
        ({"case": "a", "scores": [1]}, "'scores' must be a list of 2 numbers, one for each response"),
        ({"case": "a", "scores": [1, "2"]}, "'scores' must be a list of 2 numbers"),
    ],
)
def test_a_label_that_cannot_be_read_is_refused_with_its_line(tmp_path, row, message):
    with pytest.raises(DataError, match="labels.jsonl:1: ") as refusal:
        labels(tmp_path, row)
    assert message in str(refusal.value)
