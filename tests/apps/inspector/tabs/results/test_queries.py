"""A run on its benchmark, by hand."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.inspector.tabs.results.queries import (
    bars,
    calibration,
    calibration_html,
    facts_html,
    figures_of,
    length_figure,
    length_html,
    lengths_of,
    margins_of,
    matrix_html,
    row_of,
    style_matrix,
    subsets_of,
)
from rewardlab.apps.runs.summaries import read_heading, read_report
from rewardlab.judges.types import Case
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import user_turn

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import MODEL, NULL, write_run

MARGINS = [1.0, 2.0, 0.5, -3.0, None, -1.0]
HOSTILE = "<b>shortest</b>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Subset a holds c0, c2, c4 and b the others; the model is right on c0, c1, c2 and abstains on c4."""
    folder = tmp_path_factory.mktemp("runs") / "eval"
    return write_evaluation(folder, pairs(6), {"rm": margins(MARGINS)}, nulls={HOSTILE: margins([-1.0] * 6)})


# ---- the report ----


def test_a_summary_is_read_back_as_the_report_it_was(run):
    report = read_report(run)
    model, null = report.rows
    assert (report.suite, report.cases, report.sizes) == ("pairs", 6, {"a": 3, "b": 3})
    assert (model.scorer, model.role, model.scored, model.unscored) == ("rm", "model", 5, 1)
    assert model.overall.value == 0.6 and model.subsets["a"].value == 1.0
    assert model.subsets["b"].value == pytest.approx(1 / 3) and null.overall.value == 0
    assert model.minus_baseline[HOSTILE]["overall"].value == pytest.approx(0.6)


def test_a_run_of_a_version_without_intervals_is_told_and_still_has_its_scorers(tmp_path):
    folder = write_run(tmp_path / "old")
    with pytest.raises(DataError, match=r"old/summary.json is damaged, or of another version .*--overwrite"):
        read_report(folder)
    assert read_heading(folder).scorers == {MODEL: "model", NULL: "baseline"} and read_heading(folder).first() == MODEL


@pytest.mark.parametrize("text", ["", "{", "[]", '{"suite": "x", "rows": []}', '{"suite": "x", "rows": 3}', "1e999"])
def test_a_damaged_summary_is_told(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    for read in (read_heading, read_report):
        with pytest.raises(DataError, match=r"summary.json is damaged"):
            read(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"cases": "many"},
        {"clusters": None},
        {"samples": [1]},
        {"sizes": 3},
        {"sizes": {"a": "x", "b": 3}},
        {"sizes": {"a": 3, "b": 3, "c": 1}},
        {"sizes": {"a": 3}},
        {"cases": float("inf")},
        {"rows": []},
    ],
)
def test_a_summary_whose_parts_do_not_fit_is_told(tmp_path, changes):
    folder = write_evaluation(tmp_path / "eval", pairs(6), {"rm": margins([1.0] * 6)})
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | changes))
    with pytest.raises(DataError, match=r"summary.json is damaged"):
        read_report(folder)


def test_a_run_that_is_not_finished_is_told(tmp_path):
    with pytest.raises(DataError, match=r"has no summary.json yet: it is still running, or was cut off"):
        read_report(tmp_path)


# ---- bars ----


def test_bars_have_their_values_and_intervals_in_per_cent(run):
    report = read_report(run)
    shares, left_out = subsets_of(report)
    model, null = bars(report, shares, "Subsets", sizes=True).data
    assert left_out == 0 and [*model.x] == pytest.approx([100.0, 100 / 3]) and [*null.x] == [0.0, 0.0]
    low, high = 100 * np.array(report.rows[0].subsets["b"][1:])
    assert model.error_x.arrayminus[1] == pytest.approx(100 / 3 - low)
    assert model.error_x.array[1] == pytest.approx(high - 100 / 3)
    assert null.name == "&lt;b&gt;shortest&lt;/b&gt; (baseline)" and null.marker.color != model.marker.color


def test_the_axis_names_areas_with_their_cases(run):
    report = read_report(run)
    figure = bars(report, subsets_of(report)[0], "Subsets", sizes=True)
    assert [*figure.layout.yaxis.ticktext] == ["a (3)", "b (3)"]
    assert [*bars(report, figures_of(report), "Sections").layout.yaxis.ticktext] == ["overall"]


def test_only_the_largest_subsets_are_drawn_and_the_others_counted(run):
    shares, left_out = subsets_of(read_report(run), most=1)
    assert [*shares["rm"]] == ["a"] and left_out == 1


def test_facts_name_everybody_as_text(run):
    html = facts_html(read_report(run))
    assert "6 cases over 6 prompts" in html and "60.0 [" in html
    assert "&lt;b&gt;shortest" in html and "<b>shortest" not in html


# ---- RM-Bench ----


