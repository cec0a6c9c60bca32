import hashlib
import json
from pathlib import Path

import pytest
from rewardlab.rm.errors import DataError
from rewardlab.rm.io.checksums import fault_of, read_sums, write_sums
from rewardlab.rm.training.checkpointing import COMPLETE, fault_of_checkpoint, last_complete_checkpoint


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> Path:
    one = folder / f"checkpoint-{step}"
    one.mkdir()
    (one / "model.safetensors").write_bytes(b"x" * step)
    if marked:
        write_sums(one, [one / "model.safetensors"], one / COMPLETE)
    return one


def test_sums_are_sizes_and_sha_256_and_what_cannot_be_read_is_none(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    write_sums(tmp_path, [tmp_path / "a"], tmp_path / "sums.json")
    assert json.loads((tmp_path / "sums.json").read_text()) == {
        "a": {"bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    }, "FIPS 180-2, example B.1"
    assert hashlib.sha256(b"abc").hexdigest() == read_sums(tmp_path / "sums.json")["a"]["sha256"]
    (tmp_path / "sums.json").write_text('{"a": 3}')
    with pytest.raises(ValueError, match="sums.json cannot be read"):
        read_sums(tmp_path / "sums.json")


def test_a_fault_names_the_file_and_sizes_alone_miss_a_flipped_bit(tmp_path):
    for content, hashed, fault in [
        (b"abc", True, None),
        (b"ab", False, "a has 2 bytes and was written with 3"),
        (b"abd", True, "a has changed since it was written (its SHA-256 differs)"),
        (b"abd", False, None),
    ]:
        (tmp_path / "a").write_bytes(b"abc")
        write_sums(tmp_path, [tmp_path / "a"], tmp_path / "sums.json")
        (tmp_path / "a").write_bytes(content)
        assert fault_of(tmp_path, read_sums(tmp_path / "sums.json"), hashed=hashed) == fault


def test_the_newest_whole_checkpoint_is_resumed_from_and_the_faulty_one_named_and_kept(tmp_path):
    told: list[str] = []
    for step in (4, 8, 12):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-12" / "model.safetensors").write_bytes(b"x" * 11 + b"y")
    assert last_complete_checkpoint(tmp_path, told.append) == tmp_path / "checkpoint-8"
    assert told == [
        "checkpoint-12: model.safetensors has changed since it was written (its SHA-256 differs); renamed to "
        "corrupt-checkpoint-12, continuing from checkpoint-8"
    ]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint-4", "checkpoint-8", "corrupt-checkpoint-12"]
    (tmp_path / "checkpoint-8" / "model.safetensors").unlink()
    assert last_complete_checkpoint(tmp_path, told.append) == tmp_path / "checkpoint-4"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint-4", "corrupt-checkpoint-8"], "one at most"


def test_where_no_whole_checkpoint_is_left_nothing_starts_anew_and_nothing_is_moved(tmp_path):
    one = checkpoint(tmp_path, 4)
    (one / COMPLETE).write_text("{")
    for _ in range(2):
        with pytest.raises(DataError, match=r"no complete checkpoint \(checkpoint-4: complete.json cannot be read"):
            last_complete_checkpoint(tmp_path)
    assert one.exists()


def test_a_checkpoint_that_was_cut_off_lets_the_run_start_anew_and_none_needs_no_word(tmp_path):
    told: list[str] = []
    assert last_complete_checkpoint(tmp_path, told.append) is None and told == []
    checkpoint(tmp_path, 4, marked=False)
    assert last_complete_checkpoint(tmp_path, told.append) is None
    assert "cut off while it was written" in told[0] and told[0].endswith("so training restarts")
    whole, torn = checkpoint(tmp_path, 4), checkpoint(tmp_path, 8, marked=False)
    assert fault_of_checkpoint(whole) is None
    assert fault_of_checkpoint(torn) == "it was cut off while it was written (no complete.json yet)"
