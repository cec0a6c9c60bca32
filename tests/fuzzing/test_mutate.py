"""Mutations of bytes: they follow from the generator, keep their bounds, and reach what readers stumble over."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from rewardlab.rm.contract.scoring_contract import ScoringContract

from tests.fuzzing.mutate import LARGEST, MUTATIONS, NUMBERS, mutated, nest, number, shortest, splice
from tests.fuzzing.shapes import JSON, SAFETENSORS, SIGNED, TOML, YAML, bent, changed


@given(st.binary(max_size=200), st.integers(0, 2**32), st.lists(st.binary(max_size=50), max_size=2))
@settings(max_examples=40)
def test_a_mutation_follows_from_its_seed_and_stays_small(data, seed, others):
    once = mutated(data, Random(seed), others)
    assert once == mutated(data, Random(seed), others)
    assert len(once) <= LARGEST


def test_every_mutation_changes_something_and_bears_an_empty_file():
    for mutation in MUTATIONS:
        text = b'{"a": 12, "b": [1.5]}'
        assert any(mutation(text, Random(seed), [b"xyz"]) != text for seed in range(20))
        assert isinstance(mutation(b"", Random(0), [b"xyz"]), bytes)


def test_a_number_is_replaced_as_a_whole():
    found = {number(b"a12b", Random(seed)) for seed in range(200)}
    assert {b"a" + one + b"b" for one in NUMBERS} <= found | {b"a1" + one + b"b" for one in NUMBERS}


def test_brackets_are_nested_deeper_than_a_parser_may_go():
    assert any(nest(b"", Random(seed)).count(b"[") == 20_000 for seed in range(60))


def test_a_splice_begins_with_one_file_and_ends_with_another():
    for seed in range(20):
        found = splice(b"aaaa", Random(seed), [b"bbbb"])
        assert found == b"a" * found.count(b"a") + b"b" * found.count(b"b")


def test_the_shortest_file_keeps_what_makes_it_fail():
    assert shortest(bytes(range(100)), lambda one: 3 in one and 90 in one) == bytes([3, 90])
    assert shortest(b"abc", lambda one: False) == b"abc", "it never fails again"


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_changed_values_leave_the_values_as_they_were(seed):
    values = {"a": [1, {"b": "x"}], "c": None}
    changed(values, Random(seed))
    assert values == {"a": [1, {"b": "x"}], "c": None}


def test_a_format_reads_what_it_wrote():
    for shape, data in [
        (JSON, b'{"a": [1, "x"]}'),
        (YAML, b"a: [1, x]\nb: null\n"),
        (TOML, b'a = 1\n[[rules]]\nid = "x"\n'),
        (SAFETENSORS, (27).to_bytes(8, "little") + b'{"a":{"shape":[1],"x":"y"}}' + b"\0\0\0\0"),
    ]:
        values = shape.read(data)
        assert shape.read(shape.write(values)) == values
        assert any(bent(data, shape, Random(seed)) not in (None, data) for seed in range(20))


def test_a_bent_contract_still_has_its_hash(tmp_path):
    """Otherwise every bent one would be refused for its hash, and nothing behind that would be tried."""
    contract = ScoringContract("scalar", max_length=64, truncation="left")
    contract.save(tmp_path)
    again = SIGNED.read(SIGNED.write(SIGNED.read((tmp_path / "scoring.json").read_bytes())))
    assert again["hash"] == contract.hash()
    assert SIGNED.read(SIGNED.write(again | {"max_length": 65}))["hash"] != contract.hash()
