"""Ensemble of reward models, optionally with a penalty on their disagreement."""

from dataclasses import dataclass

from ...registry import Kind
from ...registry.settings import Rule, Settings, setting
from .combination import parse_rule


def ensemble() -> Kind:
    """r(x, y) = mean_m z_m - λ std_m z_m for a pessimism λ, or another combination of standardised rewards z_m."""
    return Kind(__name__, "model:load_ensemble", "training:EnsembleTraining", EnsembleSettings, reads_data=False)


@dataclass
class MemberSettings(Settings):
    """Settings of reward models that combine trained reward models."""

    rules = (
        Rule(
            lambda settings: len(settings.members) < 2,
            "an ensemble or a boosted reward model needs two or more --members, got {members}",
        ),
    )
    members: list[str] = setting(
        [], "Reward models of an ensemble, or stages of a boosted model.", group="Several objectives, heads and members"
    )


@dataclass
class CombinationSettings(Settings):
    """Settings of the rule that combines the rewards of the members."""

    combine: str = setting(
        "mean",
        "Combination of heads or members: mean, min, mean_std(weight=1), softmin(beta=2), brme(share=0.5).",
        group="Several objectives, heads and members",
    )

    def validate(self) -> None:
        """Raise `UsageError` for invalid settings, among them a rule that does not exist."""
        super().validate()
        parse_rule(self.combine)


@dataclass
class EnsembleSettings(MemberSettings, CombinationSettings):
    """Settings of an ensemble of trained reward models."""

    rules = (
        Rule(
            lambda settings: any("," in member for member in settings.members),
            "--members {members}: a comma separates the members of an ensemble; rename the folder with a comma",
        ),
    )
