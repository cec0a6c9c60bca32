"""A judge and its configuration."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel

Parsed, Config = TypeVar("Parsed"), TypeVar("Config")
TaskData = Trace = Any


class JudgeConfig(BaseModel):
    """Settings of a judge."""

    id: str = ""
    weight: float = 1.0


class Judge(Generic[Parsed, Config]):
    """A judge that a task names."""

    def __init__(self, config: Any):
        self.config = config
