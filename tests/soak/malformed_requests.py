"""Requests that no client of ours would send, for tests and the soak run; needs hypothesis."""

import json
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ROUTES = ("/score", "/classify", "/get_reward")
ELSEWHERE = ("/", "/score/", "/v1/classify", "/metrics", "/health", "/%00", "/score?x=%ff")
TYPES = ("application/json", "text/plain", "application/json; charset=utf-16", "multipart/form-data", "")


class Sent(NamedTuple):
    """A request."""

    method: str
    path: str
    body: bytes
    content_type: str


def words() -> SearchStrategy[str]:
    """Text of every kind, half characters too."""
    return st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
        ["", "\0", "\ud800", "<|user|>", "{{ 7 * 7 }}", "𝕏" * 50, "a" * 5000, "\u202e", "NaN"]
    )


def values() -> SearchStrategy[Any]:
    """Any JSON, with numbers that no type holds."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | words() | st.sampled_from([10**400, -0.0])
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words(), inner, max_size=4), max_leaves=10
    )


def turns() -> SearchStrategy[Any]:
    """A turn that is often right."""
    roles = st.sampled_from(["user", "assistant", "assistant", "system", "tool", "root"])
    return st.fixed_dictionaries({"role": roles | values(), "content": words() | values()}) | values()


def bodies() -> SearchStrategy[Any]:
    """Fields that the routes know, with right and wrong values."""
    conversation = st.lists(turns(), max_size=4)
    ids = st.lists(st.integers(-3, 400) | values(), max_size=8)
    fields = {
        "conversations": st.lists(conversation, max_size=3) | values(),
        "tokens": st.lists(ids, max_size=3) | values(), "truncate": st.booleans() | values(),
        "input": words() | st.lists(words() | ids, max_size=3) | values(), "messages": conversation | values(),
        "model": words(), "use_activation": st.booleans() | st.none(),
        "truncate_prompt_tokens": st.integers() | st.none(), "query": st.lists(words(), max_size=3) | values(),
        "prompts": st.lists(words(), max_size=3) | values(), "labels": values(),
    }  # fmt: skip
    shapes = [("conversations", "truncate"), ("tokens", "truncate"), ("input", "use_activation", "model")]
    shapes += [("messages", "truncate_prompt_tokens"), ("query", "prompts", "labels"), tuple(fields)]
    return st.sampled_from(shapes).flatmap(
        lambda names: st.fixed_dictionaries({}, optional={n: fields[n] for n in names})
    )


def payloads() -> SearchStrategy[bytes]:
    """Bytes of a body: JSON, JSON that was cut off or bent, deep nesting, noise."""
    whole = (bodies() | values()).map(lambda value: json.dumps(value).encode())
    cut = st.tuples(whole, st.floats(0, 1)).map(lambda two: two[0][: int(len(two[0]) * two[1])])
    bent = st.tuples(whole, st.binary(max_size=3), st.floats(0, 1)).map(
        lambda three: (place := int(len(three[0]) * three[2]), three[0][:place] + three[1] + three[0][place:])[1]
    )
    deep = st.tuples(st.sampled_from([b"[", b'{"a":', b'{"conversations":[']), st.integers(1, 3000)).map(
        lambda two: two[0] * two[1]
    )
    return whole | whole | cut | bent | deep | st.binary(max_size=60)


def requests() -> SearchStrategy[Sent]:
    """Mostly posts to the routes that score."""
    methods = st.sampled_from(["POST"] * 8 + ["GET", "PUT", "DELETE"])
    paths = st.sampled_from([*ROUTES * 4, *ELSEWHERE])
    return st.builds(Sent, methods, paths, payloads(), st.sampled_from(TYPES))
