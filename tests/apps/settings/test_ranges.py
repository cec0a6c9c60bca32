"""Ranges of numeric settings: every verb declares them, and checks them before its dataclasses compute."""

import math
from typing import get_args, get_type_hints

import pytest
from rewardlab.apps.api.calls import parse_settings
from rewardlab.apps.cli import parse
from rewardlab.apps.settings.preflight import NAMES_BY_RANGE, TRAINER_RANGES, check_ranges, is_trainers
from rewardlab.apps.verbs import VERBS
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry.settings import declarations

GROUPS = [(verb, group) for verb, declared in VERBS.items() for group in declared.outlines]


def numbers(group: type) -> list[str]:
    """Return the names of the numeric settings of a dataclass."""
    hints = get_type_hints(group)
    return [name for name in declarations(group) if {int, float} & {hints[name], *get_args(hints[name])}]


@pytest.mark.parametrize(
    ("verb", "setting", "ends", "outside"),
    [
        ("decode", "top_p", [1.0], [0.0, 1.1]),
        ("decode", "temperature", [0.0], [-0.1, math.inf]),
        ("decode", "sweep", [2], [1]),
        ("rl", "temperature", [0.1], [0.0]),
        ("rl", "top_k", [-1, 0], [-2]),
        ("rl", "critic_clip", [math.inf], [0.0]),
        ("rl", "lora_dropout", [0.0], [1.0]),
        ("rl", "entropy", [-1.0], [math.inf]),
        ("rl", "max_steps", [-1, 1], [0, -2]),
        ("serve", "port", [0, 65_535], [65_536]),
        ("rubrics", "steps", [-1, 1], [0, -2]),
        ("train", "learning_rate", [0.0], [math.inf]),
        ("train", "golden", [2], [1]),
        ("retriever", "case_weight", [0.0, 1.0], [1.1]),
    ],
)
def test_ends_are_taken_as_the_text_says(verb, setting, ends, outside):
    group = next(group for name, group in GROUPS if name == verb and setting in declarations(group))
    for value in (*ends, None, "word", declarations(group)[setting].default):
        check_ranges(group, {setting: value})
    for value in (*outside, math.nan):
        with pytest.raises(UsageError, match=f"--{setting} must be .*, got {value}"):
            check_ranges(group, {setting: value})


def test_every_number_of_a_verb_has_a_range():
    missing = {
        (verb, name)
        for verb, group in GROUPS
        for name in numbers(group)
        if not is_trainers(group) and "range" not in declarations(group)[name].metadata
    }
    assert not missing


def test_nan_is_a_number_of_no_verb_but_a_missing_reward():
    for verb, group in GROUPS:
        for name in {*numbers(group)} - ({"no_verdict"} if verb == "judge train" else set()):
            with pytest.raises(UsageError, match=f"--{name} must be .*, got nan"):
                check_ranges(group, {name: math.nan})


def test_an_argument_of_a_trainer_stands_once_in_the_table():
    names = [name for _, names in NAMES_BY_RANGE for name in names.split()]
    assert len(names) == len(set(names)) == len(TRAINER_RANGES)
    assert {*names} <= {name for _, group in GROUPS if is_trainers(group) for name in numbers(group)}


def test_ranges_are_checked_before_the_dataclasses_compute():
    for words, message in (
        (["--warmup_steps", "-1"], "--warmup_steps must be at least 0 and finite, got -1"),
        (["--weight_average", "nan"], r"--weight_average must be a share in \[0, 1\), got nan"),
        (["--small_hidden", "0"], "--small_hidden must be at least 1, got 0"),
    ):
        with pytest.raises(UsageError, match=message):
            parse("train", VERBS["train"], words)
        with pytest.raises(UsageError, match=message):
            parse_settings("train", {words[0].lstrip("-"): float(words[1])})
