import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rewardlab.apps.inspector.tabs.results import figures, queries
from rewardlab.apps.inspector.tabs.results.areas import areas_html, list_areas, scores_html
from rewardlab.apps.inspector.tabs.results.guides import guides_html, read_guides
from rewardlab.apps.runs.summaries import read_heading, read_report
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.judges.types import Case
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.registry import load
from rewardlab.rm.types import user_turn

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.gallery import ALONE
from tests.apps.inspector.ponds import MODEL, NULL, write_run

HOSTILE = "<b>shortest</b>"
SCORES = {"c0": (5.0, 1.0), "c1": (7.0, 3.0)}
"""Wrong answers of 4 characters score 1 and 3, right ones of 8 score 5 and 7: 4 a doubling."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Subset a holds c0, c2, c4 and b the others; the model is right on c0, c1, c2 and abstains on c4."""
    folder = tmp_path_factory.mktemp("runs") / "eval"
    return write_evaluation(folder, pairs(6), {"rm": margins(ALONE)}, nulls={HOSTILE: margins([-1.0] * 6)})


def test_a_summary_is_read_back_as_the_report_it_was(run, tmp_path):
    report = read_report(run)
    model, null = report.rows
    assert (report.suite, report.cases, report.sizes) == ("pairs", 6, {"a": 3, "b": 3})
    assert (model.scorer, model.role, model.scored, model.unscored) == ("rm", "model", 5, 1)
    assert model.overall.value == 0.6 and model.subsets["a"].value == 1.0
    assert model.subsets["b"].value == pytest.approx(1 / 3) and null.overall.value == 0
    assert model.minus_baseline[HOSTILE]["overall"].value == pytest.approx(0.6)
    with pytest.raises(UsageError, match="no scorer 'gone'"):
        queries.row_of(report, "gone")
    folder = write_run(tmp_path / "plain")  # without intervals it still has its scorers
    with pytest.raises(DataError, match=r"plain/summary.json is damaged, or of another version .*--overwrite"):
        read_report(folder)
    assert read_heading(folder).scorers == {MODEL: "model", NULL: "baseline"} and read_heading(folder).first() == MODEL


CHANGES = (
    *({"cases": "many"}, {"clusters": None}, {"samples": [1]}, {"sizes": 3}, {"sizes": {"a": "x", "b": 3}}),
    *({"sizes": {"a": 3, "b": 3, "c": 1}}, {"sizes": {"a": 3}}, {"cases": float("inf")}, {"rows": []}),
)


def test_a_summary_that_is_damaged_or_whose_parts_do_not_fit_is_told(run, tmp_path):
    with pytest.raises(DataError, match=r"^\S+ has no summary.json yet: it is still running, or was cut off$"):
        read_report(tmp_path)
    for text in ("", "{", "[]", '{"suite": "x", "rows": []}', '{"suite": "x", "rows": 3}', "1e999"):
        (tmp_path / "summary.json").write_text(text)
        for read in (read_heading, read_report):
            with pytest.raises(DataError, match=r"summary.json is damaged"):
                read(tmp_path)
    summary = json.loads((run / "summary.json").read_text())
    for changes in CHANGES:
        (tmp_path / "summary.json").write_text(json.dumps(summary | changes))
        with pytest.raises(DataError, match=r"summary.json is damaged"):
            read_report(tmp_path)


def sectioned(suite, sizes, *, models=("rm",)):
    """Report of models that are right on all pairs of these subsets."""
    named = [(name, f"{name}-{k}") for name, n in sizes.items() for k in range(n)]
    cases = [Case(id, user_turn(id), ("a", "b"), (0,), name) for name, id in named]
    scorers = [StoredScores(name, {case.id: (1.0, 0.0) for case in cases}) for name in models]
    return evaluate(load("benchmarks.suites", suite)(), cases, scorers, samples=20).report


def styled(*names):
    """Cases of RM-Bench with three right and three wrong answers."""
    return [
        Case(f"c{k}", user_turn(f"q{k}"), tuple("abcdef"), (0, 1, 2), name, sets=(3, 3)) for k, name in enumerate(names)
    ]


def areas_of(report, *more):
    return [(area.kind, area.name, area.cases) for area in list_areas(report, *more)[0]]


