"""Options of config.json, and their plausibility checks against the weights beside it before a model is allocated."""

from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..errors import UNREADABLE, DataError
from ..io.checked_files import from_json

FACTOR = 64
"""Factor by which a matrix may exceed the weights: packed weights hold 8 numbers in one, ALBERT factorises matrices."""
LAYERS = 10_000
HEADS = ("num_attention_heads", "num_key_value_heads")


def text_option(config: Any, name: str) -> Any:
    """Return an option of the language model in a config of Transformers; None if its architecture has none."""
    return getattr(config.get_text_config(), name, None)


def check_claims(config: Any, source: str) -> None:
    """Raise `DataError` if config.json claims larger matrices, or more layers, than the folder's weights hold."""
    numbers = stored_numbers(Path(source))
    if numbers and (name := oversized_value(config, numbers)):
        raise DataError(
            f"{source}: config.json says {name}, and the weights beside it hold {numbers:,} numbers in all; "
            "give the config.json that belongs to the weights"
        )


def check_layers(source: str) -> None:
    """Raise `DataError` if config.json has more layers than any model: Transformers builds a list of all of them."""
    path = Path(source) / "config.json"
    try:
        values = from_json(path.read_text(encoding="utf-8"))
        parts = [section for section in (values, *values.values()) if isinstance(section, dict)]
    except UNREADABLE:
        return  # loading the config raises the proper error
    for name, value in ((name, value) for part in parts for name, value in part.items()):
        if name.endswith(("layers", "n_layer")) and isinstance(value, int | float) and abs(value) > LAYERS:
            raise DataError(
                f"{path}: {name} = {value} exceeds the limit of {LAYERS:,}; the file may be damaged, restore it"
            )


def stored_numbers(folder: Path) -> int:
    """Return the number of elements in a folder's safetensors files; 0 if there are none, or one is damaged."""
    numbers = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt") as tensors:
                numbers += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        except (SafetensorError, OSError):
            return 0
    return numbers


def oversized_value(config: Any, numbers: int) -> str:
    """Return the first config value that implies more than `numbers` weights, as `name = value`; empty if none does.

    >>> from transformers import LlamaConfig
    >>> oversized_value(LlamaConfig(vocab_size=2**40, hidden_size=32), 10_000)
    'vocab_size = 1099511627776'
    """
    width, head = _positive_integer(config, "hidden_size"), _positive_integer(config, "head_dim") or 1
    sizes = {"hidden_size": width, "num_hidden_layers": FACTOR * _positive_integer(config, "num_hidden_layers") * width}
    sizes |= {name: _positive_integer(config, name) * width for name in ("vocab_size", "intermediate_size", "head_dim")}
    sizes |= {name: _positive_integer(config, name) * head * width for name in HEADS}
    largest = (name for name, size in sizes.items() if size > FACTOR * numbers)
    return next((f"{name} = {_positive_integer(config, name)}" for name in largest), "")


def _positive_integer(config: Any, name: str) -> int:
    value = text_option(config, name)
    return value if isinstance(value, int) else 0
