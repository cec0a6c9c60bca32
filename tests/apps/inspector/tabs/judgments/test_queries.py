import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.inspector.assets import stylesheet
from rewardlab.apps.inspector.tabs.judgments.case_html import case_html
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.filters import START, filter_of, subset_choices
from rewardlab.apps.inspector.tabs.judgments.queries import (
    Filter,
    lines,
    open_run,
    outcomes,
    position,
    sections,
    subsets,
)
from rewardlab.apps.inspector.tabs.metrics import SECTION
from rewardlab.apps.runs.evaluation_files import write_evaluation as write_opened
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import user_turn

from tests.apps.inspector.evaluations import write_evaluation
from tests.apps.inspector.ponds import MODEL, NULL, write_run

CHOSEN = Filter(MODEL)
ORDERS = {
    "items": "a1 a2 a3 a4 a5 a6 a7",
    "margin": "a4 a6 a2 a1 a3 a7 a5",  # abstentions last
    "worst": "a7 a1 a2 a4 a6 a3 a5",
    "gap": "a1 a2 a3 a5 a7 a4 a6",  # 16 - 3, 3 - 4, 5 - 4, 0, 4 - 3, 0, and for a7 the mean of 3 and 3 minus 4
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_run(tmp_path_factory.mktemp("runs") / "eval"))


def names(run, filter: Filter = CHOSEN, **options) -> list[str]:
    return [line.case for line in lines(run, filter, 0, 100, **options)]


def changed(folder: Path, name: str, change) -> Path:
    """A run whose table of that name is another one."""
    write_run(folder)
    pq.write_table(change(pq.read_table(folder / name)), folder / name)
    return folder


def test_a_run_knows_its_suite_its_scorers_and_its_subsets_and_its_report_is_text(run, tmp_path):
    assert run.suite == "ponds" and run.scorers == ((MODEL, "model"), (NULL, "baseline"))
    assert subsets(run) == {"chat": 3, "hard": 1, "safety": 3}
    folder = write_run(tmp_path / "eval")
    (folder / "report.md").write_text("# ponds <script>x</script>\n\n![a](https://elsewhere.example/x.png)\n")
    assert open_run(folder).report == (
        '<h2 dir="auto">ponds &lt;script&gt;x&lt;/script&gt;</h2>\n<p dir="auto">'
        '<span class="mark">image: a (https://elsewhere.example/x.png)</span></p>\n'
    )


def test_a_missing_or_damaged_file_is_named_with_the_way_out(tmp_path):
    with pytest.raises(UsageError, match="no run folder .*nowhere; name a run"):
        open_run(tmp_path / "nowhere")
    for name in ("items.parquet", "scores.parquet", "report.md", "summary.json"):
        folder = write_run(tmp_path / name / "eval")
        whole = (folder / name).read_bytes()
        (folder / name).unlink()
        missing = f"eval has no {name}.*rewardlab eval.*--overwrite"
        running = "eval has no summary.json yet: it is still running, or was cut off"
        with pytest.raises(DataError, match=running if name == "summary.json" else missing):
            open_run(folder)
        if name != "report.md":
            (folder / name).write_bytes(whole[:40])
            with pytest.raises(DataError, match=f"eval.*{name} is damaged.*--overwrite"):
                open_run(folder)


def test_tables_that_do_not_go_together_are_told(tmp_path):
    folder = changed(tmp_path / "a", "scores.parquet", lambda table: table.drop_columns(["margin"]))
    with pytest.raises(DataError, match="scores.parquet has other columns than are read .*margin"):
        open_run(folder)
    folder = changed(tmp_path / "b", "scores.parquet", lambda table: table.slice(0, 7))
    with pytest.raises(DataError, match="no scores of .*onerror"):
        open_run(folder)
    folder = changed(tmp_path / "c", "items.parquet", lambda table: table.slice(1))
    with pytest.raises(DataError, match="scores 'a1', which items.parquet does not contain"):
        lines(open_run(folder), CHOSEN, 0, 10)


def test_a_folder_may_be_called_like_a_pattern_or_a_partition_and_is_read_anew(tmp_path):
    write_run(tmp_path / "case=z" / "5a")
    folder = write_run(tmp_path / "case=z" / "5[a]*")
    assert names(open_run(folder)) == ORDERS["items"].split()
    shutil.rmtree(folder)
    write_run(folder, copies=2)
    assert outcomes(open_run(folder), CHOSEN)["all"] == 14