def test_subsets_stand_below_their_section(run):
    report = sectioned("rewardbench", {"hep-go": 2, "alpacaeval-easy": 1, "math-prm": 3, "mt-bench-easy": 1})
    chat = [("section", "Chat", 2), ("subset", "alpacaeval-easy", 1), ("subset", "mt-bench-easy", 1)]
    reasoning = [("section", "Reasoning", 5), ("subset", "hep-go", 2), ("subset", "math-prm", 3)]
    assert list_areas(report)[1] == 0 and areas_of(report) == [("overall", "overall", 7), *chat, *reasoning]
    alike = areas_of(sectioned("rewardbench2", {"Math": 2, "Safety": 1}))  # sections of one subset of their name
    assert [area[:2] for area in alike] == [("overall", "overall"), ("section", "Math"), ("section", "Safety")]
    listed, left_out = list_areas(read_report(run), 1)
    assert [area.name for area in listed] == ["overall", "a"] and left_out == 1, "only the smallest"
    own = areas_of(replace(read_report(run), suite="my.code:suite"))
    assert [name for _, name, _ in own] == ["overall", "a", "b"]


def test_a_subset_of_several_sections_stands_below_the_smallest(tmp_path):
    """RM-Bench's levels hold every subset, its domains a few."""
    cases = styled("chat", "safety-refuse", "safety-response")
    scores = {"rm": {case.id: (5.0, 9.0, 9.0, 1.0, 2.0, 7.0) for case in cases}}
    names = [name for _, name, _ in areas_of(read_report(write_evaluation(tmp_path / "styles", cases, scores)))]
    assert names == ["overall", "hard", "normal", "easy", "chat", "safety", "safety-refuse", "safety-response"]


def test_the_table_has_sections_and_every_number_opens_its_cases(run):
    report = sectioned("rewardbench", {"hep-go": 2, "alpacaeval-easy": 1}, models=("rm", HOSTILE))
    html = scores_html(report, "all/eval")
    assert [*re.findall(r">([^<]+)</button>", html)][2:4] == ["Chat", "Reasoning"]
    assert html.count('<th scope="row">') == 2 and "&lt;b&gt;shortest" in html and "<b>shortest" not in html
    section = "?tab=judgments&amp;run=all%2Feval&amp;scorer=rm&amp;subset=section%3AChat"
    assert section in html and "scorer=rm&amp;outcome=tie" in html and "scorer=rm&amp;outcome=abstained" in html
    html = scores_html(read_report(run), "eval")
    assert "6 cases over 6 prompts" in html and "60.0<small>[" in html
    assert "&lt;b&gt;shortest" in html and "<b>shortest" not in html


def test_every_area_has_a_dot_with_its_interval_and_thin_ticks_on_one_axis(run):
    """The model is right on 1 of 3 in subset b, the baseline on none."""
    report = read_report(run)
    html = areas_html(report, "eval", "rm")
    value, low, high = report.rows[0].subsets["b"]
    at, width = 100 * (value - low) / (high - low), 100 * (high - low)
    place = f"left:{100 * low:.2f}%;width:{width:.2f}%;top:50.0%;--at:{at:.1f}%"
    assert place in html and html.count('class="range"') == html.count('class="tick"') == 3
    assert html.count('style="left:0.00%" tabindex="-1"') == 3 and "&lt;b&gt;shortest&lt;/b&gt;: 0.0 [" in html
    assert f"33.3 <small>[{100 * low:.1f}, {100 * high:.1f}]</small></a>" in html and "<b>shortest" not in html
    assert html.count("?tab=judgments&amp;run=eval&amp;scorer=rm&amp;subset=b") == 3
    assert [*re.findall(r'<span style="left:(\d+)%">\1</span>', html)] == ["0", "25", "50", "75", "100"]


def test_nan_is_null_on_disk_and_a_dash_on_the_page(tmp_path):
    """A scorer that abstains everywhere has no figures."""
    folder = write_evaluation(tmp_path / "eval", pairs(2), {"rm": margins([None, None])})
    assert json.loads((folder / "summary.json").read_text())["rows"][0]["overall"][0] is None
    report = read_report(folder)
    html = areas_html(report, "eval", "rm")
    assert math.isnan(report.rows[0].overall.value)
    assert "nan" not in html and 'class="range"' not in html and ">–</a>" in html
    assert "nan" not in scores_html(report, "eval")
    assert queries.lengths_of(folder, "rm").answers == 0 == len(queries.margins_of(folder, "rm"))


MEASURES = {"context_sensitivity": 0.25, "entropy": 2.0, "length_correlation": None, "accuracy": 0.75, "pairs": 40}


def test_a_guide_is_a_table_of_its_measures_and_damaged_ones_have_none(tmp_path):
    guide = {"base_context_sensitivity": 1.5, "objectives": {"<b>kind": MEASURES, "safe": MEASURES}}
    stored = {"guides": {"<i>arm": guide | {"collapsed": ["safe"]}}}
    (tmp_path / "manifest.json").write_text(json.dumps(stored))
    html = guides_html(read_guides(tmp_path))
    assert "&lt;i&gt;arm" in html and "&lt;b&gt;kind" in html and "base model: 1.50" in html
    assert "<td>0.25</td><td>2.00</td><td>–</td><td>0.75</td><td>–</td><td>40</td>" in html
    assert html.count(">collapsed</span>") == 1 and html.count("data-definition=") == 6
    for text in ("{}", "", "[]", '{"guides": 3}', '{"guides": {"a": {"objectives": []}}}'):
        (tmp_path / "manifest.json").write_text(text)
        assert guides_html(read_guides(tmp_path)) == "" == guides_html(read_guides(tmp_path / "gone")), text


