"""A part of a benchmark has every subset in proportion, and is the same every time."""

from itertools import pairwise

from rewardlab.benchmarks.suites._suite import stratified_sample
from rewardlab.benchmarks.types import part_of
from rewardlab.judges.types import Case


def cases(**sizes):
    return [Case(f"{name}{index}", (), ("x", "y"), (0,), name) for name, size in sizes.items() for index in range(size)]


def counts(part):
    return {name: sum(case.subset == name for case in part) for name in "abc"}


def test_a_part_has_every_subset_in_proportion_and_its_order():
    every = cases(a=60, b=30, c=3)
    part, notes = stratified_sample(every, 31)
    assert counts(part) == {"a": 20, "b": 10, "c": 1} and part == [case for case in every if case in part]
    assert part_of(notes) == "Not the whole benchmark: 31 of 93 cases (--limit), in proportion to the subsets."
    assert counts(stratified_sample(every, 3)[0]) == {"a": 1, "b": 1, "c": 1}


def test_a_part_depends_on_ids_alone_and_holds_every_smaller_one():
    every = cases(a=9, b=4)
    parts = [{case.id for case in stratified_sample(every, limit)[0]} for limit in range(1, 14)]
    assert [*map(len, parts)] == [*range(1, 14)] and all(a < b for a, b in pairwise(parts))
    assert parts[4] == {case.id for case in stratified_sample(every[::-1], 5)[0]}


def test_all_cases_are_no_part():
    every = cases(a=2)
    assert stratified_sample(every, None) == stratified_sample(every, 2) == stratified_sample(every, 3) == (every, [])
