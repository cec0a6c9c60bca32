import pytest
from rewardlab.policy.decoding.requests import Request
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn


def test_what_makes_no_sense_is_refused():
    for field, value, sentence in (
        ("weight", float("inf"), "weight must be a finite number, got inf"),
        ("temperature", -1, "temperature must be 0 .greedy. or a number above, got -1"),
        ("temperature", float("nan"), "temperature must be"),
        ("top_k", -1, "top_k must be 0 .off. or a number of tokens"),
        ("top_p", 0.0, r"top_p must be in \(0, 1\], got 0.0"),
        ("min_p", 1.5, r"min_p must be in \[0, 1\], got 1.5"),
        ("seed", -1, "seed must be a whole number"),
        ("seed", 2**63, "seed must be a whole number"),
        ("max_new_tokens", 0, "max_new_tokens must be 1 or more, got 0"),
        ("stop", ("",), "stop must be a tuple of strings"),
        ("stop", "Question", "stop must be a tuple of strings"),
    ):
        with pytest.raises(UsageError, match=sentence):
            Request(user_turn("tell me about bees"), **{field: value})
    for prompt in ((), user_turn(""), user_turn(" \n")):
        with pytest.raises(UsageError, match="has no text; give at least one message"):
            Request(prompt)
