import json
import re
from html import escape, unescape

import pyarrow.parquet as pq
import pytest
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.tabs.overview.leaderboard import boards_html
from rewardlab.apps.inspector.tabs.overview.queries import Curve, Overview, Training, overview, ranks
from rewardlab.apps.inspector.tabs.overview.runs_html import points, runs_html
from rewardlab.apps.inspector.tabs.training.log import SETS, panels, read_sources
from rewardlab.apps.inspector.tabs.training.queries import changes_html

from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.gallery import write_job
from tests.apps.inspector.trainings import logged, write_training

SHORT = {"shortest": margins([-1.0, -1.0, 1.0, 1.0])}


def test_models_stand_by_accuracy_with_their_gain_over_the_best_baseline(tmp_path):
    write_evaluation(tmp_path / "one", pairs(4), {"good": margins([1.0, 1.0, 1.0, -1.0])}, nulls=SHORT)
    write_evaluation(tmp_path / "two", pairs(4), {"bad": margins([1.0, -1.0, -1.0, None])}, nulls=SHORT)
    (board,) = overview(open_root(tmp_path)).boards
    assert [(standing.scorer, standing.run) for standing in board.standings] == [("good", "one"), ("bad", "two")]
    good, bad = board.standings
    assert good.areas["overall"].value == 0.75 and bad.areas["overall"].value == pytest.approx(1 / 3)
    assert good.gain is not None and good.gain.value == pytest.approx(0.25) and bad.abstained == 1
    html = boards_html((board,))
    assert html.index(">good<") < html.index(">bad<") and html.count('class="tick"') == 2 and "+25.0" in html
    assert "A: shortest, 50.0 %" in html, "the letters of the ticks have a key"
    worst = "?tab=judgments&run=one&scorer=good&outcome=wrong&order=worst"
    assert f'<a href="{escape(worst)}">Worst mistakes of good</a>' in html


def test_ranks_begin_at_1_though_a_baseline_is_better(tmp_path):
    models = {"bad": margins([-1.0] * 40), "good": margins([1.0, -1.0] * 20)}
    write_evaluation(tmp_path / "one", pairs(40), models, nulls={"shortest": margins([1.0] * 40)})
    root = open_root(tmp_path)
    (board,) = overview(root).boards
    assert ranks(root, board) == {("one", "good"): 1, ("one", "bad"): 2}


def test_a_curve_has_the_name_and_the_ends_of_the_training_tab(tmp_path):
    log = [{"step": step, "loss": 0.7, "accuracy": 0.4 + step / 100} for step in range(1, 31)]
    log += [{"step": step, "eval_loss": 0.7, "eval_accuracy": 0.5 + step / 300} for step in (15, 30)]
    write_training(tmp_path / "rm", log, kept=())
    (training,) = overview(open_root(tmp_path)).trainings
    assert [curve.name for curve in training.curves] == [f"{a}, {b}" for a in ("Loss", "Accuracy") for b in SETS]
    html = runs_html(overview(open_root(tmp_path)), "")
    changes = changes_html(log, (), panels(log, read_sources(tmp_path / "rm")), "rm", None)
    for name, first, last in (("Accuracy, train", "0.42", "0.69"), ("Accuracy, held-out", "0.55", "0.6")):
        assert f'aria-label="{name} from {first} to {last}"' in html
        assert f"{name}</th><td>{first}</td><td>{last}</td>" in changes


def test_results_of_a_part_of_a_benchmark_or_of_cut_cases_are_marked(tmp_path):
    sound = write_evaluation(tmp_path / "sound", pairs(4), {"good": margins([1.0] * 4)})
    summary = json.loads((sound / "summary.json").read_text())
    cut = write_evaluation(tmp_path / "cut", pairs(4), {"bad": margins([-1.0] * 4)})
    summary["notes"] = ["Not the whole benchmark: a 2 of 9."]
    summary["rows"][0] |= {"scorer": "bad", "truncated": 3, "omitted": 1}
    (cut / "summary.json").write_text(json.dumps(summary))
    stopped = write_evaluation(tmp_path / "stopped", pairs(4), {"slow": margins([1.0] * 4)})
    pq.write_table(pq.read_table(stopped / "scores.parquet").slice(0, 3), stopped / "scores.parquet")
    torn = write_evaluation(tmp_path / "torn", pairs(4), {"rm": margins([1.0] * 4)})
    (torn / "scores.parquet").write_bytes((torn / "scores.parquet").read_bytes()[:-40])
    listed = overview(open_root(tmp_path))
    marks = {standing.run: standing.cautions for board in listed.boards for standing in board.standings}
    assert marks == {
        "sound": (),
        "cut": ("part of the benchmark", "3 cases cut", "1 cases without a text that the template leaves out"),
        "stopped": ("3 of 4 judgments stored",),
    }
    assert [run.run for run in listed.unreadable] == ["torn"]
    html = boards_html(listed.boards)
    assert html.count("part of the benchmark") == 1 and ">3 cases cut</span>" in html


