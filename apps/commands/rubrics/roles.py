"""Models that write rubrics and models that judge."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from ....judges.backends.open import LanguageModels
from ....judges.backends.settings import ChatConfig
from ....judges.run import REPLIES
from ....judges.store import FILE
from ...runs.run_folder import data_hash, run_folder
from .settings import RubricsConfig


class Cast(NamedTuple):
    """The chats that write rubrics and that judge; they are the same unless another one is named."""

    models: LanguageModels
    writer: str
    judge: str


def cast(config: RubricsConfig, chats: ChatConfig) -> Cast:
    """Return the models that write rubrics and that judge, by their short names."""
    models = LanguageModels(chats, [*filter(None, [config.judge])])
    shorts = {name: short for short, name in models.names.items()}
    return Cast(models, shorts[chats.names[0]], shorts[config.judge or chats.names[0]])


def cast_folder(config: RubricsConfig, chats: ChatConfig, **more: Any) -> AbstractContextManager[Path]:
    """Open the run folder; a run that was cut off continues with the same settings, data and seed."""
    recipe = config.identity() | chats.identity() | more
    recipe["data_sha256"] = {source: data_hash(source) for source in config.data}
    return run_folder(config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{REPLIES}/{FILE}")
