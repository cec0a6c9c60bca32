"""What a policy's training remembers beside the policy, in a checkpoint's folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..rm.errors import DataError

FORMULAS, TENSORS = "algorithm.json", "beside.pt"


def save_state(folder: Path, formulas: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """The formulas' state as JSON; critic, optimizers and batches in a file that loads without running code."""
    (folder / FORMULAS).write_text(json.dumps(formulas, indent=1) + "\n", encoding="utf-8")
    torch.save(dict(tensors), folder / TENSORS)


def load_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same back; a checkpoint of another kind of training is a `DataError`."""
    try:
        formulas = json.loads((folder / FORMULAS).read_text(encoding="utf-8"))
        return formulas, torch.load(folder / TENSORS, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{folder}: no checkpoint of a policy's training ({error.filename} is missing)") from error
