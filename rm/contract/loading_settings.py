"""Settings of reward models of other software, which have no scoring contract: each is declared once, for all verbs."""

from pathlib import Path
from typing import Any

from ..registry.settings import setting
from .scoring_contract import FILE


def label_setting() -> Any:
    """Return the setting of the output that is the reward."""
    return setting(None, "Which output of a classifier without a scoring contract is the reward.")


def bos_setting(**declared: str) -> Any:
    """Return the setting of the contract's BOS, with a group or a setting that it requires."""
    return setting(
        None,
        "BOS of a model without a scoring contract: as the chat template writes it (TRL), or once, also where that "
        "writes none (reward-bench); by default as in the software that trained it, else as its tokenizer does.",
        advanced=True,
        **declared,
    )


def eos_setting(**declared: str) -> Any:
    """Return the setting of the contract's EOS, with a group or a setting that it requires."""
    return setting(
        None,
        "EOS of a model without a scoring contract: as the chat template writes it (TRL), or once, also where that "
        "writes none (OpenRLHF); by default as in the software that trained it, else once if the template closes no "
        "turn.",
        advanced=True,
        **declared,
    )


def edges(config: Any) -> dict[str, Any]:
    """Return the loading options `bos` and `eos` that the user set."""
    return {name: vars(config)[name] for name in ("bos", "eos") if vars(config).get(name) is not None}


def reading(config: Any) -> dict[str, Any]:
    """Return the loading options of a verb with the settings of this module, where the user set them."""
    return edges(config) | ({} if config.objective is None else {"objective": config.objective})


def has_contract(source: str) -> bool:
    """Return whether a model is a folder with a scoring contract."""
    return (Path(source) / FILE).exists()
