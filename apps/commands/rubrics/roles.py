"""Models that write rubrics and models that judge."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from ....judges.backends.chat import Chat
from ....judges.store import FILE
from ...runs.run_folder import data_hash, run_folder
from ..judge.chats import REPLIES, open_chats, short_names
from ..judge.settings import ChatConfig
from .settings import RubricsConfig

RUBRICS = "rubrics.jsonl"


class Cast(NamedTuple):
    """Who writes rubrics and who judges; the same chat unless another one is named."""

    names: dict[str, str]
    """Short name -> name."""
    writer: str
    judge: str


def cast(config: RubricsConfig, chats: ChatConfig) -> Cast:
    """By their short names."""
    names = short_names([*chats.names, *filter(None, [config.judge])])
    shorts = {name: short for short, name in names.items()}
    return Cast(names, shorts[chats.names[0]], shorts[config.judge or chats.names[0]])


def open_cast(config: RubricsConfig, chats: ChatConfig) -> dict[str, Chat]:
    """Writer and judge by their short names; local ones are loaded here."""
    return open_chats(chats, [*filter(None, [config.judge])])


def cast_folder(config: RubricsConfig, chats: ChatConfig, **more: Any) -> AbstractContextManager[Path]:
    """The run folder; one that was cut off goes on under the same settings, data and seed."""
    recipe = config.identity() | chats.identity() | more
    recipe["data_sha256"] = {source: data_hash(source) for source in config.data}
    return run_folder(config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{REPLIES}/{FILE}")
