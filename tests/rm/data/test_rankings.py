import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.data.rankings import ranking_row
from rewardlab.rm.data.streaming import PairStream
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import PreferencePair

CONTEXT = [{"role": "user", "content": "2 + 2?"}]


def turn(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def ranking(*ranks: int, **columns) -> dict:
    """Completion c0, c1, ... of these ranks."""
    completions = [{"rank": rank, "completion": turn(f"c{index}")} for index, rank in enumerate(ranks)]
    return {"context": CONTEXT, "completions": completions} | columns


def write(path, *rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sides(pairs) -> list[tuple]:
    return [(pair.id, pair.chosen, pair.rejected) for pair in pairs]


def test_every_two_completions_of_different_rank_are_a_pair(tmp_path):
    source = write(tmp_path / "a.jsonl", ranking(1, 0, 1, id=7, subset="maths"), ranking(0, 1))
    pairs, report = load_pairs(source)
    assert sides(pairs[:2]) == [("7/1-0", "c1", "c0"), ("7/1-2", "c1", "c2")], "the two of rank 1 form no pair"
    assert sides(pairs[2:])[0][1:] == ("c0", "c1") and len(pairs) == report.read == 3
    assert pairs[0].prompt == (CONTEXT[0],) and pairs[0].subset == "maths" and pairs[0].wins == {"overall": 1.0}
    pq.write_table(pa.Table.from_pylist([ranking(1, 0, 1, id="7")]), tmp_path / "a.parquet")
    assert sides(load_pairs(str(tmp_path / "a.parquet"))[0]) == sides(pairs[:2])


def test_a_stream_has_all_pairs_of_a_ranking_and_goes_on_behind_it(tmp_path):
    source = write(tmp_path / "a.jsonl", ranking(0, 1, 2, id="a"), ranking(0, 1, id="b"), ranking(0, 1, id="c"))
    counts = {"over_length": 0, "identical": 0, "unlabelled": 0, "omitted": 0}

    def encode(pairs):
        return SimpleNamespace(rows=[pair.id for pair in pairs], pairs=len(pairs), **counts)

    rows = iter(PairStream([source], encode, block=2))
    assert sorted(next(rows) for _ in range(5)) == ["a/0-1", "a/0-2", "a/1-2", "b/0-1", "c/0-1"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"completions": [{"rank": 0, "completion": "a"}, {"completion": "b"}]}, "item 2 of 'completions' is {'compl"),
        ({"completions": [{"rank": "first", "completion": "a"}]}, "a whole number as rank: item 1"),
        ({"completions": [{"rank": 0, "text": "a"}]}, "a completion must be {rank, completion}"),
        ({"completions": [{"rank": 3, "completion": turn("a")}] * 2}, "no preference: all 2 completions have rank 3"),
        ({"completions": "a"}, "no column 'chosen': the row has completions, context"),
    ],
)
def test_a_row_without_a_pair_is_refused_with_its_line(tmp_path, change, sentence):
    source = write(tmp_path / "a.jsonl", ranking(0, 1), ranking(0, 1) | change)
    with pytest.raises(DataError, match=r"a\.jsonl:2: ") as raised:
        load_pairs(source)
    assert sentence in str(raised.value) and "--on_bad_row skip" in str(raised.value)
    assert len(load_pairs(source, on_bad_row="skip")[0]) == 1


def test_other_fields_of_a_completion_are_reported_as_ignored(tmp_path):
    row = ranking(0, 1)
    row["completions"][1]["model"] = "m"
    assert load_pairs(write(tmp_path / "a.jsonl", row))[1].ignored == {"completions[].model": 1}


def test_a_pair_written_as_a_ranking_is_read_back(tmp_path):
    pair = PreferencePair("p", (CONTEXT[0],), "four", "five", wins={"overall": 0.2})
    assert ranking_row(pair)["completions"] == [
        {"rank": 0, "completion": turn("five")},
        {"rank": 1, "completion": turn("four")},
    ]
    (read,), _ = load_pairs(write(tmp_path / "a.jsonl", ranking_row(pair)))
    assert (read.prompt, read.chosen, read.rejected) == (pair.prompt, "five", "four")
    tie = ranking_row(PreferencePair("p", (CONTEXT[0],), "four", "five", wins={"overall": 0.5}))
    assert [item["rank"] for item in tie["completions"]] == [0, 0]


def test_lint_writes_the_pairs_of_rankings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / "a.jsonl", ranking(0, 1, 2, id="a"), ranking(0, 0, id="b"))
    assert main(["lint", source, "--fix", "clean.jsonl"]) == 0
    left_out = json.loads((tmp_path / "clean.left_out.jsonl").read_text().splitlines()[-1])
    assert left_out["place"].endswith("a.jsonl:2") and left_out["reason"] == "unusable"
    assert {pair.id for pair in load_pairs("clean.jsonl")[0]} <= {"a/0-1", "a/0-2", "a/1-2"}
