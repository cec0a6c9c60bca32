"""Aliases: names of settings in TRL's scripts and Transformers' trainers, translated to rewardlab's names."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...rm.data.readers import SUFFIXES, format_of

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
    flags = [(_own_name(name, settings), name, values) for name, values in _flags(words)]
    stated = {name: values for _, name, values in flags}
    translated = []
    for own, name, values in flags:
        if name in (*IMPLIED, *SPLITS) and name not in settings:
            continue
        translated += [*([f"--{own}"] if name else []), *_values(name, values, stated)]
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
        own = _own_name(name, settings)
        if name in ("reward_funcs", "dataset_name"):
            splits = {key: [config[key]] for key in SPLITS if key in config}
            value = _values(name, value if isinstance(value, list) else [value], splits)
        if own == "reward" and own in translated:
            value = [*translated[own], *(value if isinstance(value, list) else [value])]
        translated[own] = value
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


def _own_name(name: str, settings: Collection[str]) -> str:
    return next((own for own in ALIASES.get(name, ()) if own in settings), name)


def _values(name: str, values: Sequence[str], stated: Mapping[str, Sequence[str]]) -> list[str]:
    if name == "reward_funcs":
        return [_reward(value) for value in values]
    if name == "dataset_name":
        return [_split(value, stated, TRAIN_SPLIT) for value in values]
    return [*values]


def _split(source: str, stated: Mapping[str, Sequence[str]], which: str) -> str:
    """Return `source:split` with the stated split, by default train or test. A file is returned unchanged."""
    whole = ":" in source or format_of(source) in SUFFIXES or Path(source, "state.json").exists()
    return source if whole else f"{source}:{stated.get(which, SPLITS[which])[0]}"


def _reward(function: str) -> str:
    """Convert a reward function of TRL's scripts (a name or dotted path) to `package.module:function`."""
    if function in TRL_REWARDS:
        return f"trl.rewards:{function}"
    module, _, name = function.rpartition(".")
    return f"{module}:{name}" if module and ":" not in function and "/" not in function else function


def _evaluates(stated: Mapping[str, Sequence[str]]) -> bool:
    return [*stated.get("eval_strategy", ["no"])] not in (["no"], [])
