"""The settings of reward models that say several things of an answer: objectives, heads, members."""

from dataclasses import dataclass

from ....rm.errors import UsageError
from ....rm.models.ensemble.combination import Rule, combine_by
from ...settings.fields import Settings, changed_settings, setting
from ...settings.specs import parse_spec

LEARNED, POSITIVE = "learned", "learned_positive"


@dataclass
class SeveralConfig(Settings):
    """Several objectives (--kind scalar --objectives), heads (multi_head) or members (ensemble, boosted)."""

    weights: str | None = setting(
        "Weights of objectives as helpful=0.7,harmless=0.3; or learned, or learned_positive.",
        group="Several objectives, heads and members",
        default=None,
    )
    regression_weight: float = setting("Weight of the squared error of scores beside the loss of pairs.", default=1.0)
    members: list[str] = setting(
        "Trained reward models of an ensemble, or stages of a boosted model in order.", default_factory=list
    )
    combine: str = setting(
        "Combination of heads or members: mean, min, mean_std(weight=1), softmin(beta=2), brme(share=0.5).",
        default="mean",
    )
    heads: int = setting("Number of heads of --kind multi_head, each with a mean and a standard deviation.", default=5)
    head_form: str = setting(
        "What the heads learn.", choices=("regression", "bradley_terry"), advanced=True, default="regression"
    )
    head_steps: int = setting("Optimizer steps of the heads on a frozen trunk.", advanced=True, default=300)
    head_learning_rate: float = setting("Learning rate of the heads.", advanced=True, default=1e-2)
    head_bootstrap: bool = setting(
        "Train every head on its own bootstrap sample of the pairs.", advanced=True, default=True
    )

    def validate(self, kind: str, objectives: int) -> None:
        """Refuse what belongs to another kind of reward model."""
        changed = changed_settings(self)
        owners = {"members": "ensemble", "weights": "scalar", "regression_weight": "scalar"}
        for name in changed:
            owner = owners.get(name, "multi_head")
            if kind != owner and (name, kind) not in (("combine", "ensemble"), ("members", "boosted")):
                raise UsageError(f"--{name} belongs to --kind {owner}, got {kind}")
        if (self.weights or "regression_weight" in changed) and objectives < 2:
            raise UsageError(
                "--weights and --regression_weight belong to several objectives; name them with --objectives"
            )
        if kind == "ensemble" and (commas := [member for member in self.members if "," in member]):
            raise UsageError(f"--members {commas[0]}: a comma separates the members of an ensemble; rename the folder")
        if kind in ("ensemble", "boosted") and len(self.members) < 2:
            article = "an" if kind == "ensemble" else "a"
            raise UsageError(f"{article} {kind} reward model has two or more --members, got {self.members}")
        self.rule()

    def rule(self) -> Rule:
        """How members are combined."""
        spec = parse_spec(self.combine)
        try:
            rule = Rule(spec.name, {name: float(value) for name, value in spec.arguments.items()})
        except ValueError as error:
            raise UsageError(f"--combine {self.combine}: its arguments are numbers") from error
        combine_by(rule)
        return rule
