"""Kinds of judges, one file each. Each file exports a factory of the same name that returns a batch judge."""

from collections.abc import Callable
from typing import Any

from ...rm.registry.specs import Plain


def _function_judge(function: Callable[..., Any]) -> Any:
    from ._function import FunctionJudge

    return FunctionJudge(function, function.__name__)


PLAIN = (Plain(("prompt", "responses"), "scores, one for each response, or None", _function_judge),)
