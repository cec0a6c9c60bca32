"""Settings of ensembles, and of other reward models with several members."""

from dataclasses import dataclass

from ...errors import UsageError
from ...registry.settings import Rule, Settings, setting
from ...registry.specs import parse_spec
from .combination import Rule as Combination
from .combination import combine_by


@dataclass
class MemberSettings(Settings):
    """Settings of reward models that combine trained reward models."""

    rules = (
        Rule(
            lambda settings: len(settings.members) < 2,
            "an ensemble or a boosted reward model has two or more --members, got {members}",
        ),
    )
    members: list[str] = setting(
        [],
        "Trained reward models of an ensemble, or stages of a boosted model in order.",
        group="Several objectives, heads and members",
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
        combination(self.combine)


@dataclass
class EnsembleSettings(MemberSettings, CombinationSettings):
    """Settings of an ensemble of trained reward models."""

    rules = (
        Rule(
            lambda settings: any("," in member for member in settings.members),
            "--members {members}: a comma separates the members of an ensemble; rename the folder",
        ),
    )


def combination(text: str) -> Combination:
    """Parse a rule, such as `mean_std(weight=1)`; raise a `UsageError` for an unknown one."""
    spec = parse_spec(text)
    try:
        rule = Combination(spec.name, {name: float(value) for name, value in spec.arguments.items()})
    except ValueError as error:
        raise UsageError(f"--combine {text}: its arguments are numbers") from error
    combine_by(rule)
    return rule
