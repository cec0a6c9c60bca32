"""Models that the inspector was started with: loaded on first use, and used by one request at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...rm.errors import CheckFailed, DataError, UsageError
from ...rm.io.hub_names import absence_reason
from ...rm.load import contract_and_kind
from ...rm.registry import kind_of
from ...rm.registry.specs import call, is_function, parse_spec, split_name
from ...rm.types import RewardModel
from ..runs.run_folder import trust_option
from .settings import InspectConfig

if TYPE_CHECKING:
    from ...policy.decoding.engines import Engine


class Models:
    """Reward models and guides, loaded on first use. Requests select models by name and cannot open other paths."""

    def __init__(self, config: InspectConfig):
        self._config = config
        self._sources: dict[str, str] = {}
        for text in config.model:
            name, source = split_name(text)
            if name in self._sources:
                raise UsageError(f"two models are called '{name}'; use two names, as --model one=FOLDER two=FOLDER")
            self._sources[name] = source
        self.objectives: tuple[str, ...] = ()
        """Objectives of the playground, from the folders of the guides."""
        if config.arm:
            from ...policy.decoding.engines import preference_objectives

            self.objectives = preference_objectives(config.arm)
        self._opened: dict[str, RewardModel] = {}
        self._engine: Engine | None = None
        self._turn = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Names of the reward models."""
        return [*self._sources]

    @property
    def decodes(self) -> bool:
        """Return whether the playground has a guide (an autoregressive reward model that guides decoding)."""
        return bool(self._config.arm)

    @contextmanager
    def reward_model(self, name: str | None) -> Iterator[RewardModel]:
        """Yield a reward model for exclusive use."""
        if name not in self._sources:
            raise UsageError(f"no model '{name}' was named at the start; there is {', '.join(self.names) or 'none'}")
        with self._turn:
            if name not in self._opened:
                self._opened[name] = _open(self._sources[name], self._config)
            yield self._opened[name]

    @contextmanager
    def decoder(self) -> "Iterator[Engine]":
        """Yield the decoding engine, with base model and guides, for exclusive use."""
        if not self.decodes:
            raise UsageError(
                "no guide was named at the start; restart with --arm, and with --base unless the guide is an adapter"
            )
        from ...policy.decoding.engines import open_engine

        with self._turn:
            if self._engine is None:
                config = self._config
                self._engine = open_engine(config.base, config.arm, **trust_option(config))[0]
            yield self._engine


def check_models(config: InspectConfig) -> None:
    """Raise an error before the page starts if a model or guide cannot be opened.

    Only paths and scoring contracts are checked. Weights are not loaded.
    """
    for text in config.model:
        _check_source(split_name(text)[1])
    if config.arm:
        from ...policy.decoding.engines import check_guides, parse_arms

        check_guides(config.base, [folder for _, folder in parse_arms(config.arm)])


def _check_source(source: str) -> None:
    """Raise an error unless `source` is a model folder, a Hub id, or the name of a kind or function."""
    if Path(source).exists():
        if not Path(source).is_dir():
            raise UsageError(f"--model {source} is a file; give the folder of a reward model, or a Hub id")
        contract_and_kind(source)
    elif not ("(" in source or is_function(source)):
        from ...rm.backbones.loading import load_config

        try:
            load_config(source)
        except (OSError, ValueError) as error:
            raise UsageError(f"--model {source}: {absence_reason(source, error)}") from error


def _open(source: str, config: InspectConfig) -> RewardModel:
    """Load a reward model from a folder, a Hub id, or a kind such as `implicit(source=DPO_RUN, reference=SFT_RUN)`."""
    from ...benchmarks.scorers import open_scorer

    try:
        if "(" in source and not is_function(source) and not Path(source).exists():
            return call(kind_of(parse_spec(source).name).load, source)
        return open_scorer(source, **trust_option(config)).model
    except CheckFailed as error:
        raise DataError(str(error)) from error
