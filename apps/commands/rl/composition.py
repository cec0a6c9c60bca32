"""Rewards and formulas by name -> what a policy's training is composed of, checked before anything is trained."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ....kernels.policy_loss import ClipRule
from ....policy.composition.algorithm import Algorithm, Penalty
from ....policy.composition.check import RunInputs, check_composition
from ....policy.composition.completion_losses import CompletionLossInputs
from ....policy.composition.token_losses import TokenLoss
from ....policy.rewards.sources import RewardSources
from ....policy.training.arguments import PolicyArguments
from ....policy.types import Transform
from ....rm.errors import UsageError
from ....rm.load import load_reward_model
from ....rm.registry import names
from ....rm.registry.specs import build, is_function, named, parse_spec, signatures, takes
from ...rewards._function import function_reward
from ...rewards._run import PromptRow, RunFacts
from .settings import RlConfig

# ---- rewards ----


class OpenRewards(NamedTuple):
    """Reward sources, and the components that are trained on."""

    sources: RewardSources
    components: tuple[str, ...]

    @property
    def watched(self) -> list[str]:
        """Components that are only logged."""
        return [name for name in self.sources.names if name not in self.components]


def named_sources(config: RlConfig) -> tuple[dict[str, str], dict[str, str]]:
    """Return the sources of --reward and of --watch by name."""
    sources: list[dict[str, str]] = []
    for texts in (config.reward, config.watch):
        pairs = [named(text) for text in texts]
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two rewards are called '{twice[0]}'; call one of them NAME=SOURCE")
        sources.append(dict(pairs))
    return sources[0], sources[1]


def open_rewards(config: RlConfig, run: RunFacts, record: Path) -> OpenRewards:
    """Load all reward models and functions."""
    trained, watched = named_sources(config)
    models = {name: _open_reward(source, run) for name, source in (trained | watched).items()}
    if idle := [name for name in watched if hasattr(models[name], "step_rewards")]:
        raise UsageError(f"'{idle[0]}' rewards steps and is only watched; name it with --reward")
    if idle := [name for name in watched if hasattr(models[name], "learn")]:
        raise UsageError(f"'{idle[0]}' learns from its own rewards and is only watched; name it with --reward")
    components = RewardSources({name: models[name] for name in trained}).names
    return OpenRewards(RewardSources(models, skip=config.on_fault == "skip", record=record), components)


def check_functions(config: RlConfig, table: Sequence[PromptRow]) -> None:
    """Run the plain functions among the rewards on made-up completions, before a model is loaded."""
    trained, watched = named_sources(config)
    for source in (trained | watched).values():
        if not Path(source).exists() and (reward := function_reward(source, table)):
            reward.check()


def _open_reward(source: str, run: RunFacts) -> Any:
    if Path(source).exists():
        return load_reward_model(source, **run.loading)
    if source.partition("(")[0] in names("apps.rewards"):
        return build("apps.rewards", source, run=run)
    if not is_function(source):
        return load_reward_model(source, **run.loading)
    if reward := function_reward(source, run.table):
        return reward
    made = build("policy", source)
    if not (hasattr(made, "rate") or callable(made)):
        raise UsageError(f"{source} returns {made!r}, which is no reward model and no function of completions")
    return made


# ---- formulas ----


def build_algorithm(config: RlConfig, components: Sequence[str]) -> Algorithm:
    """Return the composition: the named formulas, and the weights of the reward components."""
    shares = _shares(config, components)
    apart = takes("policy.advantages", config.advantage, "weights")
    weights = {"weights": [share for share in shares.values() if share]} if apart and config.weight else {}
    on_missing, partial = _on_missing(config, apart=apart)
    kind = config.kl_kind or ("k3" if config.kl_place == "loss" else "k1")
    try:
        return Algorithm(
            build("policy.advantages", config.advantage, **weights, **partial),
            _rule(config.loss, config.agents),
            build("policy.aggregations", config.aggregation),
            shares=shares,
            apart=apart,
            on_missing=on_missing,
            penalty=Penalty(config.kl, config.kl_place, kind, config.kl_corrected),
            entropy=config.entropy,
            reward_transforms=_transforms(config.reward_transform, config.agents),
            advantage_transforms=_transforms(config.advantage_transform, config.agents),
            scheduler=build("policy.schedulers", config.scheduler) if config.scheduler else None,
            formulas={
                "advantage": config.advantage,
                "rule": config.loss,
                "aggregation": config.aggregation,
                "scheduler": config.scheduler or "",
            },
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _on_missing(config: RlConfig, *, apart: bool) -> tuple[str, dict[str, bool]]:
    """Return the algorithm's `on_missing` and the estimator's argument `partial`.

    An estimator that gets the components apart and has no such argument, such as laser, needs all of them.
    """
    if not apart:
        return config.on_missing, {}
    if takes("policy.advantages", config.advantage, "partial"):
        return config.on_missing, {"partial": config.on_missing != "strict"}
    if config.on_missing == "sum":
        raise UsageError(
            f"--advantage {config.advantage} needs all rewards of a completion, so there is no sum of those that it "
            "has; leave --on_missing out"
        )
    return "strict", {}


def _shares(config: RlConfig, components: Sequence[str]) -> dict[str, float]:
    shares = dict.fromkeys(components, 1.0)
    for text in config.weight:
        name, _, number = text.rpartition("=")
        try:
            shares[name] = float(number)
        except ValueError as error:
            raise UsageError(f"--weight is NAME=number, got '{text}'") from error
        if not math.isfinite(shares[name]):
            raise UsageError(f"--weight is NAME=number, a finite one, got '{text}'")
    return shares


def _build(folder: str, text: str, agents: int) -> Any:
    """A formula that distinguishes agents gets their number."""
    return build(folder, text, **({"agents": agents} if takes(folder, text, "agents") else {}))


def _rule(text: str, agents: int) -> Any:
    made = _build("policy.losses", text, agents)
    if isinstance(made, ClipRule | TokenLoss):
        return made
    more = signatures("policy.losses") if ":" in text else ""
    column, index = torch.tensor([-1.0, -2.0, -1.0, -2.0]), torch.arange(4)
    try:
        loss = made(CompletionLossInputs(column, column, column, index // 2, index + 1, index % 2, size=2, base=column))
    except Exception as error:  # user functions raise arbitrary errors
        raise UsageError(f"--loss {text} is no clip rule and no loss of whole completions ({error}){more}") from error
    if not (isinstance(loss, torch.Tensor) and loss.shape == (4,)):
        raise UsageError(
            f"--loss {text} is no clip rule and no loss of whole completions: it returns {loss!r} for four{more}"
        )
    return made


def _transforms(texts: Sequence[str], agents: int) -> dict[str, Transform]:
    """Return items by name; a second item of the same name is called `name_2`."""
    transforms: dict[str, Transform] = {}
    for text in texts:
        made, short = _build("policy.transforms", text, agents), parse_spec(text).short
        if not isinstance(made, Transform):
            raise UsageError(f"{text} returns {made!r}, which is no policy.types.Transform")
        often = 1 + sum(name.rpartition("_")[0] == short or name == short for name in transforms)
        transforms[short if often == 1 else f"{short}_{often}"] = made
    return transforms


def check_formulas(algorithm: Algorithm, config: RlConfig, arguments: PolicyArguments) -> None:
    """Run what does not depend on the rewards' names, which are known only when reward models are loaded."""
    if not algorithm.apart:
        bare = replace(algorithm, shares={}, reward_transforms={})
        check_composition(bare, RunInputs(("reward",), _sizes(config, arguments), _fields(config, arguments)))