def test_damaged_and_unfinished_runs_are_listed_with_a_reason_or_their_progress(tmp_path):
    write_evaluation(tmp_path / "good", pairs(2), {"rm": margins([1.0, 1.0])})
    broken = write_evaluation(tmp_path / "broken", pairs(2), {"rm": margins([1.0, 1.0])})
    (broken / "summary.json").write_text("{")
    write_job(tmp_path / "running.partial", chunks=2)
    write_training(tmp_path / "rl", [logged(step) for step in (1, 2, 3)], finished=False)
    listed = overview(open_root(tmp_path))
    assert [standing.run for board in listed.boards for standing in board.standings] == ["good"]
    assert [run.run for run in listed.unreadable] == ["broken"] and "is damaged" in listed.unreadable[0].reason
    (job,) = listed.jobs
    assert (job.run, job.kind, job.progress, job.share) == ("running.partial", "evaluation", "512 judgments", 0.25)
    (training,) = listed.trainings
    assert training.step == 3 and training.growing
    curves = {curve.name: curve.values for curve in training.curves}
    assert curves == {"reward": (0.1, 0.2, 0.3), "gold": (0.9, 0.8, 0.7), "KL": (0.25, 0.5, 0.75)}
    html = runs_html(listed, str(tmp_path))
    for text in ("Training", "In progress", "Cannot be read", "512 judgments", "gold (watched)", 'value="25"'):
        assert text in html


def test_a_step_that_is_no_number_costs_only_its_line_and_a_curve_fills_its_rectangle(tmp_path):
    write_training(tmp_path / "rl", [logged(1), logged(2), logged(3) | {"step": float("nan")}])
    (training,) = overview(open_root(tmp_path)).trainings
    assert training.step == 2 and training.curves[0].values == (0.1, 0.2)
    assert points((1.0, 3.0, 2.0), 10.0, 4.0) == "0.0,4.0 5.0,0.0 10.0,2.0"
    name = 'a"<b>' * 10
    html = runs_html(Overview((), (Training("rl", 1, None, (Curve(name, (1.0,)),), False, 0.0),), (), (), {}), "")
    labels = re.findall(r'aria-label="([^"]*)"', html)
    assert [unescape(label) for label in labels] == [f"{name} from 1 to 1"], "a long name is text in attributes"


def test_many_runs_are_all_listed_names_are_escaped_and_a_folder_without_runs_has_commands(tmp_path):
    run = write_evaluation(tmp_path / "run000", pairs(2), {"rm": margins([1.0, 1.0])})
    for number in range(1, 150):
        folder = tmp_path / f"run{number:03d}"
        folder.mkdir()
        for name in ("summary.json", "manifest.json", "report.md"):
            (folder / name).write_bytes((run / name).read_bytes())
    (board,) = overview(open_root(tmp_path)).boards
    assert len(board.standings) == 150 and boards_html((board,)).count("<tr data-text=") == 150
    hostile = "<img src=x onerror=window.hacked=1>"
    write_evaluation(tmp_path / "runs" / "one", pairs(2), {hostile: margins([1.0, 1.0])})
    html = boards_html(overview(open_root(tmp_path / "runs")).boards)
    assert "<img" not in html and "&lt;img" in html
    (tmp_path / "empty").mkdir()
    html = runs_html(overview(open_root(tmp_path / "empty")), "None yet:\n`rewardlab eval --output /data/<runs>`")
    assert "<code>rewardlab eval --output /data/&lt;runs&gt;</code>" in html and "<runs>" not in html


def test_a_result_is_dated_by_its_manifest_and_without_one_it_is_running(tmp_path):
    run = write_evaluation(tmp_path / "one", pairs(2), {"rm": margins([1.0, 1.0])})
    (run / "manifest.json").write_text(json.dumps({"started": "2026-02-03T04:05:06Z"}))
    assert overview(open_root(tmp_path)).boards[0].standings[0].date == "2026-02-03"
    (run / "manifest.json").unlink()
    (board,) = overview(open_root(tmp_path)).boards
    assert len(board.standings[0].date) == 10 and board.standings[0].growing
    assert '<span class="pill">running</span>' in boards_html((board,))


def test_runs_on_other_cases_are_in_a_table_of_their_own(tmp_path):
    for name, cases in (("one", 4), ("two", 4), ("small", 2)):
        write_evaluation(tmp_path / name, pairs(cases), {name: margins([1.0] * cases)})
    found = [(board.cases, [one.run for one in board.standings]) for board in overview(open_root(tmp_path)).boards]
    assert found == [(4, ["one", "two"]), (2, ["small"])]
