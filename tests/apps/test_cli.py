"""What a user sees: one JSON line, one sentence on bad input, the right exit code, nothing half-written."""

import io
import json
import re
import subprocess
import sys
import warnings
from dataclasses import fields
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from rewardlab.apps.cli import VERBS, main, parse
from rewardlab.apps.runs import processes
from rewardlab.apps.summary import summary_lines
from rewardlab.rm.registry import names

from tests.apps.conftest import write

ROW = {"id": "a", "prompt": "What is 2 + 2?", "chosen": "four, of course", "rejected": "five"}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def pairs(tmp_path) -> str:
    words = ["kind", "calm", "sharp", "plain", "warm"]
    texts = ((f"{words[i % 5]} good {i}", f"{words[i % 4]} bad {i} x") for i in range(60))
    rows = [{"id": str(i), "prompt": f"q {i % 20}", "chosen": a, "rejected": b} for i, (a, b) in enumerate(texts)]
    return write(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def model(pairs, tmp_path, capsys) -> str:
    assert main(["train", "--kind", "linear", "--data", pairs, "--output", str(tmp_path / "rm")]) == 0
    capsys.readouterr()
    return str(tmp_path / "rm")


def last_json(capsys) -> dict:
    return json.loads(capsys.readouterr().out.strip().split("\n")[-1])


def test_the_overview_names_every_verb_and_a_warning_is_one_line_without_code(capsys, monkeypatch):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # restored afterwards
    assert main(["lint", "nowhere.jsonl"]) == 2
    assert warnings.formatwarning("a text", UserWarning, "store.py", 1) == "warning: a text\n"


# ---- the main job on the cheapest model ----


def test_train_eval_score_end_to_end_and_twice_to_the_same_bytes(pairs, model, tmp_path, capsys):
    run = str(tmp_path / "run")
    words = ["--benchmark", "pairs", "--model", model, "--data", pairs, "--bootstrap_samples", "50"]
    assert main(["eval", *words, "--output", run]) == 0
    facts = last_json(capsys)
    scorers = {"rm", "longest", "shortest", "random", "prompt-blind tf-idf"}
    assert facts["cases"] == 60 and {*facts["overall"]} == scorers
    names = "config.yaml manifest.json summary.json report.md report.png calibration.png items.parquet scores.parquet"
    assert {path.name for path in Path(run).iterdir()} == {*names.split()}
    manifest = json.loads((Path(run) / "manifest.json").read_text())
    assert manifest["contracts"]["rm"] and len(manifest["data"][pairs]) == 64
    assert pq.read_table(Path(run) / "scores.parquet").num_rows == 5 * 60

    out = str(tmp_path / "scores.parquet")
    assert main(["score", "--model", model, "--data", pairs, "--output", out]) == 0
    assert last_json(capsys)["rows"] == 120
    assert pq.read_table(out).column_names == ["id", "file", "row", "truncated", "reward"]
    lines = str(tmp_path / "scores.jsonl")
    assert main(["score", "--model", model, "--data", pairs, "--output", lines]) == 0
    assert json.loads(Path(lines).read_text().split("\n")[0])["id"] == "0/chosen"
    runs = [tmp_path / "one", tmp_path / "two"]
    for run in runs:
        assert main(["eval", "--model", model, "--data", pairs, "--output", str(run), "--bootstrap_samples", "50"]) == 0
    for name in ("report.md", "summary.json", "items.parquet", "scores.parquet", "report.png"):
        assert (runs[0] / name).read_bytes() == (runs[1] / name).read_bytes(), name


def test_a_result_is_json_where_stdout_is_not_utf_8(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for encoding in ("latin-1", "ascii"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", out)
        assert main(["plan", "--model", "7b", "--output", "é 日本 🌱", "--overwrite"]) == 0
        out.flush()
        assert json.loads(out.buffer.getvalue().decode(encoding))["output"] == "é 日本 🌱", encoding


def test_a_reader_of_stdout_that_ends_is_no_error():
    for words in (["--help"], ["plan", "--model", "7b"]):
        command = [sys.executable, "-m", "rewardlab", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stderr
            process.stdout.close()
            assert "Error" not in process.stderr.read()
        assert process.returncode == 141, words


def test_flags_override_the_yaml_file(pairs, tmp_path, capsys):
    config = tmp_path / "x.yaml"
    config.write_text(yaml.safe_dump({"data": pairs, "kind": "scalar", "inverse_regularization": "1e-1"}))
    output = tmp_path / "rm"
    assert main(["train", "--config", str(config), "--kind", "linear", "--output", str(output)]) == 0
    kept = yaml.safe_load((output / "config.yaml").read_text())
    assert kept["kind"] == "linear" and kept["inverse_regularization"] == 0.1 and kept["data"] == [pairs]


# ---- bad input ----


def refused(words, capsys) -> tuple[int, str]:
    code = main(words)
    text = capsys.readouterr()
    assert text.out == "" and "Traceback" not in text.err
    return code, text.err.strip().split("\n")[-1]


def test_a_verb_that_there_is_not_and_a_folder_that_exists_are_refused(pairs, model, capsys):
    for says, words in {
        "no command 'trian'; did you mean 'train'?": ["trian"],
        "in a checkout, run python -m rewardlab.research.studies NAME": ["study", "wmss"],
        "exists already": ["train", "--kind", "linear", "--data", pairs, "--output", model],
    }.items():
        code, text = refused(words, capsys)
        assert code == 2 and says in text, (words, text)


def test_a_process_waits_for_the_others_only_if_its_verb_ended_without_an_error(pairs, tmp_path, monkeypatch):
    left = []
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(processes, "leave", lambda finished: left.append(finished))
    train = ["train", "--kind", "linear", "--output", str(tmp_path / "linear"), "--data"]
    (tmp_path / "damaged.jsonl").write_text("{\n")
    assert main([*train, str(tmp_path / "damaged.jsonl")]) == 3 and left == [False]
    assert main([*train, str(pairs)]) == 0 and left == [False, True]


def test_a_yaml_file_names_settings_of_the_verb_with_values_that_they_take(tmp_path, capsys):
    config = tmp_path / "x.yaml"
    cases = [("eval", content, says) for content, says in
             (("modle: x", "no setting '--modle'"), ("- a\n- b", "mapping"), ("a: [", "not YAML"))]  # fmt: skip
    keep = ("on_bad_row: keep", "--on_bad_row must be one of refuse, skip, got 'keep'")
    # which ended in errors that were not foreseen, had no effect, or took the last of two values
    wrong = [
        ("seed: 1\ndata: a\nseed: 2", "not YAML: duplicate key: 'seed' occurs twice"),
        ("3: 4", "has the key 3, which names no setting"),
        ("output: 2024", "--output must be text, got 2024; put the text in quotes"),
        ("output: 2024-11-28", "--output must be text, got 2024-11-28; put the text in quotes"),
        ("data: [[a]]", "--data must be text, got ['a']"),
        ("seed: true", "--seed must be a whole number, got True"),
        ("learning_rate: yes", "--learning_rate must be a number, got True"),
        ("overwrite: [false]", "--overwrite must be True or False, got [False]"),
        ("overwrite: 2", "--overwrite: Truthy value expected: got 2"),
        ("eval_strategy: no", "must be one of no, steps, epoch, got 'False'; put the text in quotes"),
    ]
    cases += [("train", *case) for case in wrong]
    for verb, content, says in cases + [(verb, *keep) for verb in ("score", "parity", "eval", "train", "rubrics")]:
        config.write_text(content)
        code, text = refused([verb, "--config", str(config)], capsys)
        assert code == 2 and says in text, (verb, text)


def test_mappings_and_null_in_a_yaml_file_are_read_as_by_the_python_api(tmp_path):
    config = tmp_path / "x.yaml"
    config.write_text("data: {a: x.jsonl, b: y.jsonl}\nobjectives: [a, b]\nweights: {a: 0.5, b: 1}\ngolden:\nlora: 1\n")
    settings, of_kind, _ = parse("train", VERBS["train"], ["--config", str(config)])
    assert (settings.data, settings.golden) == (["a=x.jsonl", "b=y.jsonl"], 16)
    assert (of_kind.weights, of_kind.lora) == ("a=0.5,b=1", True)


def test_skipping_bad_rows_is_counted_in_the_manifest(tmp_path, capsys):
    rows = [ROW | {"id": i, "chosen": f"good {i}"} for i in range(9)] + [ROW | {"chosen": ""}]
    data = write(tmp_path / "mixed.jsonl", rows)
    words = ["train", "--kind", "linear", "--data", data, "--on_bad_row", "skip", "--output", str(tmp_path / "rm")]
    assert main(words) == 0
    assert "1 of 10 rows dropped: {'empty completion': 1}" in capsys.readouterr().err
    manifest = json.loads((tmp_path / "rm" / "manifest.json").read_text())
    assert manifest["rows"]["places"] == [[f"{data}:10", "empty completion: 'chosen'"]]


# ---- help and summaries ----


def test_the_help_of_a_verb_is_short_and_its_choices_exist(capsys):
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        lines = capsys.readouterr().out.rstrip().split("\n")
        assert len(lines) <= 80 and max(map(len, lines)) <= 140, verb
        example = next(index for index, line in enumerate(lines) if VERBS[verb].example in line)
        settings = [index for index, line in enumerate(lines) if line.startswith("  --")]
        assert not settings or example < settings[0], verb
    folders = {"benchmark": "benchmarks.suites", "loss": "rm.losses", "advantage": "policy.advantages"}
    for verb, name in (("eval", "benchmark"), ("train", "loss"), ("rl", "advantage"), ("rl", "scheduler")):
        assert main([verb, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        listed = re.search(rf"--{name} TEXT .*?one of ([\w, ]+)", text)
        assert listed and listed[1].split(", ") == names(folders.get(name, f"policy.{name}s"))


def test_every_setting_is_in_the_long_help_with_its_default(capsys):
    for name, verb in VERBS.items():
        assert main([name, "--help-all"]) == 0
        entries = re.split(r"^  --", capsys.readouterr().out, flags=re.M)
        by_name = {entry.split()[0]: " ".join(entry.split()) for entry in entries}
        for settings in verb.settings:
            assert {field.name for field in fields(settings) if field.init} <= {*by_name}
        for field in verb.settings[0].__dataclass_fields__.values():
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                default = rf"default ({re.escape(str(field.default))}|no limit)\b"
                assert re.search(default, by_name[field.name]), (name, field.name)


def test_on_a_terminal_a_verb_ends_with_a_short_summary(pairs, model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    words = ["eval", "--model", model, "--data", pairs, "--bootstrap_samples", "50"]
    assert main([*words, "--output", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.rstrip().split("\n")
    assert len(lines) <= 10 and lines[-1] == f"next: rewardlab inspect {tmp_path / 'run'}"
    assert any(re.fullmatch(r"overall\.rm: [01]\.\d{3} \[0\.\d{3}, [01]\.\d{3}\]", line) for line in lines)
    assert main([*words, "--output", str(tmp_path / "json"), "--json"]) == 0
    assert last_json(capsys)["cases"] == 60
    assert main([*words, "--limit", "12", "--output", str(tmp_path / "part")]) == 0
    part = "Not the whole benchmark: 12 of 60 cases (--limit), in proportion to the subsets."
    assert f"part: {part}" in capsys.readouterr().out and part in (tmp_path / "part" / "report.md").read_text()
    none = {"value": None, "low": None, "high": None}  # such as tf-idf over a single prompt
    overall = {"overall": {"rm": {"value": 0.75, "low": 0.5, "high": None}, "tf-idf": none}}
    assert summary_lines("compare", overall) == ["overall.rm: 0.750 [0.500, –]", "overall.tf-idf: – [–, –]"]
    lines = summary_lines("lint", {f"name{index}": index for index in range(20)})
    assert len(lines) == 10 and lines[-2] == "... 12 more with --json" and lines[-1].startswith("next: rewardlab train")