def test_turns_of_a_prompt_are_told_apart_and_an_abstention_has_its_reason(tmp_path):
    case = Case("c", ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}), ("a", "b"), (1,))
    run = open_run(write_evaluation(tmp_path / "eval", [case], {"rm": {"c": (1.0, 3.0)}, "shy": {"c": "too long"}}))
    assert lines(run, Filter("rm"), 0, 5) == [("c", "", "right", 2.0, "system: Be kind. user: Hi")]
    found = item(run, "rm", "c")
    assert [turn["role"] for turn in found.messages] == ["system", "user"]
    assert found.verdicts[1].abstained == "too long"


PASSING = [
    (Filter(MODEL, "wrong"), "a1 a2 a7"),
    (Filter(MODEL, "tie"), "a4"),
    (Filter(MODEL, "abstained"), "a5"),
    (Filter(NULL, "wrong"), ""),
    (Filter(MODEL, "wrong", subset="chat"), "a1 a2"),
    (Filter(MODEL, "wrong", subset=["chat", "hard"]), "a1 a2 a7"),
    (Filter(MODEL, subset="chat' OR '1'='1"), ""),
    (Filter(MODEL, max_margin=0.125), "a2 a4 a6"),
    (Filter(MODEL, max_margin=0), "a4"),
    (Filter(MODEL, search="SCRIPT"), "a1"),
    (Filter(MODEL, search="moss"), "a1 a6"),
    (Filter(MODEL, search=" it's "), "a5"),
    (Filter(MODEL, search="%"), ""),
    (Filter(MODEL, gap=2), "a1"),
    (Filter(MODEL, gap=0), "a1 a3 a4 a5 a6"),
    (Filter(MODEL, "wrong", gap=-0.5), "a2 a7"),
    (Filter(MODEL, "wrong", length=(15, 20)), "a1"),
    (Filter(MODEL, among=["a7", "a2", "a9"]), "a2 a7"),
    (Filter(MODEL, among=[]), ""),
    (Filter(MODEL, "wrong", "chat", 0.5, "tree", -1, True, ["a2", "a3"]), "a2"),
]


def test_a_filter_passes_these_cases_and_all_outcomes_are_counted(run):
    for filter, expected in PASSING:
        assert names(run, filter) == expected.split(), filter
        assert outcomes(run, filter)[filter.outcome] == len(expected.split()), filter
    counts = {"all": 7, "wrong": 3, "right": 2, "tie": 1, "abstained": 1}
    assert outcomes(run, Filter(MODEL, "wrong")) == outcomes(run, CHOSEN) == counts
    in_chat = {"all": 3, "wrong": 2, "right": 1, "tie": 0, "abstained": 0}
    assert outcomes(run, Filter(MODEL, "tie", subset="chat")) == in_chat


def test_a_filter_refuses_what_it_cannot_mean(run):
    with pytest.raises(UsageError, match="no scorer 'nobody' in this run; choose one of runs/rm"):
        outcomes(run, Filter("nobody"))
    with pytest.raises(UsageError, match="unknown outcome 'wron'; choose one of all, wrong"):
        Filter(MODEL, "wron")
    with pytest.raises(UsageError, match="length gap must be a number"):
        Filter(MODEL, gap=float("nan"))
    for margin in (-1.0, float("nan")):
        with pytest.raises(UsageError, match="number >= 0, got"):
            Filter(MODEL, max_margin=margin)


def test_a_section_of_an_address_passes_the_cases_of_its_subsets(tmp_path):
    """RM-Bench's safety has two subsets; its domain chat is a subset, and its levels are all of it."""
    chosen = ("chat", "safety-refuse", "safety-response")
    cases = [Case(f"c{k}", user_turn(name), tuple("abcdef"), (0, 1, 2), name) for k, name in enumerate(chosen)]
    scores = {case.id: (2.0, 2.0, 2.0, 1.0, 1.0, 1.0) for case in cases}
    run = open_run(write_evaluation(tmp_path / "eval", [replace(case, sets=(3, 3)) for case in cases], {"rm": scores}))
    assert sections(run) == {"safety": ["safety-refuse", "safety-response"]}
    assert ("section safety (2)", f"{SECTION}safety") in subset_choices(run)
    asked = START._replace(run="eval", scorer="rm", outcome="all")
    for name, expected in (("safety", ["c1", "c2"]), ("gone", [])):
        assert names(run, filter_of(run, asked._replace(subset=f"{SECTION}{name}"), [])) == expected


def test_cases_are_ordered_and_found_where_the_pages_show_them(run):
    for order, expected in ORDERS.items():
        assert names(run, order=order) == expected.split(), order
        pages = [[line.case for line in lines(run, CHOSEN, 3 * number, 3, order=order)] for number in range(4)]
        assert [len(page) for page in pages] == [3, 3, 1, 0]
        assert [case for page in pages for case in page] == expected.split()
        assert [position(run, CHOSEN, case, order=order) for case in expected.split()] == list(range(7))
        assert position(run, Filter(MODEL, "right"), "a6", order=order) is not None
        assert position(run, Filter(MODEL, "right"), "a1", order=order) is None
        assert position(run, CHOSEN, "a9", order=order) is None
    with pytest.raises(UsageError, match="unknown order 'size'"):
        names(run, order="size")


