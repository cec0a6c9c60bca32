"""Files that the user brings and that are not whole."""

import struct
from collections.abc import Callable
from pathlib import Path

from tests.faults.injection import Seen, injection, seen
from tests.faults.world import World, cut

REFUSED = "the file or its folder is named and no score is written"


def _spoilt_model(world: World, name: str, spoil: Callable[[Path], object], word: str, code: int) -> Seen:
    """Scored after the model's sums are gone, as in a folder that another program wrote."""
    folder = world.copy_of(world.model, f"spoilt-{name}")
    (folder / "checksums.json").unlink()
    spoil(folder)
    scores = world.new(f"spoilt-{name}.jsonl")
    ended = world.run(*world.score(scores, folder))
    return seen(ended, (word,), code, nothing_written=not scores.exists())


def _header(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[9] ^= 0xFF
    path.write_bytes(bytes(content))


@injection(REFUSED)
def weights_header_flipped(world: World) -> Seen:
    """A byte of the weights' header turns over (no sums kept)."""
    return _spoilt_model(world, "header", _header, "deserializing header", 3)


@injection(REFUSED)
def weights_length_wrong(world: World) -> Seen:
    """The length that the weights' file begins with is wrong (no sums kept)."""

    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])

    return _spoilt_model(world, "length", spoil, "deserializing header", 3)


@injection(REFUSED)
def weights_cut(world: World) -> Seen:
    """The weights' file is cut in half (no sums kept)."""
    return _spoilt_model(world, "cut", lambda one: cut(one / "model.safetensors"), "deserializing header", 3)


@injection("the golden scores find it; no score is written")
def weights_body_flipped(world: World) -> Seen:
    """An exponent in the weights' body turns over (no sums kept)."""

    def spoil(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        path = folder / "model.safetensors"
        found = load_file(path)
        name = next(one for one in found if "norm" in one)
        found[name].view("<u4")[0] ^= 1 << 29
        save_file(found, path, metadata={"format": "pt"})

    return _spoilt_model(world, "body", spoil, "now scores", 5)


@injection(REFUSED)
def tokenizer_cut(world: World) -> Seen:
    """Tokenizer.json is cut in half (no sums kept)."""
    return _spoilt_model(world, "tokenizer", lambda one: cut(one / "tokenizer.json"), "tokenizer", 3)


@injection(REFUSED)
def config_empty(world: World) -> Seen:
    """Config.json is empty."""
    return _spoilt_model(world, "config", lambda one: (one / "config.json").write_text(""), "config.json", 3)


def _spoilt_data(world: World, name: str, spoil: Callable[[Path], object], word: str) -> Seen:
    data, scores = world.new(name), world.new(f"{name}-scores.jsonl")
    data.write_bytes(world.pairs.read_bytes())
    spoil(data)
    ended = world.run(*world.score(scores, data=data))
    return seen(ended, (word,), 3, nothing_written=not scores.exists())


@injection("the line is named and no score is written")
def last_line_torn(world: World) -> Seen:
    """A data file's last line is torn."""
    return _spoilt_data(world, "torn-last.jsonl", lambda one: one.write_bytes(one.read_bytes()[:-40]), ":60: ")


@injection("the line is named and no score is written")
def middle_line_torn(world: World) -> Seen:
    """A line in the middle of a data file is torn."""

    def spoil(path: Path) -> None:
        rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows[29] = rows[29][:25] + "\n"
        path.write_text("".join(rows), encoding="utf-8")

    return _spoilt_data(world, "torn-middle.jsonl", spoil, ":30: ")


@injection(REFUSED)
def parquet_cut(world: World) -> Seen:
    """A Parquet file of data is cut in half."""

    def spoil(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from tests.faults.world import lines

        rows = [{name: row[name] for name in ("id", "prompt", "chosen", "rejected")} for row in lines(world.pairs)]
        pq.write_table(pa.Table.from_pylist(rows), path)
        cut(path)

    return _spoilt_data(world, "cut.parquet", spoil, "cut.parquet")
