"""Scalar reward model: any Hugging Face decoder or encoder backbone with a linear head on the sequence."""

from dataclasses import dataclass

from pydantic import FiniteFloat

from ...contract.scoring_contract import ScoringContract
from ...registry import Kind
from ...registry.settings import AT_LEAST_0, Rule, changed_settings, setting
from ...types import OVERALL
from .._settings import ClassifierSettings, EosSettings, LabelSettings, StreamSettings


def scalar() -> Kind:
    """r(x, y) = w · h_last, one reward per objective                            Ouyang et al. 2022, arXiv:2203.02155"""
    return Kind(
        __name__,
        "model:load_scalar",
        "training:scalar_training",
        ScalarSettings,
        contract=ScalarContract,
        by_gradient=True,
        padding_free=True,
    )


@dataclass
class PairLossSettings(LabelSettings, ClassifierSettings, EosSettings):
    """Settings of classifiers that are trained with a pair loss."""

    rules = (
        Rule(
            lambda settings: settings.teacher and len(settings.objectives) > 1,
            "--teacher has one reward, but the model has several, {objectives}; name one objective",
        ),
    )
    loss: str = setting(
        "bradley_terry", "Loss of pairs or lists, or file.py:function.", group="Model", registry="rm.losses"
    )
    teacher: str | None = setting(
        None,
        "Reward model to distil; --loss is soft_labels (the default with a teacher) or centred_mse.",
    )
    center_rewards_coefficient: float = setting(
        0.0, "Weight of (r_chosen + r_rejected)^2, which keeps rewards centred on 0.", range=AT_LEAST_0
    )


@dataclass
class ScalarSettings(PairLossSettings, StreamSettings):
    """Settings of a scalar reward model with one reward per objective."""

    several = True
    rules = (
        Rule(
            lambda settings: (
                len(settings.objectives) < 2 and (settings.weights or "regression_weight" in changed_settings(settings))
            ),
            "--weights and --regression_weight need several objectives; name them with --objectives",
        ),
        Rule(
            lambda settings: settings.weights is not None and OVERALL in settings.objectives,
            f"'{OVERALL}' is the sum that --weights defines; remove it from --objectives, or remove --weights",
        ),
        Rule(
            lambda settings: settings.stream and settings.weights,
            "--weights need the rewards of all pairs; remove --stream or --weights",
        ),
        Rule(
            lambda settings: settings.stream and not settings.model,
            "without --model a tokenizer is trained on all texts, which --stream does not load; add --model",
        ),
    )
    weights: str | None = setting(
        None,
        "Weights of objectives as helpful=0.7,harmless=0.3; or learned, or learned_positive.",
        group="Several objectives, heads and members",
    )
    regression_weight: float = setting(
        1.0, "Weight of the squared error of scores, relative to the loss of pairs.", range=AT_LEAST_0
    )


@dataclass(frozen=True, kw_only=True)
class ScalarContract(ScoringContract):
    """Scoring contract fields: reward normalisation of other software that was folded into the head."""

    reward_mean: FiniteFloat | None = None
    """Mean that normalisation subtracts from the reward, in units of the unnormalised reward."""
    reward_std: FiniteFloat | None = None
    """Standard deviation by which normalisation then divides the reward."""
