"""Files that the user brings and that are not whole."""

import struct
from collections.abc import Callable
from pathlib import Path

from tests.faults.injection import Seen, add_table, seen
from tests.faults.world import World, cut, lines

REFUSED = "the file or its folder is named and no score is written"


def _spoilt_model(world: World, name: str, spoil: Callable[[Path], object], word: str, code: int) -> Seen:
    """Scored after the model's sums are gone, as in a folder that another program wrote."""
    folder = world.copy_of(world.model, f"spoilt-{name}")
    (folder / "checksums.json").unlink()
    spoil(folder)
    scores = world.new(f"spoilt-{name}.jsonl")
    ended = world.run(*world.score(scores, folder))
    return seen(ended, (word,), code, nothing_written=not scores.exists())


def _flip_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[9] ^= 0xFF
    path.write_bytes(bytes(content))


def _lengthen(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])


def _flip_exponent(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[next(name for name in weights if "norm" in name)].view("<u4")[0] ^= 1 << 29
    save_file(weights, path, metadata={"format": "pt"})


HEADER = "deserializing header"
add_table("inputs", REFUSED, _spoilt_model, {
    "weights-header-flipped": ("A byte of the weights' header turns over (no sums kept)", _flip_header, HEADER, 3),
    "weights-length-wrong": (
        "The length that the weights' file begins with is wrong (no sums kept)", _lengthen, HEADER, 3),
    "weights-cut": (
        "The weights' file is cut in half (no sums kept)", lambda one: cut(one / "model.safetensors"), HEADER, 3),
    "tokenizer-cut": (
        "Tokenizer.json is cut in half (no sums kept)", lambda one: cut(one / "tokenizer.json"), "tokenizer", 3),
    "config-empty": ("Config.json is empty", lambda one: (one / "config.json").write_text(""), "config.json", 3),
})  # fmt: skip
add_table("inputs", "the golden scores find it; no score is written", _spoilt_model, {
    "weights-body-flipped": (
        "An exponent in the weights' body turns over (no sums kept)", _flip_exponent, "now scores", 5),
})  # fmt: skip


def _spoilt_data(world: World, name: str, suffix: str, spoil: Callable[[World, Path], object], word: str) -> Seen:
    data, scores = world.new(f"{name}{suffix}"), world.new(f"{name}-scores.jsonl")
    data.write_bytes(world.pairs.read_bytes())
    spoil(world, data)
    ended = world.run(*world.score(scores, data=data))
    return seen(ended, (word,), 3, nothing_written=not scores.exists())


def _tear_last(world: World, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _tear_middle(world: World, path: Path) -> None:
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows[29] = rows[29][:25] + "\n"
    path.write_text("".join(rows), encoding="utf-8")


def _cut_parquet(world: World, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{name: row[name] for name in ("id", "prompt", "chosen", "rejected")} for row in lines(world.pairs)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    cut(path)


add_table("inputs", "the line is named and no score is written", _spoilt_data, {
    "last-line-torn": ("A data file's last line is torn", ".jsonl", _tear_last, ":60: "),
    "middle-line-torn": ("A line in the middle of a data file is torn", ".jsonl", _tear_middle, ":30: "),
})  # fmt: skip
add_table("inputs", REFUSED, _spoilt_data, {
    "parquet-cut": ("A Parquet file of data is cut in half", ".parquet", _cut_parquet, "parquet-cut.parquet"),
})  # fmt: skip
