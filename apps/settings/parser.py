"""TRL's dataclass parser, with strict checks of values, repeatable list flags, and TRL's names of settings."""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

from trl import TrlParser
from trl.scripts._hf_argparser import string_to_bool

from ...rm.data.readers import SUFFIXES, format_of
from ...rm.errors import UsageError
from ...rm.registry.settings import DECLARED, Settings, declarations
from .preflight import check_ranges

ALIASES: Mapping[str, tuple[str, ...]] = {
    "model_name_or_path": ("model", "base"),
    "dataset_name": ("data",),
    "use_peft": ("lora",),
    "reward_funcs": ("reward",),
    "reward_model_name_or_path": ("reward",),
    "beta": ("kl",),
    "torch_dtype": ("dtype",),
}
"""Name in TRL or Transformers -> rewardlab settings. The first setting that the verb has is used."""
IMPLIED = ("lora_task_type",)
"""Settings of TRL's scripts that are ignored, because the verb implies them."""
TRAIN_SPLIT, TEST_SPLIT = "dataset_train_split", "dataset_test_split"
SPLITS = {TRAIN_SPLIT: ["train"], TEST_SPLIT: ["test"]}
TRL_REWARDS = ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward")

Flag = tuple[str, Sequence[str]]
"""Name of a flag, and its values."""


def translate_words(words: Sequence[str], settings: Collection[str]) -> list[str]:
    """Translate TRL's flags in a command to those of rewardlab, for a verb with these settings.

    As in TRL's scripts, the split `train` of a data set is read, and the split `test` if evaluation is enabled.

    >>> translate_words(["--model_name_or_path", "M", "--reward_funcs", "my.code.brief"], ["model", "reward"])
    ['--model', 'M', '--reward', 'my.code:brief']
    """
    flags = [(_rewardlab_name(name, settings), name, values) for name, values in _flags(words)]
    stated = {name: values for _, name, values in flags}
    translated = []
    for ours, name, values in flags:
        if name in (*IMPLIED, *SPLITS) and name not in settings:
            continue
        translated += [*([f"--{ours}"] if name else []), *_values(name, values, stated)]
    if "dataset_name" in stated and "eval_data" in settings and "eval_data" not in stated and _evaluates(stated):
        held_out = [split for name in stated["dataset_name"] if (split := _split(name, stated, TEST_SPLIT)) != name]
        translated += ["--eval_data", *held_out] if held_out else []
    return translated


def translate_config(config: Mapping[str, Any], settings: Collection[str]) -> dict[str, Any]:
    """Translate TRL's names of settings in the mapping of a YAML file."""
    translated: dict[str, Any] = {}
    for name, value in config.items():
        if name in (*IMPLIED, *SPLITS) and name not in settings:
            continue
        ours = _rewardlab_name(name, settings)
        if name in ("reward_funcs", "dataset_name"):
            splits = {key: [config[key]] for key in SPLITS if key in config}
            value = _values(name, value if isinstance(value, list) else [value], splits)
        if ours == "reward" and ours in translated:
            value = [*translated[ours], *(value if isinstance(value, list) else [value])]
        translated[ours] = value
    return translated


def _flags(words: Sequence[str]) -> Iterator[Flag]:
    """Yield each flag with its values. Words before the first flag have the name ""."""
    name, values = "", []
    for word in words:
        if word.startswith("--"):
            if name or values:
                yield name, values
            name, sign, value = word[2:].partition("=")
            values = [value] if sign else []
        else:
            values.append(word)
    if name or values:
        yield name, values


def _rewardlab_name(name: str, settings: Collection[str]) -> str:
    return next((ours for ours in ALIASES.get(name, ()) if ours in settings), name)


def _values(name: str, values: Sequence[str], stated: Mapping[str, Sequence[str]]) -> list[str]:
    """Convert the values of TRL's setting `name` to rewardlab's form."""
    if name == "reward_funcs":
        return [_reward(value) for value in values]
    if name == "dataset_name":
        return [_split(value, stated, TRAIN_SPLIT) for value in values]
    return [*values]


def _split(source: str, stated: Mapping[str, Sequence[str]], which: str) -> str:
    """Return `source:split` with the stated split, by default train or test. A file is returned unchanged."""
    is_complete = ":" in source or format_of(source) in SUFFIXES or Path(source, "state.json").exists()
    return source if is_complete else f"{source}:{stated.get(which, SPLITS[which])[0]}"


def _reward(function: str) -> str:
    """Convert a reward function of TRL's scripts (a name or dotted path) to `package.module:function`."""
    if function in TRL_REWARDS:
        return f"trl.rewards:{function}"
    module, _, name = function.rpartition(".")
    return f"{module}:{name}" if module and ":" not in function and "/" not in function else function


