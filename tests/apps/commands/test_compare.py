"""Resume, share, verify, compare and rank evaluations; when the rules of a gate are violated, and which are refused."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main

from tests.apps.commands.conftest import SAVE, judged_pairs
from tests.apps.conftest import write

SUBSETS, SIZE = 20, 30
RUN = "from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data, two models of which one learnt nothing useful, and a run of each."""
    folder = tmp_path_factory.mktemp("reports")
    write(folder / "train.jsonl", judged_pairs(0, 300, 0.95))
    write(folder / "noise.jsonl", judged_pairs(1, 300, 0.5))
    data = write(folder / "test.jsonl", judged_pairs(2, 300, 0.9))
    for name, train in (("good", "train.jsonl"), ("bad", "noise.jsonl")):
        assert main(["train", "--kind", "linear", "--data", str(folder / train), "--output", str(folder / name)]) == 0
        words_of_eval = ["--model", str(folder / name), "--data", data, "--bootstrap_samples", "200"]
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
    data = ["--data", str(folder / "test.jsonl"), "--bootstrap_samples", "200"]
    assert main(["eval", "--scores", stored, *data, "--output", str(tmp_path / "run")]) == 0
    kept = json.loads((run / "summary.json").read_text())["rows"][0]["overall"]
    assert [*last_json(capsys)["overall"]["theirs"].values()] == kept
    assert "theirs has 1 scores without a case, such as 'nobody'" in (tmp_path / "run" / "report.md").read_text()


