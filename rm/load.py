"""Load reward models by the kind in their scoring contract, and check checksums and golden scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .contract.golden_scores import GOLDEN, check_files, check_golden
from .contract.scoring_contract import FILE, Edge, ScoringContract, load_contract
from .errors import DataError, UsageError, did_you_mean
from .registry import kind_of, names
from .types import RewardModel


def load_reward_model(
    source: str,
    *,
    check: bool = True,
    objective: str | None = None,
    bos: Edge | None = None,
    eos: Edge | None = None,
    **options: Any,
) -> RewardModel:
    """Load the reward model in a folder by the kind its contract names; other paths and Hub ids load as `scalar`.

    `objective`, `bos` and `eos` are for models without a scoring contract: the output that is the reward, and the
    policies of BOS and EOS. With `check`, raise `CheckFailed` if the weights differ from the saved checksums or do not
    reproduce the golden scores (rewards saved with the model).
    """
    folder, (contract, kind) = Path(source), contract_and_kind(source)
    if check:
        check_files(folder)
    settings = {"objective": objective, "bos": bos, "eos": eos}
    stated = {name: value for name, value in settings.items() if value is not None}
    if contract:
        _refuse_contract_settings(source, contract, stated)
    model = kind_of(kind).load(source, **options, **({} if contract else stated))
    if check and (folder / GOLDEN).exists():
        check_golden(model, folder)
    return model


def contract_and_kind(source: str) -> tuple[ScoringContract | None, str]:
    """Return a folder's contract, if any, and its kind; raise an error for a damaged contract or unknown kind."""
    folder = Path(source)
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise UsageError(f"'{source[:60]}' is not a folder ({error.strerror}); give a model's folder") from error
    if is_folder and not any((folder / name).exists() for name in (FILE, "config.json", "adapter_config.json")):
        raise DataError(f"{source}: neither {FILE} nor config.json in it; give the folder of a trained reward model")
    contract = load_contract(folder) if (folder / FILE).exists() else None
    kind = contract.kind if contract else "scalar"
    if kind not in names("rm.kinds"):  # only registered kinds are imported: a name from a file must not run other code
        raise DataError(f"{folder / FILE}: unknown kind '{kind}'; {did_you_mean(kind, names('rm.kinds'))}")
    return contract, kind


def _refuse_contract_settings(source: str, contract: ScoringContract, stated: Mapping[str, str]) -> None:
    fixed = {"objective": ", ".join(contract.objectives), "bos": contract.bos, "eos": contract.eos}
    for name, value in stated.items():
        if value != fixed[name]:
            raise UsageError(
                f"--{name} {value}: the contract of {source} says {fixed[name]}; remove --{name}, which is for "
                "models without a contract"
            )
