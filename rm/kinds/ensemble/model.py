"""Ensemble of reward models, optionally with a penalty on their disagreement."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...contract.golden_scores import GOLDEN, read_golden
from ...contract.scoring_contract import FILE, ScoringContract, load_contract
from ...errors import UNREADABLE, DataError, UsageError
from ...io.checked_files import from_json
from ...load import load_reward_model
from ...types import Example, RewardModel, content_hash
from .combination import MemberRewards, MemberRule, UncertainRewardModel, combine_by

SETTINGS = "ensemble.json"


class EnsembleRewardModel(UncertainRewardModel):
    """r(x, y) = mean_m z_m - λ std_m z_m,  z_m = (r_m - μ_m) / σ_m      Coste et al. 2023, arXiv:2310.02743, eq. 4

    r_m is the reward of member m, and λ >= 0 the pessimism.

    Members have different scales, so each reward is standardised by the mean and standard deviation of the member's
    golden scores (rewards saved with it) for the same objective. Members without golden scores are not standardised. A
    `rule` of `rm.kinds.ensemble.combination` replaces this combination of the z_m.
    """

    def __init__(
        self,
        members: Sequence[RewardModel],
        names: Sequence[str],
        pessimism: float = 0.0,
        *,
        rule: MemberRule | None = None,
    ):
        objectives = {member.contract.objectives for member in members}
        if len(members) < 2 or len(objectives) != 1:
            raise UsageError(f"ensembles need two or more members with the same objectives, got {sorted(objectives)}")
        if not pessimism >= 0:
            raise UsageError(f"pessimism must be >= 0, got {pessimism}")
        if rule is not None and pessimism:
            raise UsageError(f"an ensemble takes a pessimism or a rule, not both; got {pessimism} and '{rule.name}'")
        super().__init__(rule or MemberRule("mean_std", {"weight": pessimism}))
        self.members, self.names, self.pessimism = list(members), list(names), pessimism
        self.scales = [_scale(Path(name)) for name in names]
        hashes = [member.contract.hash() for member in members]
        self.settings: dict[str, Any] = {"rule": rule_row(rule)} if rule else {"pessimism": pessimism}
        self.contract = ScoringContract(
            kind="ensemble",
            objectives=objectives.pop(),
            dtype="float64",
            backbone=content_hash([hashes, self.settings if rule else pessimism]),
        )

    def member_rewards(self, examples: Sequence[Example]) -> MemberRewards:
        """Return every member's standardised rewards [members, N, K]."""
        pairs = zip(self.members, self.scales, strict=True)
        return MemberRewards(np.stack([(member.rate(examples) - mean) / sd for member, (mean, sd) in pairs]))

    def save(self, folder: Path) -> None:
        """Save the members' paths, the combination rule, and the contract, but not the members."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"members": self.names} | self.settings
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        self.contract.save(folder)


def rule_row(rule: MemberRule) -> dict[str, Any]:
    """Return a rule as JSON; infinite numbers become text, since JSON has no infinity."""
    numbers = {name: value if np.isfinite(value) else str(value) for name, value in rule.arguments.items()}
    return {"name": rule.name, **numbers}


def rule_of(row: Mapping[str, Any]) -> MemberRule:
    """Parse the JSON that `rule_row` wrote."""
    rule = MemberRule(str(row["name"]), {name: float(value) for name, value in row.items() if name != "name"})
    combine_by(rule)
    return rule


def _scale(folder: Path) -> tuple[Any, Any]:
    """Return mean and standard deviation of a member's golden scores, each [K]; 0 and 1 without golden scores."""
    golden = folder / GOLDEN
    if not golden.exists():
        return 0.0, 1.0
    _, rewards = read_golden(folder)
    deviations = rewards.std(axis=0)
    return rewards.mean(axis=0), np.where(deviations > 0, deviations, 1.0)


def load_ensemble(
    source: str, *, pessimism: float | None = None, rule: MemberRule | None = None, **options: Any
) -> EnsembleRewardModel:
    """Load the ensemble in a folder, or create one from comma-separated paths: `runs/a,runs/b,runs/c`."""
    folder = Path(source)
    saved: dict[str, Any] = {}
    if (folder / FILE).exists():
        try:
            saved = from_json((folder / SETTINGS).read_text(encoding="utf-8"))
            names = [str(name) for name in saved["members"]]
            rule_kept = rule_of(saved["rule"]) if "rule" in saved else None
            weight = saved.get("pessimism", 0.0)
            float(weight)  # validated only: the stored value is part of the contract's hash and must not change type
        except UNREADABLE as error:
            raise DataError(f"{folder / SETTINGS}: not the settings of an ensemble ({error}); rebuild it") from error
    else:
        names = [str(Path(name).resolve()) if Path(name).exists() else name for name in source.split(",")]
        rule_kept, weight = None, 0.0
    if pessimism is not None or rule is not None:
        rule_kept, weight = rule, pessimism or 0.0
    model = EnsembleRewardModel([load_reward_model(name, **options) for name in names], names, weight, rule=rule_kept)
    if saved and model.contract != load_contract(folder):
        raise DataError(f"{source}: its members have changed since it was built; build the ensemble again")
    return model