def test_the_style_matrix_is_the_mean_over_domains(run, tmp_path):
    """Chat: the plain right answer beats nothing, the others all. Code: right answers win but for plain > fancy."""
    chat, code = (0.0, 9.0, 9.0, 5.0, 5.0, 5.0), (5.0, 9.0, 9.0, 1.0, 2.0, 7.0)
    scores = {"c0": chat, "c1": code, "c2": code}
    folder = write_evaluation(tmp_path / "styles", styled("chat", "code", "code"), {"rm": scores})
    matrix = queries.style_matrix(folder, "rm_bench", "rm")
    assert matrix is not None
    np.testing.assert_allclose(matrix, [[0.5, 0.5, 0.0], [1, 1, 1], [1, 1, 1]])
    assert "hard 50.0, normal 83.3, easy 100.0" in figures.matrix_html(matrix)
    assert read_report(folder).rows[0].sections["hard"].value == pytest.approx(0.5)
    assert queries.style_matrix(run, "pairs", "rm") is None


def test_calibration_is_accuracy_against_the_claimed_confidence(run):
    """σ(0.5), σ(1) twice, σ(2), σ(3): bins of width 0.05 from 0.5; the two at σ(1) are right once."""
    margins = queries.margins_of(run, "rm")
    assert sorted(margins) == [-3.0, -1.0, 0.5, 1.0, 2.0]
    points = figures.calibration(margins, "eval", "rm").data[0]
    sigma = [1 / (1 + math.exp(-value)) for value in (0.5, 1.0, 2.0, 3.0)]
    assert [*points.x] == pytest.approx(sigma) and [*points.y] == [1.0, 0.5, 1.0, 0.0]
    assert [*points.customdata] == [1, 2, 1, 1]
    assert points.meta.startswith("?tab=judgments&run=eval&scorer=rm&outcome=wrong&order=worst&margin=")
    ends = [math.log(p / (1 - p)) for p in (0.65, 0.75, 0.9)]
    assert [float(id) for id in points.ids if id] == pytest.approx(ends, abs=1e-5) and points.ids[-1] == ""
    gaps = [1 - sigma[0], 2 * (sigma[1] - 0.5), 1 - sigma[2], sigma[3]]
    assert f"</button> {sum(gaps) / 5:.3f} over 5 cases" in figures.calibration_html(margins)
    assert "judged no case" in figures.calibration_html(np.array([]))


def test_the_score_by_length_has_means_counts_a_slope_and_an_axis_of_whole_numbers(tmp_path):
    folder = write_evaluation(tmp_path / "eval", pairs(2), {"rm": SCORES})
    found = queries.lengths_of(folder, "rm")
    assert found.bins == [(4.0, 2.0, 1.0, 2), (8.0, 6.0, 1.0, 2)]
    assert found.slope == pytest.approx(4) and found.answers == 4
    points = figures.length_figure(found, "a/b", "rm").data[0]
    assert [*points.y] == [2.0, 6.0] and [*points.ids] == ["4-5", "8-11"]
    assert points.meta == "?tab=judgments&run=a%2Fb&scorer=rm&outcome=all&length="
    told = figures.length_html(queries.row_of(read_report(folder), "rm"), found)
    assert (
        "changes by +4 (in units of the score) per doubling" in told and "Within the 2 pairs of two responses" in told
    )
    folder = write_evaluation(tmp_path / "alike", pairs(2, (4, 4)), {"rm": SCORES})  # of one length: no slope
    found = queries.lengths_of(folder, "rm")
    told = figures.length_html(queries.row_of(read_report(folder), "rm"), found)
    assert len(found.bins) == 1 and "changes by – " in told
    for low in (1, 2.5, 30, 4000):
        for high in (low, 1.5 * low, 40 * low, 3000 * low):
            lengths = queries.Lengths([queries.LengthBin(end, 0.0, 0.0, 1) for end in (low, high)], 0.0, 2)
            axis = figures.length_figure(lengths, "eval", "rm").layout.xaxis
            assert [float(text.replace(",", "")) for text in axis.ticktext] == [*axis.tickvals]
            assert axis.tickvals[0] <= low and axis.tickvals[-1] >= high and len(axis.tickvals) <= 12
