"""Resume, share, verify, compare and rank evaluations."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from rewardlab.apps.cli import main
from rewardlab.apps.runs.finished import open_finished
from rewardlab.apps.runs.run_folder import plain
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.report import markdown
from rewardlab.benchmarks.scorers import StoredScores

from tests.apps.commands.conftest import SAVE
from tests.apps.conftest import write

RUN = "from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))"


def words(seed: int, number: int, good: float) -> list[dict]:
    draw, rows = random.Random(seed), []
    for place in range(number):
        base = " ".join(draw.choices(["stone", "river", "cloud", "paper", "moss"], k=draw.randint(2, 9)))
        right, wrong = f"kind {base}", f"rude {base} {draw.choice(['x', 'yy'])}"
        if draw.random() > good:
            right, wrong = wrong, right
        row = {"id": str(place), "prompt": f"q{place % 150}", "subset": "ab"[place % 2]}
        rows.append(row | {"chosen": right, "rejected": wrong})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data, two models of which one learnt nothing useful, and a run of each."""
    folder = tmp_path_factory.mktemp("reports")
    write(folder / "train.jsonl", words(0, 300, 0.95))
    write(folder / "noise.jsonl", words(1, 300, 0.5))
    data = write(folder / "test.jsonl", words(2, 300, 0.9))
    for name, train in (("good", "train.jsonl"), ("bad", "noise.jsonl")):
        assert main(["train", "--kind", "linear", "--data", str(folder / train), "--output", str(folder / name)]) == 0
        words_of_eval = ["--model", str(folder / name), "--data", data, "--samples", "200"]
        assert main(["eval", *words_of_eval, "--output", str(folder / "runs" / name)]) == 0
    return folder


def last_json(capsys) -> dict:
    return json.loads(capsys.readouterr().out.strip().split("\n")[-1])


def command(script, folder: Path, output: Path, *flags: str) -> list[str]:
    words = ["eval", "--model", folder / "good", "--data", folder / "test.jsonl", "--output", output]
    return script("import rewardlab.apps.runs.evaluation_resume as ledger; ledger.CHUNK = 20\n" + RUN, *words, *flags)


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one(folder, script, tmp_path):
    """Evaluations whose processes are killed are among the injections of tests/faults."""
    whole, output = tmp_path / "whole", tmp_path / "run"
    subprocess.run(command(script, folder, whole), check=True)
    _, _, text, *words = command(script, folder, output, "--processes", "2")
    (tmp_path / "run.py").write_text(text)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, str(tmp_path / "run.py"), *words], capture_output=True, text=True, env=threads)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.split("\n") if line.startswith("{")]
    assert {line["processes"] for line in lines} == {2} and any(line.get("rank") == 1 for line in lines)
    for name in ("report.md", "summary.json", "items.parquet", "scores.parquet", "report.png"):
        assert (whole / name).read_bytes() == (output / name).read_bytes(), name


def test_stored_scores_give_the_figures_that_the_model_had(folder, tmp_path, capsys):
    run = folder / "runs" / "good"
    table = [row for row in pq.read_table(run / "scores.parquet").to_pylist() if row["scorer"] == "good"]
    half = [{"id": row["case"], "score_chosen": row["scores"][0], "score_rejected": row["scores"][1]} for row in table]
    stored = write(tmp_path / "theirs.jsonl", [*half, {"id": "nobody", "score_chosen": 1, "score_rejected": 0}])
    data = ["--data", str(folder / "test.jsonl"), "--samples", "200"]
    assert main(["eval", "--scores", stored, *data, "--output", str(tmp_path / "run")]) == 0
    kept = json.loads((run / "summary.json").read_text())["rows"][0]["overall"]
    assert [*last_json(capsys)["overall"]["theirs"].values()] == kept
    assert "theirs holds 1 scores of no case, such as 'nobody'" in (tmp_path / "run" / "report.md").read_text()