def test_lengths_are_those_that_are_stored_and_a_baseline_must_be_right(tmp_path):
    folder = write_run(tmp_path / "lengths")
    table = pq.read_table(folder / "items.parquet").drop_columns(["lengths"])
    lengths = [[0] * len(answers) for answers in table["answers"].to_pylist()]
    lengths[3] = [7, 1]
    pq.write_table(table.append_column("lengths", pa.array(lengths)), folder / "items.parquet")
    assert names(open_run(folder), order="gap")[0] == "a4"
    rows = pq.read_table(folder / "scores.parquet").to_pylist()
    for row, margin in zip(rows[7:], [1.0, -1.0, 0.0, None, 2.0, -3.0, -1.0], strict=True):
        row["margin"] = margin
    pq.write_table(pa.Table.from_pylist(rows), folder / "scores.parquet")
    assert names(open_run(folder), Filter(MODEL, baseline_right=True)) == ["a1", "a5"]


def test_a_line_has_the_margin_and_the_beginning_of_the_prompt(run):
    found = {line.case: line for line in lines(run, CHOSEN, 0, 10)}
    assert found["a7"] == ("a7", "hard", "wrong", -3.0, "Name two")
    assert found["a5"] == ("a5", "safety", "abstained", None, "Say 'it's'")
    assert found["a1"].prompt == "<script>window.hacked = 1; alert(1)</script> ${alert(2)} {{value}} & two spaces"[:80]


def test_an_item_has_what_every_scorer_made_of_it_in_a_table_of_any_order(run, tmp_path):
    turned = changed(tmp_path / "eval", "scores.parquet", lambda table: table.take(pa.array([*range(13, -1, -1)])))
    for opened in (run, open_run(turned)):
        found = item(opened, MODEL, "a7")
        assert found.answers == ("elm", "newt", "ash") and found.best == (0, 2) and found.subset == "hard"
        assert found.verdict.scores == (1.0, 4.0, 3.0) and found.verdict.outcome == "wrong"
        assert found.verdicts[1].scores == (1.0, 0.0, 1.0) and found.verdicts[1].outcome == "right"
        assert names(opened) == ORDERS["items"].split() and lines(opened, CHOSEN, 0, 10)[6].margin == -3.0
    with pytest.raises(UsageError, match="no case 'a9'"):
        item(run, MODEL, "a9")
    assert [item(run, MODEL, case).pair for case in ("a7", "a2")] == [(0, 1), (1, 0)]
    assert item(run, MODEL, "a5").pair == (0, 1), "without scores the first of each"


def test_an_item_tells_what_the_report_says_of_its_subset(tmp_path):
    cases = [Case(f"c{k}", user_turn(f"p{k}"), ("a", "b"), (0,), "moss") for k in range(4)]
    scores = StoredScores("rm", {f"c{k}": (1.0, 0.0) if k else (0.0, 1.0) for k in range(4)})
    write_opened(evaluate(pairs(), cases, [scores], samples=50), tmp_path)
    found = item(open_run(tmp_path), "rm", "c1")
    assert found.interval.value == 0.75
    assert "75.0 [" in case_html(found) and "% of the subset" in case_html(found)


def test_everything_hostile_is_escaped_and_whitespace_is_kept(run):
    html = case_html(item(run, MODEL, "a1"))
    assert "&lt;script&gt;window.hacked = 1; alert(1)&lt;/script&gt;" in html and "<script" not in html
    assert "{{value}}\n  &amp; two spaces</div>" in html and "white-space: pre-wrap" in stylesheet("content.css")
    assert "Good &lt;b&gt;moss&lt;/b&gt;" in html and "&lt;img src=x" in html and "<img" not in html
    assert "://" not in html, "nothing is fetched from elsewhere"


def test_the_right_answers_the_highest_scores_ties_and_abstentions_are_marked(run):
    right, newt, ash = case_html(item(run, MODEL, "a7")).split('<div class="box answer')[1:]
    assert "✓ right" in right and "✓ right" not in newt and "✓ right" in ash
    assert "highest score" in newt and "highest score" not in right
    assert case_html(item(run, MODEL, "a4")).count("tied for highest score") == 2
    html = case_html(item(run, MODEL, "a5"))
    assert "abstained: no score" in html and "highest score" not in html