def check_with_rewards(
    algorithm: Algorithm, rewards: OpenRewards, config: RlConfig, arguments: PolicyArguments
) -> None:
    """Run all formulas on rewards of the sources' names; one that is only watched is missing there."""
    sizes, fields, sources = _sizes(config, arguments), _fields(config, arguments), rewards.sources
    inputs = RunInputs(sources.names, sizes, fields, sources.ensembles, rewards.watched, sources.process_rewards)
    check_composition(algorithm, inputs)
    _check_shared_prompts(sources.compares, arguments)


def _check_shared_prompts(comparing: Sequence[str], arguments: PolicyArguments) -> None:
    """Raise a `UsageError` if processes share a prompt's completions that a reward compares; each rates its own."""
    answers, steps = arguments.num_generations or 1, arguments.steps_per_generation or 1
    own = arguments.per_device_train_batch_size * steps
    if comparing and arguments.world_size > 1 and own % answers:
        raise UsageError(
            f"'{comparing[0]}' compares the {answers} answers to a prompt, and each process rates {own} answers; make "
            "--per_device_train_batch_size times --steps_per_generation a multiple of --num_generations"
        )


def _sizes(config: RlConfig, arguments: PolicyArguments) -> list[int]:
    size = arguments.num_generations or 1
    return [size, arguments.num_generations_eval or size] if config.eval_data else [size]


def _fields(config: RlConfig, arguments: PolicyArguments) -> set[str]:
    """Return what the trainer may compute for formulas that read it."""
    fields = {"tokens", "logprobs", "entropy", "states"} | ({"values", "after"} if config.critic else set())
    return fields | ({"base"} if config.kl or arguments.measure_kl else set())