def test_stored_scores_that_are_missing_not_finite_doubled_or_strange(folder, tmp_path, capsys):
    ids = [f"{'ab'[i % 2]}/{i}" for i in range(300)]
    good = [{"id": name, "scores": [1.0, 0.0]} for name in ids]
    data = ["--data", str(folder / "test.jsonl"), "--samples", "50"]

    def run(rows) -> tuple[int, str]:
        stored = write(tmp_path / "s.jsonl", rows)
        code = main(["eval", "--scores", stored, *data, "--output", str(tmp_path / "run"), "--overwrite"])
        return code, capsys.readouterr().err

    code, said = run([*good[:290], {"id": ids[290], "scores": [float("nan"), 1.0]}])
    assert code == 0 and "left 10 of 300 cases unscored" in said
    for rows, says in (
        ([*good, good[0]], "occurs twice"),
        ([{"id": "a/0", "scores": "high"}], "is not a list of numbers"),
        ([{"id": "elsewhere", "scores": [1.0, 0.0]}], "none of its 1 ids is a case"),
    ):
        code, said = run(rows)
        assert code == 3 and says in said, said


def test_a_run_verifies_and_a_changed_one_does_not(folder, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(folder / "runs" / "good", run)
    assert main(["verify", str(run)]) == 0
    assert last_json(capsys) == {"run": str(run), "verified": True, "cases": 300, "scorers": 5}
    report = run / "report.md"
    kept = report.read_text()
    report.write_text(kept.replace("300 cases", "301 cases"))
    assert main(["verify", str(run)]) == 5 and "report.md does not follow" in capsys.readouterr().err
    report.write_text(kept)
    summary = json.loads((run / "summary.json").read_text())
    summary["rows"][0]["overall"][0] += 0.01
    (run / "summary.json").write_text(json.dumps(summary))
    assert main(["verify", str(run)]) == 5 and "does not follow from the stored scores" in capsys.readouterr().err
    (run / "summary.json").write_text(json.dumps(summary | {"version": "0"}))
    assert main(["verify", str(run)]) == 3 and "version 0 of pairs" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == 2


def test_a_run_of_an_earlier_method_verifies_and_one_of_an_unknown_method_is_damaged(folder, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(folder / "runs" / "good", run)
    opened = open_finished(str(run))
    scorers = []
    for row in opened.summary["rows"]:
        scores = {case: one.scores for case, one in opened.judgments[row["scorer"]].items()}
        scorers.append(StoredScores(row["scorer"], scores, role=row["role"], contract=row["contract"]))
    facts = {name: opened.summary[name] for name in ("notes", "samples", "seed")}
    report = evaluate(opened.suite, opened.cases, scorers, **facts, interval="effective").report
    summary = json.loads(json.dumps(plain(asdict(report))))
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "report.md").write_text(markdown(report))
    assert main(["verify", str(run)]) == 0, capsys.readouterr().err
    for strange in ("exact", ["effective"]):
        (run / "summary.json").write_text(json.dumps(summary | {"interval": strange}))
        assert main(["verify", str(run)]) == 3 and "summary.json: damaged" in capsys.readouterr().err


def test_two_runs_are_compared_and_a_gate_stops_a_real_drop(folder, tmp_path, capsys):
    good, bad = str(folder / "runs" / "good"), str(folder / "runs" / "bad")
    assert main(["compare", bad, good, "--output", str(tmp_path / "comparison")]) == 0
    found = last_json(capsys)
    scores = [json.loads((Path(run) / "summary.json").read_text())["rows"][0]["overall"][0] for run in (bad, good)]
    assert found["difference"]["value"] == pytest.approx(scores[1] - scores[0]) and found["real"]
    assert "good is significantly better than bad" in (tmp_path / "comparison" / "comparison.md").read_text()
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump([{"area": "overall", "max_drop": 0.02}]))
    assert main(["compare", bad, good, "--gate", str(rules)]) == 0
    capsys.readouterr()
    assert main(["compare", good, bad, "--gate", str(rules)]) == 5
    assert "overall fell by" in capsys.readouterr().err
    assert main(["compare", good, good]) == 0
    same = last_json(capsys)
    assert (same["difference"]["value"], same["flips"], same["real"], same["p"]) == (0.0, 0, False, 1.0)


