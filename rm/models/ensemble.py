"""An ensemble: several reward models asked about the same completions, with their disagreement as a penalty if
wanted."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..contract.golden_scores import GOLDEN, load_reward_model, read_golden
from ..contract.scoring_contract import FILE, ScoringContract, load_contract
from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import from_json
from ..types import Example, RewardModel, content_hash
from ._combination import Rule, combine_by
from ._uncertain import MemberRewards, UncertainRewardModel

SETTINGS = "ensemble.json"


class EnsembleRewardModel(UncertainRewardModel):
    """r(x, y) = mean_m z_m - λ std_m z_m,  z_m = (r_m - μ_m) / σ_m      Coste et al. 2023, arXiv:2310.02743, eq. 4

    Members have scales of their own, so each reward is standardised by its member's mean and standard deviation over
    the member's golden rewards; a member without golden rewards enters as it is. λ >= 0 is the pessimism. A `rule` of
    `rm.models._combination` combines the z_m in another way.
    """

    def __init__(
        self, members: Sequence[RewardModel], names: Sequence[str], pessimism: float = 0.0, *, rule: Rule | None = None
    ):
        objectives = {member.contract.objectives for member in members}
        if len(members) < 2 or len(objectives) != 1:
            raise UsageError(f"an ensemble has two or more members with the same objectives, got {sorted(objectives)}")
        if not pessimism >= 0:
            raise UsageError(f"pessimism is a weight >= 0, got {pessimism}")
        if rule is not None and pessimism:
            raise UsageError(f"an ensemble has a pessimism or a rule, got {pessimism} and '{rule.name}'")
        super().__init__(rule or Rule("mean_std", {"weight": pessimism}))
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
        """Every member's standardised rewards [members, N, K]."""
        pairs = zip(self.members, self.scales, strict=True)
        return MemberRewards(
            np.stack([(member.rate(examples) - mean) / deviation for member, (mean, deviation) in pairs])
        )

    def save(self, folder: Path) -> None:
        """The members' paths, how they are combined, and the contract; not the members."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"members": self.names} | self.settings
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        self.contract.save(folder)


def rule_row(rule: Rule) -> dict[str, Any]:
    """A rule as JSON; an infinite number as text, which JSON has no number for."""
    numbers = {name: value if np.isfinite(value) else str(value) for name, value in rule.arguments.items()}
    return {"name": rule.name, **numbers}


def rule_of(row: Mapping[str, Any]) -> Rule:
    """The rule that `rule_row` wrote."""
    rule = Rule(str(row["name"]), {name: float(value) for name, value in row.items() if name != "name"})
    combine_by(rule)
    return rule


def _scale(folder: Path) -> tuple[float, float]:
    """Mean and standard deviation of a member's golden rewards; 0 and 1 where it has none."""
    golden = folder / GOLDEN
    if not golden.exists():
        return 0.0, 1.0
    _, rewards = read_golden(folder)
    return float(rewards.mean()), float(rewards.std()) or 1.0


def ensemble(
    source: str, *, pessimism: float | None = None, rule: Rule | None = None, **options: Any
) -> EnsembleRewardModel:
    """The ensemble in a folder, or one of the paths that a comma parts: `runs/a,runs/b,runs/c`."""
    folder = Path(source)
    saved: dict[str, Any] = {}
    if (folder / FILE).exists():
        try:
            saved = from_json((folder / SETTINGS).read_text(encoding="utf-8"))
            names = [str(name) for name in saved["members"]]
            rule_kept = rule_of(saved["rule"]) if "rule" in saved else None
            weight = saved.get("pessimism", 0.0)
            float(weight)  # which stays what it was, as it is part of the contract
        except UNREADABLE as error:
            raise DataError(f"{folder / SETTINGS}: not the settings of an ensemble ({error}); make it again") from error
    else:
        names = [str(Path(name).resolve()) if Path(name).exists() else name for name in source.split(",")]
        rule_kept, weight = None, 0.0
    if pessimism is not None or rule is not None:
        rule_kept, weight = rule, pessimism or 0.0
    model = EnsembleRewardModel([load_reward_model(name, **options) for name in names], names, weight, rule=rule_kept)
    if saved and model.contract != load_contract(folder):
        raise DataError(f"{source}: its members are not those it was made of; make the ensemble again")
    return model
