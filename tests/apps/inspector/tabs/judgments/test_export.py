import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rewardlab.apps.inspector.tabs.judgments.annotation.annotations import annotate
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.export import FORMATS, export
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, open_run
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.errors import UsageError

from tests.apps.inspector.ponds import HOSTILE, MODEL, write_run

ALL = Filter(MODEL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_run(tmp_path_factory.mktemp("runs") / "eval"))


def pairs(run, path: Path, filter: Filter = ALL, said=(), labels: str = "data") -> list[tuple]:
    """(id, chosen, rejected, chance that chosen wins) of what `rewardlab train --data` reads there."""
    export(run, filter, "jsonl", path, said, labels)
    return [(pair.id, pair.chosen, pair.rejected, pair.wins["overall"]) for pair in load_pairs(str(path))[0]]


def said(run, **verdicts: str):
    return [annotate(item(run, MODEL, case), verdict, "Ada", f"on {case}") for case, verdict in verdicts.items()]


def test_pairs_of_what_passes_are_read_by_training(run, tmp_path):
    found = pairs(run, tmp_path / "pairs.jsonl")
    assert found[:2] == [("a1", "Good <b>moss</b>", "Bad", 1.0), ("a2", "oak", "newt", 1.0)]
    assert found[6] == ("a7", "elm", "newt", 1.0), "the right answer with the lowest score"
    read, _ = load_pairs(str(tmp_path / "pairs.jsonl"))
    assert read[0].prompt == ({"role": "user", "content": HOSTILE},) and read[0].subset == "chat"
    assert [pair[0] for pair in pairs(run, tmp_path / "p.jsonl", Filter(MODEL, "wrong"))] == ["a1", "a2", "a7"]
    marked = Filter(MODEL, among=["a6", "a3", "gone"])
    assert [pair[0] for pair in pairs(run, tmp_path / "p.jsonl", marked)] == ["a3", "a6"]


def test_readers_turn_a_pair_round_or_leave_it_open_and_the_newest_decides(run, tmp_path):
    opinions = said(run, a2="disagree", a3="agree", a4="tie", a7="disagree")
    assert pairs(run, tmp_path / "p.jsonl", said=opinions, labels="readers") == [
        ("a2", "newt", "oak", 1.0),
        ("a3", "heron", "newt", 1.0),
        ("a4", "pike", "newt", 0.5),
    ], "which of a7's other answers is better is not known"
    opinions = [*said(run, a2="disagree"), *said(run, a2="agree")]
    assert pairs(run, tmp_path / "p.jsonl", said=opinions, labels="readers") == [("a2", "oak", "newt", 1.0)]


def test_pairs_as_ranked_completions_have_equal_ranks_for_a_tie(run, tmp_path):
    opinions = said(run, a2="disagree", a4="tie")
    assert export(run, ALL, "ranked.jsonl", tmp_path / "r.jsonl", opinions, "readers") == 2
    turned, tied = (json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines())
    assert turned["context"] == [{"role": "user", "content": "Name a tree"}]
    assert [(item["rank"], item["completion"][0]["content"]) for item in turned["completions"]] == [
        (0, "newt"),
        (1, "oak"),
    ]
    assert [item["rank"] for item in tied["completions"]] == [0, 0]


def test_the_csv_has_every_column_and_no_formula(tmp_path):
    run = open_run(write_run(tmp_path / "eval"))
    note = '=HYPERLINK("http://evil","x")'
    opinions = [annotate(item(run, MODEL, "a2"), "tie", "@Ada", note)]
    assert export(run, Filter(MODEL, "wrong"), "csv", tmp_path / "t.csv", opinions, "data") == 3
    with (tmp_path / "t.csv").open(newline="") as file:
        first, second, third = csv.DictReader(file)
    assert first["case"] == "a1" and float(first["margin"]) == -1.0 and first["prompt"] == f"user: {HOSTILE}"
    assert second["note"] == f"'{note}" and second["who"] == "'@Ada" and second["verdict"] == "tie"
    assert (third["chosen"], third["rejected"]) == ("elm", "newt") and third["note"] == ""
    assert (float(third["chosen_score"]), float(third["rejected_score"])) == (1.0, 4.0)


def test_the_parquet_file_has_typed_columns(run, tmp_path):
    assert export(run, ALL, "parquet", tmp_path / "t.parquet", said(run, a5="agree"), "data") == 7
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["margin"] for row in rows] == [-1.0, -0.125, 2.0, 0.0, None, 0.0625, -3.0]
    assert rows[4]["abstained"] == "no score" and rows[4]["outcome"] == "abstained" and rows[4]["note"] == "on a5"


def test_nothing_to_write_is_told(run, tmp_path):
    for filter, labels in ((Filter(MODEL, search="no such text"), "data"), (ALL, "readers")):
        for format in FORMATS.values():
            with pytest.raises(UsageError, match="nothing to export"):
                export(run, filter, format, tmp_path / "x", [], labels)
    with pytest.raises(UsageError, match="unknown format 'xlsx'"):
        export(run, ALL, "xlsx", tmp_path / "x", [], "data")
