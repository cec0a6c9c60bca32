import bz2
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.data.readers import format_of, read_rows, source_name
from rewardlab.rm.data.streaming import PairStream, StreamPosition
from rewardlab.rm.errors import DataError, UsageError

ROWS = [{"prompt": f"What is {n} + 2?", "chosen": str(n + 2), "rejected": "no"} for n in range(3)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
COMPRESS = {".bz2": bz2.compress, ".xz": lzma.compress, ".zst": lambda data: pa.compress(data, "zstd", asbytes=True)}


def values(source):
    return [row.values for row in read_rows(str(source))]


def streamed(source):
    return PairStream([str(source)], list).read(StreamPosition())[0]


def test_json_lines_and_csv_are_read_and_streamed_under_every_name_and_compression(tmp_path):
    for name in ["a.json", *(f"a.jsonl{suffix}" for suffix in COMPRESS), "a.json.bz2"]:
        path = tmp_path / name
        path.write_bytes(COMPRESS.get(path.suffix, bytes)(LINES))
        assert values(path) == ROWS and [row.location for row in read_rows(str(path))][1] == f"{path}:2", name
        if path.suffix == ".zst":
            with pytest.raises(UsageError, match=r"Zstandard files cannot be streamed; unpack it with zstd -d"):
                streamed(path)
        else:
            assert streamed(path) == load_pairs(str(path))[0]
    path = tmp_path / "a.csv.bz2"
    path.write_bytes(bz2.compress(b"prompt,chosen,rejected\r\nWhy?,a,b\r\n"))
    assert streamed(path) == load_pairs(str(path))[0]


def test_a_file_that_is_cut_off_is_refused_and_a_bad_line_named(tmp_path):
    for suffix in [".gz", *COMPRESS]:
        path = tmp_path / f"a.jsonl{suffix}"
        path.write_bytes(COMPRESS.get(suffix, bytes)(LINES * 99)[:-20])
        with pytest.raises(DataError, match=rf"a\.jsonl{suffix}: the {suffix} file is damaged or .*fetch it again"):
            values(path)
        assert (format_of(str(path)), source_name(str(path))) == (".jsonl", "a"), suffix
    path = tmp_path / "a.json"
    path.write_bytes(LINES + b'{"prompt": \n')
    *rows, last = read_rows(str(path))
    assert len(rows) == 3 and last.location == f"{path}:4" and last.error.startswith("not JSON")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    Dataset.from_list(ROWS).save_to_disk(folder / "single")
    splits = {"train": Dataset.from_list(ROWS[:2]), "test": Dataset.from_list(ROWS[2:])}
    DatasetDict(splits).save_to_disk(folder / "splits")
    return folder


def test_folders_of_save_to_disk_are_read_and_streamed_and_continue_at_the_exact_row(saved):
    assert values(saved / "single") == ROWS and values(f"{saved}/splits:test") == ROWS[2:]
    assert [pair.chosen for pair in streamed(saved / "single")] == ["2", "3", "4"]
    assert [pair.chosen for pair in streamed(saved / "splits")] == ["2", "3"]
    assert [pair.chosen for pair in streamed(f"{saved}/splits:test")] == ["4"]
    source, block = str(saved / "single"), {"block": 2}
    _, position = PairStream([source], list, **block).read(StreamPosition())
    pairs, _ = PairStream([source], list, **block).read(position)
    assert [pair.chosen for pair in pairs] == ["4"]


def test_a_split_that_a_saved_folder_lacks_is_refused_with_those_that_it_has(saved):
    with pytest.raises(UsageError, match="splits train, test; name one as"):
        values(saved / "splits")
    with pytest.raises(UsageError, match=r"no split 'valid' in '.*splits', which has splits train, test"):
        values(f"{saved}/splits:valid")
    with pytest.raises(UsageError, match=r"no split 'train' in '.*single', which has no splits"):
        streamed(f"{saved}/single:train")


def test_the_cause_of_a_file_or_stream_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    for error, sentence in [
        (pa.ArrowInvalid("no magic bytes"), r"not a complete Parquet file \(no magic bytes\); fetch it again"),
        (pa.ArrowMemoryError("malloc of 9 failed"), "it does not fit into memory .*; split it"),
        (pa.ArrowNotImplementedError("codec 'lzo'"), r"it needs a feature .* lacks \(codec 'lzo'\); write it again"),
        (PermissionError(13, "Permission denied"), "this user may not read it .*; change its permissions"),
    ]:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS), path)

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(pq, "ParquetFile", fail)
        with pytest.raises(DataError, match=rf"a\.parquet: {sentence}"):
            values(path)

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "a.jsonl").write_bytes(LINES)
    monkeypatch.setattr("rewardlab.rm.data.readers.open", refuse, raising=False)
    with pytest.raises(DataError, match=r"a\.jsonl: this user may not read it"):
        values(tmp_path / "a.jsonl")

    def broken():
        yield ROWS[0]
        raise ConnectionError("connection reset")

    monkeypatch.setattr("rewardlab.rm.data.streaming.open_stream", lambda _: broken())
    with pytest.raises(DataError, match=r"owner/set: reading it from the Hub failed \(connection reset\); check the"):
        streamed("owner/set")


def test_a_value_of_a_parquet_file_that_cannot_be_read_is_a_bad_row(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.Table.from_pylist(ROWS)
    times = pa.array([0, 2**45, 0], pa.timestamp("s"))
    pq.write_table(table.append_column("time", times), path)
    first, second, third = read_rows(str(path))
    assert (first.values["chosen"], third.values["chosen"]) == ("2", "4")
    assert second.error.startswith("a value that cannot be read: ") and not second.values
    assert load_pairs(str(path), on_bad_row="skip")[1].dropped == [(f"{path}: row 2", second.error)]
