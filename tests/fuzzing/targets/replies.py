"""What judges say and what is kept of it: replies, verdicts, responses of servers, the store, lists of prices."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewardlab.judges.backends.chat import Ask, Reply
from rewardlab.judges.backends.cost import read_prices
from rewardlab.judges.backends.openai_protocol import read_reply
from rewardlab.judges.cdrrm.profile import as_profile
from rewardlab.judges.cdrrm.requests import Rejected, json_object
from rewardlab.judges.cdrrm.synthesise import read_rubric
from rewardlab.judges.parsing.verdicts import criteria, pair_verdict, points
from rewardlab.judges.rubrics.rubric import parse
from rewardlab.judges.store import read_replies
from rewardlab.rm.errors import DataError

from tests.fuzzing.shapes import JSON, JSON_LINES, TOML
from tests.fuzzing.target import Target
from tests.fuzzing.targets.preferences import lines
from tests.fuzzing.world import SAID

VERDICTS = (
    b"Both are short. Final verdict: **Response A**, because it is right.",
    b'```json\n{"reasoning": "B lies", "winner": "A"}\n```',
    b"<think>hm</think>\nRating: 7/10\n[[8]]",
    SAID.encode(),
    b'names: met, "oak"\nshort: not met',
    b"{'winner': 'B', 'reasoning': 'it is (longer)'}",
)
COMPLETION = {
    "choices": [{"message": {"content": "A", "refusal": None}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
KEPT = {"key": "0123456789abcdef"} | Reply("A", "stop")._asdict() | {"cost": 0.5}
STORES = (lines([KEPT]), lines([KEPT, KEPT | {"key": "b"}]))
WRITTEN: dict[str, Any] = {"rules": [{"id": "r1", "type": "must", "criterion": "c", "test": "t"}]}
WRITTEN |= {"principles": [{"id": "p1", "description": "d"}]}
PRICES = b'["small"]\nprompt = 0.5\ncompletion = 1.5\n'


def replies() -> list[Target]:
    return [
        Target("replies/verdicts", "reply.txt", VERDICTS, _verdicts),
        Target("replies/verdicts in JSON", "reply.txt", (SAID.encode(), b'{"winner": "A"}'), _verdicts, JSON),
        Target("replies/rubric", "reply.txt", (json.dumps(WRITTEN).encode(),), _rubric, JSON),
        Target("replies/completion", "body.json", (json.dumps(COMPLETION).encode(),), _completion, JSON),
        Target("replies/store", "replies.jsonl", STORES, read_replies, JSON_LINES),
        Target("replies/prices.toml", "prices.toml", (PRICES,), lambda path: read_prices(path, "small"), TOML),
    ]


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _verdicts(path: Path) -> None:
    """A verdict, or a reason for having none; never an error."""
    text = _text(path)
    shown = ["An oak is a tree.", "A newt"]
    pair_verdict(text, quoted=shown)
    points(text, 1, 10, quoted=shown)
    criteria(text, ["names", "short"], quoted=shown)


def _rubric(path: Path) -> None:
    text = _text(path)
    read_rubric(Reply(text, "stop"))
    said = json_object(Reply(text, "stop"))
    if not isinstance(said, Rejected):
        as_profile(said, "An oak is a tree.")
    _ours(parse, text)


def _completion(path: Path) -> None:
    _ours(lambda text: read_reply(text, Ask(())), _text(path))


def _ours(read: Callable[[str], Any], text: str) -> None:
    """What says in its docstring that it raises a ValueError, which its callers make a reason."""
    try:
        read(text)
    except ValueError as error:
        raise DataError(str(error) or type(error).__name__) from error
