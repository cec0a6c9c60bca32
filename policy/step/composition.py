"""Construction of an `Algorithm` from the names of its formulas, and its check on a trial rollout."""

import functools
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...kernels.policy_loss import ClipRule
from ...rm.errors import UsageError
from ...rm.registry.specs import accepts_argument, build, parse_spec, signatures
from ..losses._kinds import AuxiliaryLoss, CompletionLossInputs, TokenLoss
from ..types import AdvantageEstimator, Rewards, Rollout, TokenEstimator, Transform
from .algorithm import Algorithm, Penalty, Scored
from .settings import AlgorithmSettings
from .step import completion_loss_inputs, shares_and_slopes


def build_algorithm(settings: AlgorithmSettings, components: Sequence[str]) -> Algorithm:
    """Build the algorithm from the named formulas and the weights of the reward components."""
    shares = _component_weights(settings, components)
    apart = accepts_argument("policy.advantages", settings.advantage, "weights")
    on_missing, _ = _missing_reward_rule(settings, separate=apart)
    kind = settings.kl_kind or ("k3" if settings.kl_place == "loss" else "k1")
    try:
        rule = _build_loss(settings.loss, settings.agents)
        auxiliary = rule if isinstance(rule, AuxiliaryLoss) else None
        return Algorithm(
            _estimator(settings, shares, separate=apart),
            auxiliary.rule if auxiliary else rule,
            build("policy.aggregations", settings.aggregation),
            shares=shares,
            apart=apart,
            on_missing=on_missing,
            penalty=Penalty(settings.kl, settings.kl_place, kind, settings.kl_corrected),
            entropy=settings.entropy,
            reward_transforms=_transforms(settings.reward_transform, settings.agents),
            advantage_transforms=_transforms(settings.advantage_transform, settings.agents),
            scheduler=build("policy.schedulers", settings.scheduler) if settings.scheduler else None,
            auxiliary=auxiliary,
            formulas={
                "advantage": settings.advantage,
                "rule": settings.loss,
                "aggregation": settings.aggregation,
                "scheduler": settings.scheduler or "",
            },
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def with_components(algorithm: Algorithm, settings: AlgorithmSettings, components: Sequence[str]) -> Algorithm:
    """Return the algorithm with weights for all components of all reward sources."""
    shares = _component_weights(settings, components)
    if [*shares.items()] == [*algorithm.shares.items()]:
        return algorithm
    try:
        advantage = _estimator(settings, shares, separate=True) if algorithm.apart else algorithm.advantage
        return replace(algorithm, shares=shares, advantage=advantage)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _estimator(settings: AlgorithmSettings, shares: Mapping[str, float], *, separate: bool) -> AdvantageEstimator:
    """Return the advantage estimator. With `separate`, the estimator also gets the weights of the reward components."""
    weights = {"weights": [share for share in shares.values() if share]} if separate and settings.weight else {}
    return build(
        "policy.advantages", settings.advantage, **weights, **_missing_reward_rule(settings, separate=separate)[1]
    )


def _missing_reward_rule(settings: AlgorithmSettings, *, separate: bool) -> tuple[str, dict[str, bool]]:
    """Return `Algorithm.on_missing` and the argument `partial` of the estimator.

    An estimator that gets the components separately and has no argument `partial`, such as `laser`, requires all.
    """
    if not separate:
        return settings.on_missing, {}
    if accepts_argument("policy.advantages", settings.advantage, "partial"):
        return settings.on_missing, {"partial": settings.on_missing != "strict"}
    if settings.on_missing == "sum":
        raise UsageError(
            f"--advantage {settings.advantage} needs all rewards of a completion and cannot sum some of them; "
            "remove --on_missing"
        )
    return "strict", {}


def _component_weights(settings: AlgorithmSettings, components: Sequence[str]) -> dict[str, float]:
    shares = dict.fromkeys(components, 1.0)
    for text in settings.weight:
        name, _, number = text.rpartition("=")
        try:
            shares[name] = float(number)
        except ValueError as error:
            raise UsageError(f"--weight is NAME=number, got '{text}'") from error
        if not math.isfinite(shares[name]):
            raise UsageError(f"--weight must be NAME=number with a finite number, got '{text}'")
    return shares


def _build_formula(folder: str, text: str, agents: int) -> Any:
    """Build a formula from its text. A formula with a parameter `agents` gets the number of agents."""
    return build(folder, text, **({"agents": agents} if accepts_argument(folder, text, "agents") else {}))


def _build_loss(text: str, agents: int) -> Any:
    """Build the loss from its text; raise `UsageError` if the result is not a loss."""
    rule = _build_formula("policy.losses", text, agents)
    if isinstance(rule, ClipRule | TokenLoss | AuxiliaryLoss):
        return rule
    more = signatures("policy.losses") if ":" in text else ""
    column, index = torch.tensor([-1.0, -2.0, -1.0, -2.0]), torch.arange(4)
    try:
        loss = rule(CompletionLossInputs(column, column, column, index // 2, index + 1, index % 2, size=2, base=column))
    except Exception as error:  # user functions raise arbitrary errors
        raise UsageError(
            f"--loss {text} is neither a clip rule nor a loss of whole completions ({error}){more}"
        ) from error
    if not (isinstance(loss, torch.Tensor) and loss.shape == (4,)):
        raise UsageError(
            f"--loss {text} is neither a clip rule nor a loss of whole completions: for four completions it returns "
            f"{loss!r}{more}"
        )
    return rule


def _transforms(texts: Sequence[str], agents: int) -> dict[str, Transform]:
    """Return the transforms by name. A second transform of the same name is called `name_2`."""
    transforms: dict[str, Transform] = {}
    for text in texts:
        transform, short = _build_formula("policy.transforms", text, agents), parse_spec(text).short
        if not isinstance(transform, Transform):
            raise UsageError(f"{text} returns {transform!r}, not a policy.types.Transform")
        often = 1 + sum(name.rpartition("_")[0] == short or name == short for name in transforms)
        transforms[short if often == 1 else f"{short}_{often}"] = transform
    return transforms


def check_formulas(algorithm: Algorithm, sizes: Sequence[int], fields: Collection[str]) -> None:
    """Check the formulas that do not depend on the reward components, before reward models are loaded."""
    if not algorithm.apart:
        bare = replace(algorithm, shares={}, reward_transforms={}, auxiliary=None)
        by_step = "steps" in algorithm.reads  # the sources, which are not open yet, may score steps
        check_composition(bare, RunInputs(("reward",), sizes, fields, process_rewards=by_step))


GROUPS, LONGEST, LARGEST = 4, 3, 16  # groups, tokens per completion, completions per group


class RunInputs(NamedTuple):
    """Description of the inputs that a training run provides to its formulas."""

    names: tuple[str, ...]
    """Names of the reward components."""
    sizes: Sequence[int]
    """Completions per group, in training and in evaluation."""
    fields: Collection[str]
    """Optional fields of `Rollout` that the run computes."""
    ensembles: Collection[str] = ()
    """Names of the reward components of ensembles."""
    watched: Collection[str] = ()
    """Names of the reward components that are logged but not trained on."""
    process_rewards: bool = False
    """Whether the run has process rewards, one per reasoning step."""
    step_names: tuple[str, ...] = ()
    """Names of the reward components of the source of process rewards."""


def check_composition(algorithm: Algorithm, inputs: RunInputs) -> None:
    """Raise `UsageError` if the formulas fail on trial rewards.

    The state of the formulas and of the random number generators does not change.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about trial values would mislead
        for size in sorted({min(size, LARGEST - size % 2) for size in inputs.sizes}):
            try:
                _run_trial(algorithm, inputs, size)
            except ValueError as error:
                raise UsageError(" ".join(str(error).split())) from error


def _run_trial(algorithm: Algorithm, inputs: RunInputs, size: int) -> None:
    rollout, rewards = trial_rollout(size, inputs.fields), trial_rewards(size, inputs)
    scored = _guarded_algorithm(algorithm, *rollout.response.shape)(rewards, rollout)
    if inputs.watched and scored.total[: 2 * size].isnan().any():
        raise ValueError(
            f"the trained reward depends on rewards named with --watch ({', '.join(inputs.watched)}); use --reward "
            "for them, with a --weight of 0 if only a transform reads them"
        )
    if not (scored.terminal or inputs.process_rewards or algorithm.penalty.beta or algorithm.entropy):
        raise ValueError("all rewards have weight 0, so nothing would be learned; set a --weight other than 0")
    if algorithm.auxiliary:
        algorithm.auxiliary.targets([*scored.rewards.values()][-1], rollout)
    if isinstance(algorithm.rule, TokenLoss):
        _check_token_loss(algorithm, algorithm.rule, scored, rollout)
    elif not isinstance(algorithm.rule, ClipRule):
        _check_loss(algorithm, scored, rollout, size)


# ---- trial inputs ----


def trial_rollout(size: int, fields: Collection[str]) -> Rollout:
    """Return a trial rollout with the requested fields: groups of completions of 1 to 3 tokens, one truncated."""
    N = GROUPS * size
    number = torch.arange(N * LONGEST).view(N, LONGEST)
    response = torch.arange(LONGEST) < 1 + torch.arange(N)[:, None] % LONGEST
    columns = {
        "tokens": number % 7,
        "logprobs": torch.where(response, -1.0, 0.0),
        "base": torch.where(response, -1.25, 0.0),
        "entropy": torch.where(response, 1.0 + number % 3, 0.0),
        "values": torch.zeros(N, LONGEST),
        "after": torch.zeros(N),
        "states": torch.stack([number % 5, number % 3], 2).float(),
        "prompt_logprobs": torch.full((N, 2), -1.5),
        "teacher": torch.where(response, -0.5, 0.0).masked_fill(torch.arange(N)[:, None] % 3 == 2, torch.nan),
        "head": lambda states: (states @ torch.arange(14.0).view(2, 7) / 10).log_softmax(1),
    }
    required = {name: column for name, column in columns.items() if name in fields}
    finished = torch.arange(N) != LONGEST - 1
    return Rollout(torch.arange(N) // size, response, finished)._replace(**required)


def trial_rewards(size: int, inputs: RunInputs) -> Rewards:
    """Return trial rewards of 0 or 1 for four groups: mixed, all equal, all but one missing, and all missing."""
    column = torch.full((GROUPS, size), torch.nan, dtype=torch.float64)
    column[0], column[1], column[2, 0] = 1.0 - torch.arange(size) % 2, 1.0, 1.0
    values = column.view(-1, 1).repeat(1, len(inputs.names))
    for index, name in enumerate(inputs.names):
        if name in inputs.watched:
            values[:, index] = torch.nan
    members = steps = None
    if inputs.ensembles:
        alone = torch.tensor([name not in inputs.ensembles for name in inputs.names])
        members = values[..., None].repeat(1, 1, 2)
        members[:, alone] = torch.nan
    if inputs.process_rewards:
        steps = torch.full((GROUPS * size, LONGEST), torch.nan, dtype=torch.float64)
        steps[:, 0] = 0.5
    return Rewards(values, inputs.names, steps, members, inputs.step_names)


# ---- checks of results ----


def _guarded_algorithm(algorithm: Algorithm, N: int, L: int) -> Algorithm:
    """Return a copy of the algorithm in its initial state that checks the result of each formula."""
    of_completions = functools.partial(_check_tensor, shapes=((N,),))
    of_tokens = functools.partial(_check_tensor, shapes=((N, L),))
    of_both = functools.partial(_check_tensor, shapes=((N,), (N, L)))
    guarded = replace(
        algorithm,
        on_missing="strict",  # a reward that is missing everywhere is noticed, also beside others
        reward_transforms=_guarded_transforms(algorithm.reward_transforms, functools.partial(_check_rewards, N=N)),
        advantage_transforms=_guarded_transforms(algorithm.advantage_transforms, of_both),
    )
    guarded.advantage = _with_readable_errors(_title(algorithm, "advantage"), algorithm.advantage, of_both)
    if isinstance(algorithm.advantage, TokenEstimator):
        guarded.advantage = replace(algorithm.advantage, estimate=guarded.advantage)
    guarded.aggregation = _with_readable_errors(_title(algorithm, "aggregation"), algorithm.aggregation, of_tokens)
    if algorithm.scheduler:
        guarded.scheduler = _with_readable_errors(
            _title(algorithm, "scheduler"), algorithm.scheduler, _pair_check(of_completions)
        )
    return guarded


ROLES = {"advantage": "the advantage estimator", "rule": "the loss"}


def _title(algorithm: Algorithm, field: str) -> str:
    """Return a formula's role and the name that the user gave it, for messages; `field` is a field of `Algorithm`."""
    role, name = ROLES.get(field, f"the {field}"), algorithm.formulas.get(field)
    return f"{role} '{name}'" if name else role


def _guarded_transforms(transforms: Any, check: Callable[[Any], str]) -> dict[str, Transform]:
    return {
        name: replace(
            transform, change=_with_readable_errors(f"the transform '{name}'", transform.change, _pair_check(check))
        )
        for name, transform in transforms.items()
    }


def _with_readable_errors(name: str, formula: Any, check: Callable[[Any], str]) -> Any:
    """Wrap a formula so that its errors become readable messages.

    The wrapper also raises an error if `check` finds a problem in the formula's result.
    """

    @functools.wraps(formula)
    def run(*arguments: Any) -> Any:
        try:
            result = formula(*arguments)
        except ValueError:
            raise
        except Exception as error:  # user functions raise arbitrary errors
            reason = (str(error).strip().splitlines() or [""])[0]
            raise ValueError(f"{name} fails on a trial rollout ({type(error).__name__}: {reason})") from error
        if problem := check(result):
            raise ValueError(f"{name} {problem}")
        return result

    return run


def _check_tensor(result: Any, shapes: Sequence[tuple[int, ...]]) -> str:
    """Return the problem of a formula's result that should be a tensor; empty if there is none."""
    expected = " or ".join(f"{[*shape]}" for shape in shapes)
    if not isinstance(result, Tensor):
        return f"returns {type(result).__name__} for trial completions, where a tensor {expected} is expected"
    if tuple(result.shape) not in shapes:
        return f"returns the shape {[*result.shape]} for trial completions, where {expected} is expected"
    if not result.isfinite().all():
        return "returns numbers that are not finite for trial rewards of which some are tied or missing"
    return ""


def _check_rewards(result: Any, N: int) -> str:
    """Return the problem of a formula's result that should be `Rewards`; empty if there is none."""
    if not isinstance(result, Rewards):
        return f"returns {type(result).__name__} for trial rewards, where policy.types.Rewards are expected"
    expected = [N, len(result.names)]
    if [*result.values.shape] != expected:
        return f"returns rewards of the shape {[*result.values.shape]}, where {expected} is expected"
    return "returns an infinite reward; a missing reward must be NaN" if result.values.isinf().any() else ""


def _pair_check(check: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a check of pairs (state, result) that applies `check` to the result."""

    def of_pair(result: Any) -> str:
        if not (isinstance(result, tuple) and len(result) == 2):
            return f"returns {type(result).__name__}, where the next state and the result are expected"
        return check(result[1])

    return of_pair


def _check_loss(algorithm: Algorithm, scored: Scored, rollout: Rollout, size: int) -> None:
    """Run a loss of whole completions on the inputs that the trainer would provide."""
    logprob, N = torch.where(rollout.response, -1.0, 0.0), len(rollout.finished)
    inputs = {"advantages": scored.advantage.float(), "row": torch.arange(N)}
    if rollout.base is not None:
        inputs["base"] = rollout.base
    weights = scored.weights.float()
    completions = completion_loss_inputs(logprob, rollout.response, weights, inputs, size, 0)
    check = functools.partial(_check_tensor, shapes=((N,),))
    name = _title(algorithm, "rule")
    share, slope = shares_and_slopes(_with_readable_errors(name, algorithm.rule, check), completions, weights.sum(1))
    if not (share.isfinite().all() and slope.isfinite().all()):
        raise ValueError(f"{name} has a gradient that is not finite for trial completions")


def _check_token_loss(algorithm: Algorithm, rule: TokenLoss, scored: Scored, rollout: Rollout) -> None:
    """Run a loss of single tokens forward and backward on synthetic log-probabilities."""
    logprob = torch.where(rollout.response, -1.0, 0.0).requires_grad_()
    name = _title(algorithm, "rule")
    old, weights = logprob.detach() - 0.1 * rollout.response, scored.weights.float()

    def compute(*arguments: Tensor) -> Tensor:
        return rule.total(*arguments, weights, rollout.response, rollout.finished)  # any mask of own completions

    with torch.enable_grad():
        loss = _with_readable_errors(name, compute, functools.partial(_check_tensor, shapes=((),)))(
            logprob, old, scored.advantage.float()
        )
        if not loss.requires_grad:
            raise ValueError(f"{name} does not depend on the log-probabilities, so it has no gradient")
        (gradient,) = torch.autograd.grad(loss, logprob)
    if not gradient.isfinite().all():
        raise ValueError(f"{name} has a gradient that is not finite for trial completions")
