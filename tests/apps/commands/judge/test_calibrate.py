"""`rewardlab judge --calibrate`: figures corrected by human labels."""

import json

import pytest
from rewardlab.apps.inspector.tabs.judgments.annotation.annotations import add, annotate, file_of
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.queries import open_run

from tests.apps.judging import call, write

ALL = [f"p{index}" for index in range(8)]


def human(path, cases=ALL[:5]) -> str:
    return write(path, [{"case": case, "verdict": "agree" if case != "p1" else "disagree"} for case in cases])


def test_a_new_run_has_the_corrected_figures_in_its_report_and_is_verified(judge, tmp_path, capsys):
    labels = human(tmp_path / "labels.jsonl")
    code, facts, err, folder = judge("--calibrate", labels, "--width", 0.3)
    assert code == 0 and (facts["labels"], facts["unused_labels"]) == (5, 0), err
    figures = facts["corrected"]["qwen pairwise"]
    wins = figures["win rate of the labelled response"]
    assert wins["judge"] == 1.0 and wins["labels alone"]["value"] == pytest.approx(0.8)
    assert wins["prediction-powered"]["power"] == 0  # the judge always says the same
    assert figures["accuracy"]["labels alone"]["value"] == pytest.approx(0.8)
    stored = json.loads((folder / "corrections.json").read_text())
    assert stored["figures"] == facts["corrected"] and stored["width"] == 0.3
    report = (folder / "report.md").read_text()
    assert (
        "win rate of the labelled response: 100.0 according to the judge; corrected by 5 human labels among 8" in report
    )
    assert "Corrected by human labels" in err
    code, facts, err = call(capsys, "verify", folder)
    assert code == 0 and facts["verified"] is True, err


def test_a_finished_run_is_corrected_by_the_inspectors_annotations_without_a_request(judge, server, tmp_path, capsys):
    _, _, _, folder = judge()
    run = open_run(folder)
    for case in ALL[:4]:
        add(folder, annotate(item(run, run.scorers[0].name, case), "agree", "Ada", blind=True))
    before = len(server.requests)
    code, facts, err = call(capsys, "judge", "--calibrate", file_of(folder), "--output", folder)
    assert code == 0 and (facts["labels"], facts["unused_labels"]) == (4, 0), err
    add(folder, annotate(item(run, run.scorers[0].name, "p4"), "tie", "Ada"))
    code, facts, err = call(capsys, "judge", "--calibrate", file_of(folder), "--output", folder)
    assert code == 0 and facts["labels"] == 5 and len(server.requests) == before, err
    assert (folder / "report.md").read_text().count("Corrected by human labels") == 2  # win rate and accuracy, once
    assert call(capsys, "verify", folder)[0] == 0


def test_wrong_labels_are_refused_before_a_request(judge, server, tmp_path):
    before = len(server.requests)
    for rows, sentence in (
        ([{"case": "elsewhere", "verdict": "agree"}], "none of its 1 labels is for a case of this run"),
        ([{"case": "p0", "verdict": "good"}], "'verdict' must be one of agree, tie, disagree; got 'good'"),
    ):
        code, _, err, folder = judge("--calibrate", write(tmp_path / "labels.jsonl", rows))
        assert code == 3 and sentence in err and not folder.exists()
    code, _, err, _ = judge("--calibrate", "labels.jsonl", "--audit")
    assert code == 2 and "--calibrate corrects the figures of an evaluation; leave --audit" in err
    assert len(server.requests) == before
