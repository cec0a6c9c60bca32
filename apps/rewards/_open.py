"""Loading of reward sources by their names on the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...policy.rewards.sources import RewardSources
from ...policy.training.prompts import PromptRow
from ...policy.types import RatesCompletions
from ...rm.errors import UsageError
from ...rm.load import load_reward_model
from ...rm.registry import names
from ...rm.registry.specs import build, is_function, split_name
from ._function import function_reward
from ._run import RunFacts


def sources_by_name(texts: Sequence[str]) -> dict[str, str]:
    """Parse arguments NAME=SOURCE; return the sources by name. Raise `UsageError` for a repeated name."""
    pairs = [split_name(text) for text in texts]
    sources = dict(pairs)
    if len(sources) < len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise UsageError(f"two rewards are called '{twice}'; call one of them NAME=SOURCE")
    return sources


def open_rewards(
    trained: Mapping[str, str], watched: Mapping[str, str], run: RunFacts, record: Path, *, skip: bool = False
) -> RewardSources:
    """Load all reward models and functions. The rewards of `watched` sources are logged but not trained on."""
    sources = {name: _open_reward(source, run) for name, source in {**trained, **watched}.items()}
    return RewardSources(sources, watched=[*watched], skip=skip, record=record)


def check_functions(sources: Sequence[str], table: Sequence[PromptRow]) -> None:
    """Run the reward sources that are plain functions on synthetic completions, before a model is loaded."""
    for source in sources:
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
    if not (isinstance(made, RatesCompletions) or callable(made)):
        raise UsageError(f"{source} returns {made!r}, neither a reward model nor a function of completions")
    return made
