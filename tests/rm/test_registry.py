import sys
from functools import partial

from rewardlab.rm.registry import load, reference


def make(factor):
    def score(completions):
        return [factor * len(text) for text in completions]

    return score


class Scorer:
    def __call__(self, completions):
        return [0.0 for _ in completions]


def test_each_object_has_a_reference_of_its_own_which_loads_it():
    objects = [make(1), make(-1), lambda completions: [], partial(make(2)), Scorer(), Scorer(), Scorer().__call__]
    references = [reference(given) for given in objects]
    assert len({*references}) == len(objects)
    assert [load("rm.losses", name) for name in references] == objects
    assert [reference(given) for given in objects] == references
    assert [name.rpartition(":")[2] for name in references[:5]] == ["score", "score", "lambda", "score", "Scorer"]


def test_a_function_of_a_module_is_found_in_its_module_after_a_nested_one_of_its_name(monkeypatch):
    nested = make(1)
    reference(nested)

    def score(completions):
        return [-len(text) for text in completions]

    monkeypatch.setitem(globals(), "score", score)
    assert reference(score) == f"{__name__}:score" and load("rm.losses", reference(score)) is score
    assert load("rm.losses", reference(nested)) is nested


def test_an_edited_file_is_read_again_and_an_unchanged_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for factor in (2, 3):
        file.write_text(f"def score(x):\n    return {factor} * x\n")
        score = load("rm.losses", f"{file}:score")
        assert score(1) == factor and load("rm.losses", f"{file}:score") is score
