"""One file per kind of judge; each exports a factory of its name that returns a judge of many cases at once."""

from collections.abc import Callable
from typing import Any

from ...rm.registry.specs import Plain


def _judge(function: Callable[..., Any]) -> Any:
    from ._function import FunctionJudge

    return FunctionJudge(function, function.__name__)


PLAIN = (Plain(("prompt", "responses"), "scores, one for each response, or None", _judge),)
