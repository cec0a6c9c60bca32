"""Results of other tools become runs: scores, right answers and abstentions are the file's."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from rewardlab.apps.inspector.run_list import JUDGED, open_root
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.site import build
from rewardlab.apps.runs.imported_results import import_results
from rewardlab.apps.runs.summaries import read_report
from rewardlab.apps.runs.tables import read_items, read_judgments
from rewardlab.rm.errors import DataError

TURN = [{"role": "user", "content": "Name a bird"}]


def opened(path: Path, tmp_path: Path) -> tuple[dict, dict, Any]:
    """Return the cases by id, the judgments by scorer and case, and the report."""
    folder = import_results(path, tmp_path / "cache")
    return {case.id: case for case in read_items(folder)}, read_judgments(folder), read_report(folder)


@pytest.fixture
def scores_file(tmp_path) -> Path:
    """A score file as RewardBench's script writes it: columns, and constants of the whole file."""
    columns = {
        "text_chosen": ["<|user|> Name a bird <|assistant|> heron", "<|user|> Say how <|assistant|> no"],
        "text_rejected": ["<|user|> Name a bird <|assistant|> newt", "<|user|> Say how <|assistant|> so"],
        "results": [1, 0], "subset": ["alpacaeval-easy", "refusals-offensive"], "id": [3, 3],
        "scores_chosen": [[1.5], [0.25]], "scores_rejected": [[0.5], [0.75]],
    }  # fmt: skip
    path = tmp_path / "my-rm.json"
    path.write_text(json.dumps(columns | {"model": "org/my-rm", "model_type": "Seq. Classifier"}))
    return path


def test_rewardbench_scores_have_its_sections(scores_file, tmp_path):
    cases, judgments, report = opened(scores_file, tmp_path)
    assert [case.answers for case in cases.values()] == [("heron", "newt"), ("no", "so")]
    assert judgments["org/my-rm"]["alpacaeval-easy/3"].scores == (1.5, 0.5)
    (row,) = report.rows
    assert (row.sections["Chat"].value, row.sections["Safety"].value, row.overall.value) == (1.0, 0.0, 0.5)
    assert report.suite == "rewardbench"


def test_rows_of_judgments_keep_scorers_abstentions_and_repeated_ids(tmp_path):
    rows = [
        {"id": 1, "prompt": "Name a bird", "answers": ["newt", "heron", "crow"], "best": [1, 2],
         "scores": {"a": [0.0, 2.0, 1.0], "b": None}},
        {"id": 1, "prompt": TURN, "answers": ["elm", "owl"], "best": 1, "subset": "hard",
         "scores": {"a": [1.0, 0.0], "b": [0.0, 1.0]}},
        {"prompt": "Name a tree", "chosen": "oak", "rejected": "newt", "scores_chosen": 1, "scores_rejected": 0,
         "model": "c"},
    ]  # fmt: skip
    path = tmp_path / "judged.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    cases, judgments, report = opened(path, tmp_path)
    assert [*cases] == ["1", "1#2", "3"] and cases["1"].best == (1, 2)
    assert judgments["a"]["1#2"].scores == (1.0, 0.0) and judgments["b"]["1"].abstained == "no score"
    assert judgments["c"]["1"].abstained == "no stored score" and judgments["c"]["3"].scores == (1.0, 0.0)
    assert {row.scorer: row.unscored for row in report.rows} == {"a": 1, "b": 2, "c": 2}