def _evaluates(stated: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the flags enable evaluation during training."""
    return [*stated.get("eval_strategy", ["no"])] not in (["no"], [])


ONCE = ("data",)
"""Settings with one value that must not be repeated, because argparse would silently drop the first value."""


class Extend(argparse.Action):
    """Argparse action that reads `--data a --data b` as `--data a b`. Flags replace a default or YAML list."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Append the values to those of earlier flags."""
        values_before, added = vars(namespace)[self.dest], list(values or ())
        setattr(namespace, self.dest, added if values_before is self.default else [*values_before, *added])


class Once(argparse.Action):
    """Argparse action of a setting that must not be repeated."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Store the value. Raise `UsageError` for a second value."""
        value_before = vars(namespace)[self.dest]
        if value_before is not self.default:
            raise UsageError(f"--{self.dest} takes one file here, got {value_before} and {values}; give one of them")
        setattr(namespace, self.dest, values)


class SettingsParser(TrlParser):
    """Parser of a verb's settings, from a YAML file and flags."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument. Repeating it extends a list, or is an error for a setting in `ONCE`."""
        for option in DECLARED:
            options.pop(option, None)
        if "action" not in options and options.get("nargs") in ("+", "*"):
            options["action"] = Extend
        elif "action" not in options and names and names[0].lstrip("-") in ONCE:
            options["action"] = Once
        if options.get("type") is string_to_bool:  # True, False, or the flag alone; of `bool | None` too
            options = {"nargs": "?", "const": True} | options
        return super().add_argument(*names, **options)

    def set_defaults_with_config(self, **kwargs: Any) -> list[str]:
        """Set defaults from a YAML file with rewardlab's or TRL's names of settings."""
        values = translate_config(kwargs, [action.dest for action in self._actions])
        for group in self.dataclass_types:
            for name in values.keys() & declarations(group).keys():
                values[name] = _config_value(values[name], declarations(group)[name], issubclass(group, Settings))
        return super().set_defaults_with_config(**values)

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse the arguments, and check types and ranges before dataclasses are created from them."""
        values, rest = super().parse_known_args(args, namespace)
        settings = vars(values)
        for action in self._actions:
            _check_value(action, settings.get(action.dest))
        for group in self.dataclass_types:
            check_ranges(group, settings)
        return values, rest

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the message. Argparse would print the usage of all settings."""
        raise UsageError(message)


KINDS = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}
"""Types of settings, and their names in messages."""
ACCEPTED = {bool: (bool, int, str), int: (int, float, str), float: (int, float, str), str: (str,)}
"""Type of a setting -> types of its value in a YAML file. Text is parsed as that of a flag."""


def _config_value(value: Any, declared: Field, is_ours: bool) -> Any:
    """Return a value of a YAML file in the form of a flag's value; of a mapping NAME=VALUE, and of null the default.

    Raise `UsageError` for a value of another type, since YAML does not read `yes`, `off`, `2024` and `2024-11-28` as
    text. Trainer arguments (not `is_ours`) may have further types where they accept text, and null is a value.
    """
    is_list = get_origin(declared.type) is list
    kind = get_args(declared.type)[0] if is_list else declared.type
    if kind not in ACCEPTED or (kind is str and not is_ours):
        return value
    if value is None:
        return value if is_list or kind is str or not is_ours else declared.default
    if isinstance(value, dict) and kind is str:
        named = [f"{name}={item}" for name, item in value.items()]
        return named if is_list else ",".join(named)
    for item in value if is_list and isinstance(value, list) else [value]:
        if type(item) not in ACCEPTED[kind]:
            remedy = "; put the text in quotes" if kind is str else ""
            raise UsageError(f"--{declared.name} must be {KINDS[kind]}, got {item!s:.60}{remedy}")
    return str(value) if kind is bool else value


def _check_value(action: argparse.Action, value: Any) -> None:
    """Raise `UsageError` for a YAML value of a wrong type or outside the choices. Argparse checks only flags."""
    if action.nargs is None and action.type in (int, float, str) and isinstance(value, list):
        raise UsageError(f"--{action.dest} takes one value, got the list {value}")
    if action.type is int and isinstance(value, float):
        raise UsageError(f"--{action.dest} must be a whole number, got {value}")
    if action.choices and value is not None and not isinstance(value, list) and value not in action.choices:
        remedy = "; put the text in quotes" if isinstance(value, bool) else ""  # YAML's `no` and `off`
        choices = ", ".join(map(str, action.choices))
        raise UsageError(f"--{action.dest} must be one of {choices}, got '{value}'{remedy}")