def test_stored_scores_that_are_missing_not_finite_doubled_or_strange(folder, tmp_path, capsys):
    ids = [f"{'ab'[i % 2]}/{i}" for i in range(300)]
    good = [{"id": name, "scores": [1.0, 0.0]} for name in ids]
    data = ["--data", str(folder / "test.jsonl"), "--bootstrap_samples", "50"]

    def run(rows) -> tuple[int, str]:
        stored = write(tmp_path / "s.jsonl", rows)
        code = main(["eval", "--scores", stored, *data, "--output", str(tmp_path / "run"), "--overwrite"])
        return code, capsys.readouterr().err

    code, said = run([*good[:290], {"id": ids[290], "scores": [float("nan"), 1.0]}])
    assert code == 0 and "left 10 of 300 cases unscored" in said
    for rows, says in (
        ([*good, good[0]], "occurs twice"),
        ([{"id": "a/0", "scores": "high"}], "is not a list of numbers"),
        ([{"id": "elsewhere", "scores": [1.0, 0.0]}], "none of the 1 ids is a case"),
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
    (run / "summary.json").write_text(json.dumps(summary | {"interval": "exact"}))
    assert main(["verify", str(run)]) == 3 and "summary.json: damaged" in capsys.readouterr().err
    (run / "summary.json").write_text(json.dumps(summary | {"version": "0"}))
    assert main(["verify", str(run)]) == 3 and "version 0 of pairs" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == 2


def test_two_runs_are_compared(folder, tmp_path, capsys):
    good, bad = str(folder / "runs" / "good"), str(folder / "runs" / "bad")
    assert main(["compare", bad, good, "--output", str(tmp_path / "comparison")]) == 0
    found = last_json(capsys)
    scores = [json.loads((Path(run) / "summary.json").read_text())["rows"][0]["overall"][0] for run in (bad, good)]
    assert found["difference"]["value"] == pytest.approx(scores[1] - scores[0]) and found["real"]
    assert "good is significantly better than bad" in (tmp_path / "comparison" / "comparison.md").read_text()
    assert main(["compare", good, good]) == 0
    same = last_json(capsys)
    assert (same["difference"]["value"], same["flips"], same["real"], same["p"]) == (0.0, 0, False, 1.0)


def test_a_board_has_groups_intervals_and_every_scorer_once(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", SAVE)
    assert main(["board", str(folder / "runs"), "--bootstrap_samples", "400", "--output", str(tmp_path / "board")]) == 0
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


def write_pairs(path: Path, prompts: str) -> str:
    return write(path, ({"prompt": p, "chosen": f"{p} long response {p}", "rejected": "short"} for p in prompts))


def test_a_scorer_of_each_run_is_compared_and_flips_show_row_and_prompt(tmp_path, capsys):
    runs = [str(tmp_path / name) for name in ("first", "second")]
    for run, prompts in zip(runs, ("abcd", "abcdef"), strict=True):
        data = write_pairs(tmp_path / "pairs.jsonl", prompts)
        words = ["--reference", "rewardlab.benchmarks.garden:gold", "--bootstrap_samples=20", "--baselines", "longest"]
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
    assert (
        "4 cases; left out of all figures: 2 only in the second run."
        in (tmp_path / "comparison" / "comparison.md").read_text()
    )
    assert re.search(r"^- gained row 1 `\w+`: a$", text, flags=re.M) and "- gained row 4 `" in text
    assert main(["compare", *runs, "--scorer", "a", "b", "c"]) == 2


def test_an_evaluation_without_baselines_verifies_and_several_files_are_subsets(tmp_path):
    data = [write_pairs(tmp_path / f"{name}.jsonl", prompts) for name, prompts in (("one", "ab"), ("two", "cde"))]
    (tmp_path / "mine.py").write_text("def length(completions):\n    return [len(c) for c in completions]\n")
    words = ["eval", "--model", f"{tmp_path / 'mine.py'}:length", "--data", *data, "--bootstrap_samples", "20"]
    assert main([*words, "--baselines", "none", "--output", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [row["scorer"] for row in summary["rows"]] == ["length"] and summary["sizes"] == {"one": 2, "two": 3}
    assert main(["verify", str(tmp_path / "run")]) == 0
    for names in (["none", "longest"], ["oldest"]):
        assert main([*words, "--baselines", *names, "--output", str(tmp_path / "x")]) == 2, names


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Evaluate stored scores: all of 20 subsets with 30 pairs right, but for the first pairs of s00."""
    folder = tmp_path_factory.mktemp("gate")
    ids = [(f"s{s:02d}", str(i)) for s in range(SUBSETS) for i in range(SIZE)]
    pair = {"chosen": "good", "rejected": "bad"}
    data = write(folder / "data.jsonl", ({"id": i, "subset": s, "prompt": f"{s} {i}"} | pair for s, i in ids))

    def run(name: str, number: int, **instead: object) -> str:
        first = {f"s00/{i}" for i in range(number)}
        rows = [{"id": f"{s}/{i}", "scores": [1, 0]} for s, i in ids]
        rows = [{"id": row["id"]} | instead if row["id"] in first else row for row in rows]
        scores, output = write(folder / f"{name}.jsonl", rows), str(folder / name)
        given = ["--scores", scores, "--data", data, "--baselines", "none", "--bootstrap_samples", "20"]
        assert main(["eval", *given, "--output", output]) == 0
        return output

    wrong = {"scores": [0, 1]}
    return {
        "before": run("before", 0),
        "few wrong": run("few", 4, **wrong),
        "many wrong": run("many", 12, **wrong),
        "silent": run("silent", SIZE, abstained="too long"),
        "half silent": run("half", 10, abstained="too long"),
    }


@pytest.fixture
def gate(runs, tmp_path, capsys):
    def check(after: str, rules: str, *words: str) -> tuple[int, str]:
        """Return the exit code and the last line of the log of a comparison with rules."""
        (tmp_path / "gate.yaml").write_text(rules)
        code = main(["compare", runs["before"], runs[after], "--gate", str(tmp_path / "gate.yaml"), *words])
        return code, capsys.readouterr().err.strip().split("\n")[-1]

    return check


def test_a_drop_in_a_subset_is_significant_after_the_adjustment_for_their_number(gate):
    # 4 of 30 lost: a sample without any of them has probability (26/30)^30 = 1.4 %, so p is 2.7 % for one subset and
    # 55 % for the smallest of 20; 12 of 30 lost: hardly any sample is without, so p is 20 * 2/1001 = 4 %
    assert gate("few wrong", "- {area: s00, max_drop: 0.01}")[0] == 0
    code, said = gate("few wrong", "- {area: s00, max_drop: 0.01, even_if_noise: true}")
    assert code == 5 and "s00 fell by 13.3 points, more than 1.0" in said
    code, said = gate("many wrong", "- {area: s00, max_drop: 0.01}")
    assert code == 5 and "s00 fell by 40.0 points, more than 1.0" in said
    assert gate("many wrong", "- {area: s00, max_drop: 0.41}")[0] == 0


def test_a_model_that_abstains_passes_only_where_that_is_accepted(gate):
    for waived in ("false", "true"):
        code, said = gate("silent", f"- {{area: s00, max_drop: 0.5, even_if_noise: {waived}}}")
        assert code == 5 and "s00 has no case that both scorers scored, so its rule cannot be checked" in said, waived
        assert gate("silent", f"- {{area: s01, max_drop: 0.5, even_if_noise: {waived}}}")[0] == 0, waived
    code, said = gate("silent", "- {area: overall, max_drop: 0.5, even_if_noise: true}")
    assert code == 5 and "overall: silent abstained from 30 of the cases that before scored" in said
    code, said = gate("half silent", "- {area: s00, max_drop: 0.5}")
    assert code == 5 and "s00: half abstained from 10 of the cases that before scored, so that" in said
    assert "or accept it with max_unscored: 10" in said
    assert gate("half silent", "- {area: s00, max_drop: 0.5, max_unscored: 9}")[0] == 5
    assert gate("half silent", "- {area: s00, max_drop: 0.5, max_unscored: 10}\n- {area: s01, max_drop: 0}")[0] == 0


def test_a_wrong_rule_is_refused_with_its_number_and_its_value(gate):
    for rules, message in (
        ("area: overall", "rules must be a list, got dict; write it as {area: overall, "),
        ("- {area: overall, max_drop: 0.1}\n- overall", "rule 2: a rule needs 'area' and 'max_drop'"),
        ("- {area: overall, max_drop: 0.1, min: 1}", "rule 1: a rule needs 'area' and 'max_drop'"),
        ("- {area: overall, max_drop: 1 %}", "max_drop must be a number from 0 to 1, where 0.01 is one point, got '1"),
        ("- {area: overall, max_drop: .nan}", "got nan"),
        ("- {area: overall, max_drop: 2}", "got 2"),
        ("- {area: overall, max_drop: true}", "got True"),
        (
            "- {area: [s00], max_drop: 0.1}",
            "rule 1: area must be overall or the name of a section or subset, got ['s00']",
        ),
        ("- {area: overall, max_drop: 0.1, even_if_noise: 'no'}", "even_if_noise must be true or false, got 'no'"),
        ("- {area: s00, max_drop: 0.1, max_unscored: -1}", "max_unscored must be a number of cases, got -1"),
        ("- {area: s99, max_drop: 0.1}", "no area 's99' in this comparison; name one of overall, s00, s01"),
    ):
        code, said = gate("before", rules)
        assert code == 2 and message in said, rules


def test_a_rule_that_cannot_be_checked_is_refused_before_the_comparison_is_written(gate, tmp_path):
    output = tmp_path / "comparison"
    words = ("--output", str(output))
    assert gate("many wrong", "- {area: s99, max_drop: 0.1}", *words)[0] == 2 and not output.exists()
    assert gate("many wrong", "- {area: overall, max_drop: 0.1}", *words)[0] == 0 and output.exists()