def test_an_empty_cell_of_a_csv_file_is_a_missing_score_and_half_a_character_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,prompt,chosen,rejected,scores_chosen,scores_rejected\nx,q,a,b,1.5,\ny,r,a,b,2,1\n"
    )
    _, judgments, _ = opened(tmp_path / "a.csv", tmp_path)
    assert [judgments["a"][name].abstained for name in "xy"] == ["no score", ""]
    row = {"id": "\ud800", "prompt": "q", "chosen": "a", "rejected": "b", "scores_chosen": 1, "scores_rejected": 0}
    (tmp_path / "b.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"b.jsonl:1: an unpaired surrogate: '\\ud800' cannot be written"):
        opened(tmp_path / "b.jsonl", tmp_path)


def test_rows_of_several_scorers_about_one_pair_are_one_case(tmp_path):
    pair = {"prompt": "Name a bird", "chosen": "owl", "rejected": "elm"}
    rows = [
        pair | {"id": id, "model": model, "scores_chosen": good, "scores_rejected": 0.5}
        for id, model, good in ((1, "a", 1), (1, "b", 0), (2, "b", 1), (None, "a", 1), (None, "b", 1), (2, "b", 0))
    ]
    path = tmp_path / "judged.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    cases, judgments, report = opened(path, tmp_path)
    assert [*cases] == ["1", "2", "4", "2#2"]  # the second judgment of pair 2 by b is a case of its own
    assert [judgments[name]["1"].scores for name in "ab"] == [(1.0, 0.5), (0.0, 0.5)]
    assert {row.scorer: (row.scored, row.unscored) for row in report.rows} == {"a": (2, 2), "b": (4, 0)}


def log_of_inspect() -> dict[str, Any]:
    parts = [{"type": "reasoning", "reasoning": "Birds fly."}, {"type": "text", "text": "heron"}]
    calls = [{"function": "look", "arguments": {"at": 1}}]
    answer = {"role": "assistant", "content": parts, "tool_calls": calls}
    graded = {"id": "bird", "epoch": 2, "input": "Name a bird", "target": "heron", "messages": [*TURN, answer]}
    choice = {"id": 7, "epoch": 1, "input": TURN, "target": "B", "choices": ["newt", "owl"], "messages": TURN}
    graded["scores"] = {"match": {"value": "C", "answer": "heron"}, "length": {"value": 7}}
    choice["scores"] = {"match": {"value": "I", "answer": "A"}}
    return {"eval": {"task": "birds", "model": "org/lm"}, "samples": [graded, choice]}


def as_zip(path: Path, log: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": log["eval"]}))
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    return path


@pytest.mark.parametrize("ending", ["eval", "json"])
def test_a_log_of_inspect_is_graded_completions_and_choices(ending, tmp_path):
    path, log = tmp_path / f"log.{ending}", log_of_inspect()
    as_zip(path, log) if ending == "eval" else path.write_text(json.dumps(log))
    cases, judgments, report = opened(path, tmp_path)
    assert report.suite == "birds" and report.cases == 2
    turns = cases["bird (epoch 2)"].prompt
    assert turns[-1]["content"] == 'Birds fly.\nheron\nlook({"at": 1})' and cases["7"].answers == ("newt", "owl")
    assert judgments["match"]["bird (epoch 2)"].scores == (1.0, 0.0)
    assert judgments["match"]["7"].scores == (1.0, 0.0) and cases["7"].best == (1,)
    assert "7" in judgments["length"]["bird (epoch 2)"].abstained


def test_a_file_is_read_once_and_opens_in_the_inspector(scores_file, tmp_path, monkeypatch):
    monkeypatch.setenv("REWARDLAB_CACHE", str(tmp_path / "cache"))
    folder = import_results(scores_file)
    written = (folder / "scores.parquet").stat().st_mtime_ns
    build(InspectConfig(run=str(scores_file)))
    assert import_results(scores_file) == folder and (folder / "scores.parquet").stat().st_mtime_ns == written
    assert [entry.kind for entry in open_root(folder).entries()] == [JUDGED]


def test_other_files_are_refused_in_a_sentence_and_leave_nothing(tmp_path):
    for name, text, sentence in (
        ("a.jsonl", '{"prompt": "a", "chosen": "b", "rejected": "c"}', "'scores_chosen' is missing"),
        ("b.jsonl", '{"prompt": "a", "answers": ["b", "c"], "best": 0, "scores": [1, "x"]}', "b.jsonl:1: could not"),
        ("c.jsonl", '{"prompt": "a", "answers": ["b", "c"], "best": 0, "scores": [1]}', "2 answers and 1 stored"),
        ("d.jsonl", "", "the file has no row"),
        ("i.jsonl", '{"prompt": "a", "answers": ["b", "c"], "best": 0, "scores": {}}', "i.jsonl: no row has a scorer"),
        ("e.jsonl", "nonsense", "e.jsonl:1: not JSON"),
        ("f.eval", "nonsense", "not a readable log of inspect_ai"),
        ("g.json", '{"eval": {"task": "x"}, "samples": [{"id": 1}]}', "not a log of inspect_ai that this version"),
        ("h.txt", "nonsense", "cannot tell the format"),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ValueError, match=sentence):
            import_results(path, tmp_path / "cache")
        assert not [*tmp_path.glob("cache/*")], name
