"""The table of ranges: ends, NaN, and every numeric setting of every verb."""

import math

import pytest
from rewardlab.apps.settings.ranges import NAMES, OF_VERB, RANGES, check_ranges
from rewardlab.rm.errors import UsageError


def test_ends_are_taken_as_the_text_says_and_nan_and_what_lies_below_is_refused():
    for name, value in {"top_p": 1.0, "lora_dropout": 0.0, "port": 65_535, "critic_clip": math.inf, "max_steps": -1,
                        "temperature": 0.0, "golden": 2}.items():  # fmt: skip
        check_ranges("decode", {name: value})
    for name, value in {"top_p": 0.0, "lora_dropout": 1.0, "port": 65_536, "learning_rate": math.inf}.items():
        with pytest.raises(UsageError):
            check_ranges("decode", {name: value})
    with pytest.raises(UsageError, match="--temperature is above 0"):
        check_ranges("rl", {"temperature": 0.0})
    for name in RANGES:
        for value in (math.nan, math.inf if name == "entropy" else -(10.0**9)):
            with pytest.raises(UsageError, match=f"--{name} is .*, got {value}"):
                check_ranges("train", {name: value})
        check_ranges("train", {name: None}), check_ranges("train", {name: "word"})


def test_a_setting_stands_once_in_the_table():
    names = [name for _, names in NAMES for name in names.split()]
    assert len(names) == len(set(names)) == len(RANGES) and {name for _, name in OF_VERB} <= {*RANGES}
