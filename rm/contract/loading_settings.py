"""Settings for loading reward models of other software, without a scoring contract; shared by all commands."""

from pathlib import Path
from typing import Any

from ..registry.settings import setting
from .scoring_contract import FILE


def label_setting() -> Any:
    """Declare the setting for the label whose logit is the reward."""
    return setting(None, "Output that is the reward, for a classifier without a scoring contract (scoring.json).")


def bos_setting(**declared: str) -> Any:
    """Declare the setting of the BOS policy; `declared` may contain `group` and `requires`."""
    return setting(
        None,
        "BOS of a model without a scoring contract. template: only if the chat template writes it (TRL); once: always "
        "(reward-bench); default: as in the software that trained it, else as its tokenizer does.",
        advanced=True,
        **declared,
    )


def eos_setting(**declared: str) -> Any:
    """Declare the setting of the EOS policy; `declared` may contain `group` and `requires`."""
    return setting(
        None,
        "EOS of a model without a scoring contract. template: only if the chat template writes it (TRL); once: always "
        "(OpenRLHF); default: as in the software that trained it, else once if the template closes no turn.",
        advanced=True,
        **declared,
    )


def edges(config: Any) -> dict[str, Any]:
    """Return the loading options `bos` and `eos` that the user set."""
    return {name: vars(config)[name] for name in ("bos", "eos") if vars(config).get(name) is not None}


def loading_options(config: Any) -> dict[str, Any]:
    """Return the loading options that this module declares and the user set."""
    return edges(config) | ({} if config.objective is None else {"objective": config.objective})


def has_contract(source: str) -> bool:
    """Return whether a model is a folder with a scoring contract."""
    return (Path(source) / FILE).exists()
