import csv
import gzip
import json
from itertools import islice
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.data.readers import read_rows
from rewardlab.rm.data.streaming import PairStream, StreamPosition, open_stream
from rewardlab.rm.errors import DataError, UsageError


def rows(first: int, number: int) -> list[dict]:
    places = range(first, first + number)
    return [{"id": f"p{n}", "prompt": f"question {n}", "chosen": f"yes {n}", "rejected": "no"} for n in places]


def jsonl(path, made) -> str:
    text = "".join(json.dumps(row) + "\n" for row in made)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


@pytest.fixture
def sources(tmp_path) -> list[str]:
    pq.write_table(pa.Table.from_pylist(rows(10, 6)), tmp_path / "b.parquet")
    first, last = jsonl(tmp_path / "a.jsonl", rows(0, 10)), jsonl(tmp_path / "c.jsonl.gz", rows(16, 7))
    return [first, str(tmp_path / "b.parquet"), last]


def kept(pairs):
    found = [pair.id for pair in pairs if pair.id != "p3"]
    counts = {"over_length": len(pairs) - len(found), "identical": 0, "unlabelled": 0, "omitted": 0}
    return SimpleNamespace(rows=found, pairs=len(pairs), **counts)


def stream(sources, **settings) -> PairStream:
    return PairStream(sources, kept, **({"block": 4, "seed": 1} | settings))


def test_an_epoch_has_every_row_once_and_the_next_another_order(sources):
    given = stream(sources)
    first, second = (list(islice(it, 22)) for it in [iter(given)] * 2)
    everything = sorted(f"p{place}" for place in range(23) if place != 3)
    assert sorted(first) == sorted(second) == everything and first != second
    assert {*first[:3]} == {"p0", "p1", "p2"} and {*first[3:7]} == {"p4", "p5", "p6", "p7"}, "a block at a time"
    assert given.report.read == 2 * 23 and given.counts["over_length"] == 2
    assert list(islice(stream(sources), 44)) == first + second
    assert list(islice(stream(sources, seed=2), 22)) != first


def test_a_stream_goes_on_exactly_wherever_it_was_left(sources):
    for number in [0, 7, 22, 40]:
        uncut, left = stream(sources), stream(sources)
        whole = list(islice(uncut, 60))
        list(islice(left, number + 5))  # what is read ahead is not trained on
        state = json.loads(json.dumps(left.position_after(number)))
        again = stream(sources)
        again.resume_from(state)
        found = iter(again)
        assert list(islice(found, 60 - number)) == whole[number:]
        assert again.report == uncut.report and again.counts == uncut.counts, "what was read before counts too"
        third = stream(sources)
        third.resume_from(again.position_after(number + 4))
        assert list(islice(third, 10)) == whole[number + 4 : number + 14]
        assert list(islice(again, 5)) == whole[number : number + 5], "another iteration begins where this one did"


def test_a_block_may_have_no_row_and_an_epoch_may_not(sources):
    """The third block, p8 and p9, and the sixth, p16 to p19, are empty: 17 rows in an epoch."""
    for number in [0, 6, 9, 12, 13]:

        def encode(pairs, dropped=("p8", "p9", "p16", "p17", "p18", "p19")):
            rows = [pair.id for pair in pairs if pair.id not in dropped]
            counts = {"over_length": 0, "identical": 0, "unlabelled": len(pairs) - len(rows), "omitted": 0}
            return SimpleNamespace(rows=rows, pairs=len(pairs), **counts)

        whole, left = list(islice(PairStream(sources, encode, block=4), 40)), PairStream(sources, encode, block=4)
        assert len({*whole[:17]}) == 17 and {*whole[:17]} == {*whole[17:34]}, number
        list(islice(left, number + 3))
        again = PairStream(sources, encode, block=4)
        again.resume_from(json.loads(json.dumps(left.position_after(number))))
        assert list(islice(again, 40 - number)) == whole[number:]
        empty = PairStream(sources, lambda pairs: encode(pairs, [pair.id for pair in pairs]), block=4)
        with pytest.raises(DataError, match=r"c.jsonl.gz: no pair of an epoch is usable: .*'unlabelled': 23"):
            next(iter(empty))


def test_bad_rows_are_refused_with_their_place_or_counted(tmp_path):
    mixed = [*rows(0, 5), {"id": "x", "prompt": "q", "chosen": "same", "rejected": "same"}, *rows(5, 2)]
    source = jsonl(tmp_path / "a.jsonl", mixed)
    with pytest.raises(DataError, match=r"a.jsonl:6: chosen and rejected are identical; correct the row"):
        list(islice(stream([source]), 6))
    skipping = stream([source], on_bad_row="skip")
    assert len({*islice(skipping, 6)}) == 6
    assert skipping.report.dropped == [(f"{source}:6", "chosen and rejected are identical")]
    bad = [{"prompt": "q", "chosen": "same", "rejected": "same"}]
    few, many = jsonl(tmp_path / "few.jsonl", bad), jsonl(tmp_path / "many.jsonl", bad * 9)
    given = stream([few, many], on_bad_row="skip")
    with pytest.raises(DataError, match=r"no usable row; .*identical': 11}; the first is .*few.jsonl:1: chosen"):
        next(iter(given))
    good = stream([few, jsonl(tmp_path / "good.jsonl", rows(0, 2)), many], on_bad_row="skip")
    assert len({*islice(good, 6)}) == 2