def test_the_style_matrix_is_the_mean_over_domains(tmp_path):
    """Chat: the plain right answer beats nothing, the others all. Code: right answers win but for plain > fancy."""
    chat, code = (0.0, 9.0, 9.0, 5.0, 5.0, 5.0), (5.0, 9.0, 9.0, 1.0, 2.0, 7.0)
    names = ("chat", "code", "code")
    cases = [Case(f"c{k}", user_turn(f"q{k}"), tuple("abcdef"), (0, 1, 2), name) for k, name in enumerate(names)]
    cases = [Case(**{**vars(case), "sets": (3, 3)}) for case in cases]
    scores = {"c0": chat, "c1": code, "c2": code}
    folder = write_evaluation(tmp_path / "styles", cases, {"rm": scores})
    matrix = style_matrix(folder, "rm_bench", "rm")
    assert matrix is not None
    np.testing.assert_allclose(matrix, [[0.5, 0.5, 0.0], [1, 1, 1], [1, 1, 1]])
    html = matrix_html(matrix)
    assert "hard 50.0, normal 83.3, easy 100.0" in html
    assert read_report(folder).rows[0].sections["hard"].value == pytest.approx(0.5)


def test_other_suites_have_no_style_matrix(run):
    assert style_matrix(run, "pairs", "rm") is None


# ---- calibration and length ----


def test_calibration_is_accuracy_against_the_claimed_confidence(run):
    """σ(0.5), σ(1) twice, σ(2), σ(3): bins of width 0.05 from 0.5; the two at σ(1) are right once."""
    margins = margins_of(run, "rm")
    assert sorted(margins) == [-3.0, -1.0, 0.5, 1.0, 2.0]
    points = calibration(margins).data[0]
    sigma = [1 / (1 + math.exp(-value)) for value in (0.5, 1.0, 2.0, 3.0)]
    assert [*points.x] == pytest.approx(sigma) and [*points.y] == [1.0, 0.5, 1.0, 0.0]
    assert [*points.customdata] == [1, 2, 1, 1]
    gaps = [1 - sigma[0], 2 * (sigma[1] - 0.5), 1 - sigma[2], sigma[3]]
    assert f"error {sum(gaps) / 5:.3f} over 5 cases" in calibration_html(margins)
    assert "judged no case" in calibration_html(np.array([]))


def test_the_score_by_length_has_means_counts_and_a_slope(tmp_path):
    """Wrong answers of 4 characters score 1 and 3, right ones of 8 score 5 and 7: 4 a doubling."""
    scores = {"c0": (5.0, 1.0), "c1": (7.0, 3.0)}
    folder = write_evaluation(tmp_path / "eval", pairs(2), {"rm": scores})
    found = lengths_of(folder, "rm")
    assert found.bins == [(4.0, 2.0, 1.0, 2), (8.0, 6.0, 1.0, 2)]
    assert found.slope == pytest.approx(4) and found.answers == 4
    assert [*length_figure(found).data[0].y] == [2.0, 6.0]
    told = length_html(row_of(read_report(folder), "rm"), found)
    assert "changes by +4 (its own unit) a doubling" in told and "Within the 2 plain pairs" in told


def test_a_run_without_stored_lengths_has_the_same_figures(tmp_path):
    folder = write_evaluation(tmp_path / "eval", pairs(2), {"rm": {"c0": (5.0, 1.0), "c1": (7.0, 3.0)}})
    expected = lengths_of(folder, "rm")
    pq.write_table(pq.read_table(folder / "items.parquet").drop_columns(["lengths"]), folder / "items.parquet")
    assert lengths_of(folder, "rm") == expected


def test_answers_of_one_length_have_no_slope(tmp_path):
    folder = write_evaluation(tmp_path / "eval", pairs(2, (4, 4)), {"rm": {"c0": (5.0, 1.0), "c1": (7.0, 3.0)}})
    found = lengths_of(folder, "rm")
    assert len(found.bins) == 1 and "changes by – " in length_html(row_of(read_report(folder), "rm"), found)


def test_a_folder_called_like_a_column_changes_nothing(tmp_path):
    cases, scores = pairs(2), {"rm": margins([0.5, -1.0])}
    for folder in (tmp_path / "eval", tmp_path / "scorer=x" / "margin=3" / "lengths=z" / "eval"):
        write_evaluation(folder, cases, scores)
        assert margins_of(folder, "rm").tolist() == [0.5, -1.0]
        bins = lengths_of(folder, "rm").bins
        assert [one.length for one in bins] == pytest.approx([4, 8]) and [one.score for one in bins] == [0, -0.25]


def test_a_scorer_that_is_not_there_is_told(run):
    with pytest.raises(UsageError, match="no scorer 'gone'"):
        row_of(read_report(run), "gone")


def test_nan_is_null_on_disk_and_nan_again(tmp_path):
    """A scorer that abstains everywhere has no figures."""
    folder = write_evaluation(tmp_path / "eval", pairs(2), {"rm": margins([None, None])})
    assert json.loads((folder / "summary.json").read_text())["rows"][0]["overall"][0] is None
    assert math.isnan(read_report(folder).rows[0].overall.value)
    assert lengths_of(folder, "rm").answers == 0 == len(margins_of(folder, "rm"))
