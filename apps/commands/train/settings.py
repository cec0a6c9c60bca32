"""The settings of `rewardlab train`: common settings, and the settings that each kind of reward model declares."""

from collections.abc import Callable
from dataclasses import Field, dataclass, field, make_dataclass
from typing import Any, get_type_hints

from ....rm.errors import UsageError
from ....rm.registry import Kind, trained_kinds
from ....rm.registry.settings import AT_LEAST_1, AT_LEAST_2, Settings, changed_settings, declarations, heading, setting
from ...runs.run_folder import HUB

ANY_TRAINING = ("output_dir", "seed", "disable_tqdm", "use_cpu", *HUB)
"""Trainer arguments that every kind of reward model accepts. The rest require training by gradient descent."""


@dataclass
class TrainConfig(Settings):
    """Training settings that all kinds of reward models share."""

    data: list[str] = setting(
        [],
        "Preference files (.jsonl, .json, .parquet, .csv, also compressed) or hub-id[@revision][:split].",
        group="Data and output",
    )
    output: str = setting("", "Folder for the trained model.")
    eval_data: list[str] = setting([], "Preference data for evaluation and for choosing the best checkpoint.")
    kind: str = setting("scalar", "Kind of reward model.", group="Model", choices=tuple(trained_kinds()))
    golden: int = setting(
        16,
        "Number of golden conversations saved with their scores beside the weights.",
        group="Run",
        range=AT_LEAST_2,
        advanced=True,
    )
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
    processes: int = setting(
        1, "Number of processes started by torchrun; each batch is sharded over them.", range=AT_LEAST_1
    )
    resume: bool = setting(False, "Continue a run that was cut off.")
    overwrite: bool = setting(False, "Replace the output folder.")


def _declared_by_kinds() -> type:
    """Return a dataclass with the settings of all kinds, without duplicates, the most widely used first."""
    by_name: dict[str, list[type]] = {}
    for kind in trained_kinds().values():
        for name in declarations(kind.settings):
            by_name.setdefault(name, []).append(kind.settings)
    ordered = sorted(by_name, key=lambda name: -len(by_name[name]))
    members = [(name, get_type_hints(by_name[name][0])[name], _copy(name, by_name[name][0])) for name in ordered]
    return make_dataclass("KindSettings", members, bases=(Settings,), namespace={"__module__": __name__})


def _copy(name: str, settings: type) -> Field:
    """Return a copy of a setting's dataclass field with its heading in the help page."""
    declared = declarations(settings)[name]
    default: Any = {"default": declared.default, "default_factory": declared.default_factory}
    return field(metadata={**declared.metadata, "group": heading(settings, name)}, **default)


KindSettings: Any = _declared_by_kinds()


def own_settings(config: TrainConfig, kind_settings: Any, arguments: Any) -> Settings:
    """Return the settings of the configured kind.

    Raise `UsageError` for settings that the kind does not use, and for contradictory settings.
    """
    kind = trained_kinds()[config.kind]
    for name in changed_settings(kind_settings):
        _check_used_by_kind(name, kind, lambda other, name=name: name in declarations(other.settings))
    for name in changed_settings(arguments):
        if name not in ANY_TRAINING:
            _check_used_by_kind(name, kind, lambda other: other.by_gradient)
        if name == "padding_free":
            _check_used_by_kind(name, kind, lambda other: other.padding_free)
    for name in ("eval_data", "processes"):
        if name in changed_settings(config):
            _check_used_by_kind(name, kind, lambda other: other.by_gradient)
    if kind.reads_data and not config.data:
        raise UsageError("--data is missing")
    settings = kind.settings(**{name: vars(kind_settings)[name] for name in declarations(kind.settings)})
    settings.validate()
    return settings


def _check_used_by_kind(name: str, kind: Kind, reads: Callable[[Kind], bool]) -> None:
    """Raise `UsageError` if the kind does not use a setting. The message lists the kinds that use the setting."""
    if not reads(kind):
        kinds = [other.name for other in trained_kinds().values() if reads(other)]
        listed = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if kinds[1:] else kinds)
        raise UsageError(f"--{name} belongs to --kind {listed}, got {kind.name}; leave it out")