def test_the_cells_of_a_csv_file_are_the_same_text_as_without_a_stream(tmp_path):
    for name in ["a.csv", "a.csv.gz"]:
        written = [["q", "4", "NA", "2"], ['"a"\n\nb, c', "x\r\ny", "null", ""], [*"é s3"], ["", *"12x"]]
        opened = gzip.open if name.endswith(".gz") else open
        with opened(tmp_path / name, "wt", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([["prompt", "chosen", "rejected", "margin"], *written, ["a", "b"]])
        path = str(tmp_path / name)
        assert [*open_stream(path)] == [*read_rows(path)], name
        pairs, report = load_pairs(path, on_bad_row="skip")
        assert [pair.chosen for pair in pairs] == ["4", "x\r\ny"] and [pair.margin for pair in pairs] == [2.0, None]
        streamed = PairStream([path], kept, on_bad_row="skip")
        assert streamed.read(StreamPosition())[0] == pairs and streamed.report.reasons == report.reasons, name
    for start in [",prompt,chosen,rejected\n0,q,", "\nprompt,chosen,rejected\nq,"]:
        (tmp_path / "a.csv").write_text(f"{start}a,b\n")  # pandas writes its row numbers without a name
        path = str(tmp_path / "a.csv")
        assert stream([path]).read(StreamPosition())[0] == load_pairs(path)[0], start
    (tmp_path / "a.csv").write_text("prompt,chosen,rejected\nq,hello, world,b\nr,good, day,c\n")
    with pytest.raises(DataError, match=r"a.csv: row 1: more cells than columns: 4 and 3; put a text with commas in"):
        stream([str(tmp_path / "a.csv")]).read(StreamPosition())


def test_the_values_of_json_lines_are_the_same_as_without_a_stream(tmp_path):
    """`datasets` made 1 a 1.0 beside a 1.5, a date a time, left out null, and refused a file for one bad line."""

    def called(number: int, arguments: dict) -> dict:
        call = {"type": "function", "function": {"name": "book", "arguments": arguments}}
        chosen = [{"role": "assistant", "tool_calls": [call]}]
        rejected = [{"role": "assistant", "content": "no"}]
        return {"id": f"2024-01-0{number}", "prompt": f"q{number}", "chosen": chosen, "rejected": rejected}

    given = [{"day": "2026-05-01", "n": 1}, {"n": 1.5, "day": None}, {"day": "soon", "n": "two"}, {"n": 2**70}]
    lines = [json.dumps(called(number, arguments)) for number, arguments in enumerate(given, start=1)]
    text = "\ufeff" + "\n".join([lines[0], "", "{", *lines[1:], '{"id": 1, "id": 2}'])
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "a.json").write_text(f"[{', '.join(lines)}]")
    (tmp_path / "lines.json").write_text(text, encoding="utf-8")
    for name in ("a.jsonl", "a.json", "lines.json"):
        path = str(tmp_path / name)
        pairs, report = load_pairs(path, on_bad_row="skip")
        assert [pair.chosen.turns[0]["tool_calls"][0]["function"]["arguments"] for pair in pairs] == given
        assert pairs[0].id == "2024-01-01"
        streamed = PairStream([path], kept, on_bad_row="skip", block=3)
        first, position = streamed.read(StreamPosition())
        again = PairStream([path], kept, on_bad_row="skip", block=3)
        rest, _ = again.read(StreamPosition(**json.loads(json.dumps(position._asdict()))))
        assert first + rest == pairs and streamed.report.dropped + again.report.dropped == report.dropped, name
    with pytest.raises(DataError, match="another version wrote the position in it; start over"):
        stream([path]).read(StreamPosition(inner={"examples_iterable": {}}, row=2))


def test_what_cannot_be_streamed_or_gone_on_with_is_told(tmp_path, sources):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "torn.jsonl").write_text(json.dumps(rows(0, 1)[0]) + "\n{")
    for name, said in (("nowhere", "no file that can be streamed"), ("empty", "empty.jsonl"), ("torn", "torn.jsonl")):
        with pytest.raises((DataError, UsageError), match=said):
            next(iter(stream([str(tmp_path / f"{name}.jsonl")])))
    with pytest.raises(UsageError, match="at least one pair"):
        stream([], block=0)
    state = stream(sources).position_after(0)
    with pytest.raises(DataError, match="the checkpoint's stream reads"):
        stream(sources[:1]).resume_from(state)
    with pytest.raises(DataError, match="the checkpoint's stream reads"):
        stream(sources, block=5).resume_from(state)