def test_runs_of_other_data_are_not_compared(folder, tmp_path, capsys):
    data = write(tmp_path / "other.jsonl", words(9, 50, 0.9))
    assert main(["eval", "--model", str(folder / "good"), "--data", data, "--output", str(tmp_path / "run")]) == 0
    assert main(["compare", str(folder / "runs" / "good"), str(tmp_path / "run")]) == 3
    assert "is not the same in" in capsys.readouterr().err


def test_a_board_has_groups_intervals_and_every_scorer_once(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", SAVE)
    assert main(["board", str(folder / "runs"), "--samples", "400", "--output", str(tmp_path / "board")]) == 0
    assert last_json(capsys)["runs"] == 2
    lines = (tmp_path / "board" / "board.csv").read_text().strip().split("\n")
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    names = ["bad", "good", "longest", "prompt-blind tf-idf", "random", "shortest"]
    assert sorted(row["scorer"] for row in rows) == names
    groups = {row["scorer"]: int(row["group"]) for row in rows}
    assert groups["good"] == groups["prompt-blind tf-idf"] == 1 < groups["random"]
    values = [float(row["overall"]) for row in rows]
    assert all(np.diff([groups[row["scorer"]] for row in rows]) >= 0) and max(values) == values[0]
    assert (tmp_path / "board" / "board.png").stat().st_size > 5000
    assert main(["board", str(tmp_path), "--output", str(tmp_path / "b")]) == 2
    capsys.readouterr()
    assert main(["board", str(folder / "runs"), "--samples", "39", "--output", str(tmp_path / "b")]) == 2
    assert "--samples is at least 40" in capsys.readouterr().err


def write_pairs(path: Path, prompts: str) -> str:
    return write(path, ({"prompt": p, "chosen": f"{p} long response {p}", "rejected": "short"} for p in prompts))


def test_a_scorer_of_each_run_is_compared_and_flips_show_row_and_prompt(tmp_path, capsys):
    runs = [str(tmp_path / name) for name in ("first", "second")]
    for run, prompts in zip(runs, ("abcd", "abcdef"), strict=True):
        data = write_pairs(tmp_path / "pairs.jsonl", prompts)
        words = ["--reference", "rewardlab.benchmarks.garden:gold", "--samples", "20", "--baselines", "longest"]
        (tmp_path / "mine.py").write_text("def length(completions):\n    return [-len(c) for c in completions]\n")
        model = ["--model", f"{tmp_path / 'mine.py'}:length"]
        assert main(["eval", *model, *words, "shortest", "--data", data, "--output", run]) == 0
    capsys.readouterr()
    assert main(["compare", *runs, "--scorer", "shortest", "longest", "--output", str(tmp_path / "comparison")]) == 0
    out, text = capsys.readouterr()
    summary = json.loads(out.strip().split("\n")[-1])
    assert (summary["flips"], summary["cases"], summary["left_out"]) == (4, 4, 0)
    stored = json.loads((tmp_path / "comparison" / "comparison.json").read_text())
    assert [facts[name] for facts in (summary, stored) for name in ("only_first", "only_second")] == [0, 2] * 2
    assert "4 cases; left out: 2 only in the second run." in (tmp_path / "comparison" / "comparison.md").read_text()
    assert re.search(r"^- gained row 1 `\w+`: a$", text, flags=re.M) and "- gained row 4 `" in text
    assert main(["compare", *runs, "--scorer", "a", "b", "c"]) == 2


def test_an_evaluation_without_baselines_verifies_and_several_files_are_subsets(tmp_path, capsys):
    data = [write_pairs(tmp_path / f"{name}.jsonl", prompts) for name, prompts in (("one", "ab"), ("two", "cde"))]
    (tmp_path / "mine.py").write_text("def length(completions):\n    return [len(c) for c in completions]\n")
    words = ["eval", "--model", f"{tmp_path / 'mine.py'}:length", "--data", *data, "--samples", "20"]
    assert main([*words, "--baselines", "none", "--output", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [row["scorer"] for row in summary["rows"]] == ["length"] and summary["sizes"] == {"one": 2, "two": 3}
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert main([*words, "--baselines", "none", "longest", "--output", str(tmp_path / "x")]) == 2
    assert main([*words, "--baselines", "oldest", "--output", str(tmp_path / "x")]) == 2
