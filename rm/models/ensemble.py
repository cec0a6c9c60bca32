"""An ensemble: several reward models asked about the same answers, with their disagreement as a penalty if wanted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint import load_reward_model
from ..contract import FILE, ScoringContract, load_contract
from ..errors import DataError, UsageError
from ..types import Example, RewardModel, content_hash

SETTINGS = "ensemble.json"


class EnsembleRewardModel:
    """r(x, y) = mean_m z_m - λ std_m z_m,  z_m = (r_m - μ_m) / σ_m      Coste et al. 2023, arXiv:2310.02743, eq. 4

    Members have scales of their own, so each reward is standardised by its member's mean and standard deviation over
    the member's golden rewards; a member without golden rewards enters as it is. λ >= 0 is the pessimism.
    """

    def __init__(self, members: Sequence[RewardModel], names: Sequence[str], pessimism: float = 0.0):
        objectives = {member.contract.objectives for member in members}
        if len(members) < 2 or len(objectives) != 1:
            raise UsageError(f"an ensemble has two or more members with the same objectives, got {sorted(objectives)}")
        if not pessimism >= 0:
            raise UsageError(f"pessimism is a weight >= 0, got {pessimism}")
        self.members, self.names, self.pessimism = list(members), list(names), pessimism
        self.scales = [_scale(Path(name)) for name in names]
        hashes = [member.contract.hash() for member in members]
        self.contract = ScoringContract(
            kind="ensemble", objectives=objectives.pop(), dtype="float64", backbone=content_hash([hashes, pessimism])
        )

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Rewards [N, K]."""
        rewards = self.spread(examples)
        return rewards.mean(axis=0) - self.pessimism * rewards.std(axis=0)

    def spread(self, examples: Sequence[Example]) -> np.ndarray:
        """Every member's standardised rewards [members, N, K]."""
        pairs = zip(self.members, self.scales, strict=True)
        return np.stack([(member.rate(examples) - mean) / deviation for member, (mean, deviation) in pairs])

    def save(self, folder: Path) -> None:
        """The members' paths and the contract; not the members."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"members": self.names, "pessimism": self.pessimism}
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        self.contract.save(folder)


def _scale(folder: Path) -> tuple[float, float]:
    """Mean and standard deviation of a member's golden rewards; 0 and 1 where it has none."""
    golden = folder / "golden.jsonl"
    if not golden.exists():
        return 0.0, 1.0
    rows = [json.loads(line) for line in golden.read_text(encoding="utf-8").split("\n") if line]
    rewards = np.array([row["rewards"] for row in rows], float)
    return float(rewards.mean()), float(rewards.std()) or 1.0


def ensemble(source: str, *, pessimism: float | None = None, **options: Any) -> EnsembleRewardModel:
    """The ensemble in a folder, or one of the paths that a comma parts: `runs/a,runs/b,runs/c`."""
    folder = Path(source)
    saved: dict[str, Any] = {}
    if (folder / FILE).exists():
        try:
            saved = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            names = [str(name) for name in saved["members"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder / SETTINGS}: not the settings of an ensemble ({error}); make it again") from error
    else:
        names = [str(Path(name).resolve()) if Path(name).exists() else name for name in source.split(",")]
    weight = saved.get("pessimism", 0.0) if pessimism is None else pessimism
    model = EnsembleRewardModel([load_reward_model(name, **options) for name in names], names, weight)
    if saved and model.contract != load_contract(folder):
        raise DataError(f"{source}: its members are not those it was made of; make the ensemble again")
    return model
