"""Views of the run folder of `ponds.py`."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.inspector.tabs.judgments.case_html import case_html
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, lines, open_run, outcomes, position, subsets
from rewardlab.apps.runs.evaluation_files import write_evaluation
from rewardlab.apps.runs.tables import write_items, write_scores
from rewardlab.benchmarks.evaluate import Evaluation, evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.ponds import MODEL, NULL, write_run

CHOSEN = Filter(MODEL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_run(tmp_path_factory.mktemp("runs") / "eval"))


def count(run, filter: Filter) -> int:
    """How many cases pass."""
    return outcomes(run, filter)[filter.outcome]


def names(run, filter: Filter, **options) -> list[str]:
    return [line.case for line in lines(run, filter, 0, 100, **options)]


# ---- opening ----


def test_a_run_knows_its_suite_its_scorers_and_its_subsets(run):
    assert run.suite == "ponds" and run.scorers == ((MODEL, "model"), (NULL, "baseline"))
    assert subsets(run) == {"chat": 3, "hard": 1, "safety": 3}


def test_the_html_and_the_images_of_a_report_are_text(tmp_path):
    folder = write_run(tmp_path / "eval")
    (folder / "report.md").write_text("# ponds <script>x</script>\n\n![a](https://elsewhere.example/x.png)\n")
    assert open_run(folder).report == "# ponds &lt;script>x&lt;/script>\n\n*[a]*\n"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="no run folder .*nowhere; name one"):
        open_run(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["items.parquet", "scores.parquet", "report.md"])
def test_a_missing_file_is_named_with_the_way_out(tmp_path, name):
    folder = write_run(tmp_path / "eval")
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"eval has no {name}.*rewardlab eval.*--overwrite"):
        open_run(folder)


def test_a_run_without_a_summary_is_not_finished(tmp_path):
    folder = write_run(tmp_path / "eval.partial")
    (folder / "summary.json").unlink()
    with pytest.raises(DataError, match="eval.partial has no summary.json yet: it is still running, or was cut off"):
        open_run(folder)


@pytest.mark.parametrize("name", ["items.parquet", "scores.parquet", "summary.json"])
def test_a_damaged_file_is_named_with_the_way_out(tmp_path, name):
    folder = write_run(tmp_path / "eval")
    (folder / name).write_bytes((folder / name).read_bytes()[:40])
    with pytest.raises(DataError, match=f"eval.*{name} is damaged.*--overwrite"):
        open_run(folder)


def test_a_table_without_a_column_is_damaged(tmp_path):
    folder = write_run(tmp_path / "eval")
    pq.write_table(pq.read_table(folder / "scores.parquet").drop_columns(["margin"]), folder / "scores.parquet")
    with pytest.raises(DataError, match="scores.parquet has other columns than are read .*margin"):
        open_run(folder)


def test_tables_of_two_runs_do_not_go_together(tmp_path):
    folder = write_run(tmp_path / "eval")
    pq.write_table(pq.read_table(folder / "items.parquet").slice(1), folder / "items.parquet")
    with pytest.raises(DataError, match="scores 'a1', which items.parquet does not hold"):
        lines(open_run(folder), CHOSEN, 0, 10)


def test_a_scorer_of_the_report_without_scores_is_told(tmp_path):
    folder = write_run(tmp_path / "eval")
    pq.write_table(pq.read_table(folder / "scores.parquet").slice(0, 7), folder / "scores.parquet")
    with pytest.raises(DataError, match="no scores of .*onerror"):
        open_run(folder)


def test_a_folder_may_be_called_like_a_pattern_or_a_partition(tmp_path):
    write_run(tmp_path / "case=z" / "5a")
    run = open_run(write_run(tmp_path / "case=z" / "5[a]*"))
    assert names(run, CHOSEN)[:2] == ["a1", "a2"]
    assert count(run, CHOSEN) == 7


def test_what_eval_writes_can_be_opened(tmp_path):
    case = Case("c", ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}), ("a", "b"), (1,))
    judged = {"rm": [Judgment("c", (1.0, 3.0))], "shy": [Judgment("c", abstained="too long")]}
    evaluation = Evaluation(None, [case], judged, {"rm": [2.0], "shy": [None]})
    write_items(evaluation, tmp_path)
    write_scores(evaluation, tmp_path)
    rows = [{"scorer": "rm", "role": "model"}, {"scorer": "shy", "role": "baseline"}]
    (tmp_path / "summary.json").write_text(json.dumps({"suite": "one", "rows": rows}))
    (tmp_path / "report.md").write_text("# one\n")
    run = open_run(tmp_path)
    assert lines(run, Filter("rm"), 0, 5) == [("c", "", "right", 2.0, 3.0, 1.0, "system: Be kind. user: Hi")]
    assert [turn["role"] for turn in item(run, "rm", "c").messages] == ["system", "user"]
    assert item(run, "rm", "c").verdicts[1].abstained == "too long"


# ---- filters ----


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (Filter(MODEL), "a1 a2 a3 a4 a5 a6 a7"),
        (Filter(MODEL, "wrong"), "a1 a2 a7"),
        (Filter(MODEL, "right"), "a3 a6"),
        (Filter(MODEL, "tie"), "a4"),
        (Filter(MODEL, "abstained"), "a5"),
        (Filter(NULL, "wrong"), ""),
        (Filter(MODEL, subset="chat"), "a1 a2 a6"),
        (Filter(MODEL, "wrong", subset="chat"), "a1 a2"),
        (Filter(MODEL, "wrong", subset=["chat", "hard"]), "a1 a2 a7"),
        (Filter(MODEL, subset=[]), ""),
        (Filter(MODEL, subset="chat' OR '1'='1"), ""),
        (Filter(MODEL, max_margin=0.125), "a2 a4 a6"),
        (Filter(MODEL, max_margin=0), "a4"),
        (Filter(MODEL, "wrong", max_margin=1), "a1 a2"),
        (Filter(MODEL, "abstained", max_margin=9), ""),
        (Filter(MODEL, search="SCRIPT"), "a1"),
        (Filter(MODEL, search="moss"), "a1 a6"),
        (Filter(MODEL, search=" it's "), "a5"),
        (Filter(MODEL, search="A7"), "a7"),
        (Filter(MODEL, search="%"), ""),
        (Filter(MODEL, gap=1), "a1 a3 a5"),
        (Filter(MODEL, gap=2), "a1"),
        (Filter(MODEL, gap=0), "a1 a3 a4 a5 a6"),
        (Filter(MODEL, gap=-1), "a2 a7"),
        (Filter(MODEL, "wrong", gap=-0.5), "a2 a7"),
        (Filter(MODEL, length=(3, 3)), "a1 a2 a5 a7"),
        (Filter(MODEL, "wrong", length=(15, 20)), "a1"),
        (Filter(MODEL, baseline_right=True), "a1 a2 a3 a4 a5 a6 a7"),
        (Filter(MODEL, among=["a7", "a2", "a9"]), "a2 a7"),
        (Filter(MODEL, "right", among=["a7", "a2"]), ""),
        (Filter(MODEL, among=[]), ""),
        (Filter(MODEL, "wrong", "chat", 0.5, "tree", -1, True, ["a2", "a3"]), "a2"),
    ],
)
def test_a_filter_passes_these_cases_and_no_others(run, filter, expected):
    assert names(run, filter) == expected.split()
    assert count(run, filter) == len(expected.split())


def test_another_runs_scorer_is_told(run):
    with pytest.raises(UsageError, match="no scorer 'nobody' in this run; there is runs/rm"):
        count(run, Filter("nobody"))


def test_outcomes_are_counted_whatever_outcome_is_shown(run):
    counts = {"all": 7, "wrong": 3, "right": 2, "tie": 1, "abstained": 1}
    assert outcomes(run, Filter(MODEL, "wrong")) == outcomes(run, CHOSEN) == counts
    assert outcomes(run, Filter(MODEL, "tie", subset="chat")) == counts | {
        "all": 3,
        "wrong": 2,
        "right": 1,
        "tie": 0,
        "abstained": 0,
    }


def test_a_filter_refuses_what_it_cannot_mean():
    with pytest.raises(UsageError, match="no outcome 'wron'; there is all, wrong"):
        Filter(MODEL, "wron")
    with pytest.raises(UsageError, match="length gap is a number"):
        Filter(MODEL, gap=float("nan"))
    for margin in (-1.0, float("nan")):
        with pytest.raises(UsageError, match="number >= 0, got"):
            Filter(MODEL, max_margin=margin)


# ---- pages ----


def test_the_lowest_margins_come_first_and_abstentions_last(run):
    assert names(run, CHOSEN, order="margin") == ["a4", "a6", "a2", "a1", "a3", "a7", "a5"]
    assert names(run, CHOSEN, order="worst") == ["a7", "a1", "a2", "a4", "a6", "a3", "a5"]
    with pytest.raises(UsageError, match="no order 'size'"):
        names(run, CHOSEN, order="size")


def test_the_largest_length_gaps_come_first(run):
    """By hand: 16 - 3, 3 - 4, 5 - 4, 0, 4 - 3, 0, and for a7 the mean of 3 and 3 minus 4."""
    assert names(run, CHOSEN, order="gap") == ["a1", "a2", "a3", "a5", "a7", "a4", "a6"]


def test_stored_lengths_are_taken_for_the_texts(tmp_path):
    folder = write_run(tmp_path / "eval")
    table = pq.read_table(folder / "items.parquet")
    lengths = [[0] * len(answers) for answers in table["answers"].to_pylist()]
    lengths[3] = [7, 1]
    pq.write_table(table.append_column("lengths", pa.array(lengths)), folder / "items.parquet")
    assert names(open_run(folder), CHOSEN, order="gap")[0] == "a4"


def test_only_cases_that_some_null_gets_right_too(tmp_path):
    folder = write_run(tmp_path / "eval")
    rows = pq.read_table(folder / "scores.parquet").to_pylist()
    for row, margin in zip(rows[7:], [1.0, -1.0, 0.0, None, 2.0, -3.0, -1.0], strict=True):
        row["margin"] = margin
    pq.write_table(pa.Table.from_pylist(rows), folder / "scores.parquet")
    assert names(open_run(folder), Filter(MODEL, baseline_right=True)) == ["a1", "a5"]


@pytest.mark.parametrize("order", ["items", "margin", "worst", "gap"])
def test_a_case_is_found_where_the_pages_show_it(run, order):
    everything = names(run, CHOSEN, order=order)
    assert [position(run, CHOSEN, case, order=order) for case in everything] == list(range(7))
    assert position(run, Filter(MODEL, "right"), "a6", order=order) is not None
    assert position(run, Filter(MODEL, "right"), "a1", order=order) is None
    assert position(run, CHOSEN, "a9", order=order) is None


@pytest.mark.parametrize("order", ["items", "margin", "worst", "gap"])
def test_pages_hold_every_case_once(run, order):
    pages = [[line.case for line in lines(run, CHOSEN, 3 * number, 3, order=order)] for number in range(4)]
    assert [len(lines) for lines in pages] == [3, 3, 1, 0]
    assert [case for cases in pages for case in cases] == names(run, CHOSEN, order=order)


def test_a_line_has_the_lowest_right_and_the_highest_wrong_score(run):
    found = {line.case: line for line in lines(run, CHOSEN, 0, 10)}
    assert found["a7"] == ("a7", "hard", "wrong", -3.0, 1.0, 4.0, "Name two")
    assert found["a5"] == ("a5", "safety", "abstained", None, None, None, "Say 'it's'")
    assert found["a1"].prompt == "<script>window.hacked = 1; alert(1)</script> ${alert(2)} {{value}} & two spaces"[:80]


# ---- one case ----


def test_an_item_has_what_every_scorer_made_of_it(run):
    found = item(run, MODEL, "a7")
    assert found.answers == ("elm", "newt", "ash") and found.best == (0, 2) and found.subset == "hard"
    assert found.verdict.scores == (1.0, 4.0, 3.0) and found.verdict.outcome == "wrong"
    assert found.verdicts[1].scores == (1.0, 0.0, 1.0) and found.verdicts[1].outcome == "right"
    with pytest.raises(UsageError, match="no case 'a9'"):
        item(run, MODEL, "a9")


def test_verdicts_are_found_in_a_table_of_any_order(tmp_path):
    folder = write_run(tmp_path / "eval")
    table = pq.read_table(folder / "scores.parquet")
    pq.write_table(table.take(pa.array([*range(13, -1, -1)])), folder / "scores.parquet")
    run = open_run(folder)
    assert names(run, CHOSEN) == ["a1", "a2", "a3", "a4", "a5", "a6", "a7"]
    assert lines(run, CHOSEN, 0, 10)[6].chosen == 1.0
    found = item(run, MODEL, "a7")
    assert found.verdict.scores == (1.0, 4.0, 3.0) and found.verdicts[1].margin == 1.0


def test_a_run_that_is_written_anew_is_read_anew(tmp_path):
    folder = write_run(tmp_path / "eval")
    assert count(open_run(folder), CHOSEN) == 7
    shutil.rmtree(folder)
    write_run(folder, copies=2)
    assert count(open_run(folder), CHOSEN) == 14


def test_the_margin_lies_between_a_pair(run):
    assert item(run, MODEL, "a7").pair == (0, 1)
    assert item(run, MODEL, "a2").pair == (1, 0)
    assert item(run, MODEL, "a5").pair == (0, 1), "without scores the first of each"


def test_an_item_tells_what_the_report_says_of_its_subset(tmp_path):
    cases = [Case(f"c{k}", ({"role": "user", "content": f"p{k}"},), ("a", "b"), (0,), "moss") for k in range(4)]
    scores = StoredScores("rm", {f"c{k}": (1.0, 0.0) if k else (0.0, 1.0) for k in range(4)})
    write_evaluation(evaluate(pairs(), cases, [scores], samples=50), tmp_path)
    found = item(open_run(tmp_path), "rm", "c1")
    assert found.interval.value == 0.75
    assert "75.0 [" in case_html(found) and "% of the subset" in case_html(found)


def test_everything_hostile_is_escaped_and_whitespace_is_kept(run):
    html = case_html(item(run, MODEL, "a1"))
    assert "&lt;script&gt;window.hacked = 1; alert(1)&lt;/script&gt;" in html and "<script" not in html
    assert "{{value}}\n  &amp; two spaces</div>" in html and "white-space: pre-wrap" in html
    assert "Good &lt;b&gt;moss&lt;/b&gt;" in html and "&lt;img src=x" in html and "<img" not in html
    assert "://" not in html, "nothing is fetched from elsewhere"


def test_the_right_answers_and_the_highest_score_are_marked(run):
    right, newt, ash = case_html(item(run, MODEL, "a7")).split('<div class="box answer')[1:]
    assert "✓ right" in right and "✓ right" not in newt and "✓ right" in ash
    assert "highest score" in newt and "highest score" not in right


def test_an_abstention_is_told_with_its_reason(run):
    html = case_html(item(run, MODEL, "a5"))
    assert "abstained: no score" in html and "highest score" not in html


def test_the_views_need_neither_torch_nor_gradio():
    import subprocess
    import sys

    root = Path(__file__).resolve().parents[5]
    script = (
        f"import sys, types; m = types.ModuleType('rewardlab'); m.__path__ = [{str(root)!r}]; "
        "sys.modules['rewardlab'] = m; import rewardlab.apps.inspector.tabs.judgments.queries; "
        "assert not {'torch', 'gradio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
