"""R2M: a reward model that also reads the policy's hidden states and is updated after every cycle of training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from ...policy.decoding.engines import language_model
from ...policy.rewards.r2m_controls import CONTROLS, R2MArguments, stale
from ...policy.rewards.r2m_online_updates import Anchor, OnlineR2M
from ...policy.step.forward import frozen_copy
from ...rm.contract.labelling import reward_labeller
from ...rm.errors import UsageError, did_you_mean
from ...rm.kinds.r2m.model import R2MRewardModel
from ...rm.kinds.scalar.model import ScalarRewardModel
from ...rm.load import load_reward_model
from ...rm.registry.specs import build, is_function
from ...rm.types import Labeller, RewardModel
from ._open import RunFacts
from .judge import labels

STALE, JUDGE = "stale", "judge"


def r2m(
    *,
    run: RunFacts,
    model: str,
    width: int = 0,
    zero_out: bool = False,
    control: str = "",
    labels: str = "",
    groups: int = 0,
    only: bool = True,
    learning_rate: float = 1e-6,
    alpha: float = 0.3,
    floor: float = 0.6,
    spread: str = "full",
    epsilon: float = 1e-6,
    pair_from: str = "annotation",
    objectives: Sequence[str] | str = (),
    batch_groups: int = 0,
    max_grad_norm: float = 1.0,
) -> OnlineR2M:
    """R2M on the scalar reward model in folder `model`          Huang et al. 2026, arXiv:2601.22664; `OnlineR2M`

    `width` is the width of the attention, by default that of the policy. `control` is a key of `r2m_controls.CONTROLS`,
    or "stale" for the states of the initial policy. With `labels`, a labeller compares the best and the worst
    completion of `groups` groups per cycle; other groups are left out of the update or, if `only` is False, compared by
    the model itself. `labels` is the folder of a reward model, a judge such as `judge(endpoint=URL, model=NAME)`, or
    package.module:factory of a reward model or labeller.
    """
    body = load_reward_model(model, **run.loading)
    if not isinstance(body, ScalarRewardModel):
        raise UsageError(f"{model}: R2M needs a scalar reward model, got kind {body.contract.kind}")
    policy_width = language_model(run.policy).config.get_text_config().hidden_size
    arguments = R2MArguments(
        learning_rate=learning_rate,
        alpha=alpha,
        floor=floor,
        spread=spread,
        epsilon=epsilon,
        pair_from=pair_from,  # type: ignore[arg-type]
        objectives=(objectives,) if isinstance(objectives, str) else tuple(objectives),
        batch_groups=batch_groups,
        max_grad_norm=max_grad_norm,
        seed=run.seed,
    )
    r2m_model = R2MRewardModel.on(body, policy_width, width or policy_width, zero_out=zero_out, seed=run.seed)
    return OnlineR2M(
        r2m_model, run.cycles, _apply_control(arguments, control, run), anchor=_anchor(labels, groups, only, run)
    )


def _apply_control(arguments: R2MArguments, control: str, run: RunFacts) -> R2MArguments:
    if control == STALE:
        return replace(arguments, reads=stale(frozen_copy(language_model(run.policy)), run.policy.encoder))
    if control and control not in CONTROLS:
        raise UsageError(f"unknown R2M control '{control}'; {did_you_mean(control, [*CONTROLS, STALE])}")
    return replace(arguments, **CONTROLS[control]) if control else arguments


def _anchor(labels: str, groups: int, only: bool, run: RunFacts) -> Anchor | None:
    """Return the labeller and the number of groups that it labels per cycle. None without `labels`."""
    if bool(labels) != bool(groups):
        raise UsageError(f"labels needs a labeller and a number of groups; got labels='{labels}' and groups={groups}")
    return Anchor(_open_labeller(labels, run), groups, only) if labels else None


def _open_labeller(source: str, run: RunFacts) -> Labeller:
    if source.partition("(")[0] == JUDGE:
        return build("apps.rewards", f"{labels.__module__}:{labels.__name__}{source.removeprefix(JUDGE)}", run=run)
    labeller: Any = build("policy", source) if is_function(source) else load_reward_model(source, **run.loading)
    if isinstance(labeller, RewardModel):  # own code returns a reward model or a labeller
        return reward_labeller(labeller)
    if not callable(labeller):
        raise UsageError(f"{source} returns {labeller!r}, which is neither a labeller nor a reward model")
    return cast(Labeller, labeller)
