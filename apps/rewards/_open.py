"""Opening of reward sources from the command line: models, functions, and rewards that need facts of the run."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from jaxtyping import Float
from numpy import ndarray

from ...policy.decoding.engines import DecodingModel
from ...policy.rewards.sources import RewardSources
from ...policy.training.prompts import PromptRow, Row
from ...policy.types import RatesCompletions, ReadsFinished, RewardFunction
from ...rm.data.pairs import column
from ...rm.errors import DataError, UsageError
from ...rm.io.coroutines import resolve
from ...rm.load import load_reward_model
from ...rm.registry import load, names
from ...rm.registry.specs import (
    bind_arguments,
    build,
    is_function,
    is_required,
    is_reward_function,
    parse_spec,
    split_name,
    takes,
)
from ...rm.types import Example, completion_turns, prompt_text

T = TypeVar("T")
SHOWN = 60  # characters of a prompt in a message


class RunFacts(NamedTuple):
    """Information about a policy training run, before its first step, for reward sources."""

    policy: DecodingModel
    """The policy, with the model object that is trained: first the initial policy, then the current policy."""
    cycles: int
    """Number of cycles of generation and training."""
    seed: int
    loading: Mapping[str, Any]
    """Options for opening a model."""
    rows: Mapping[str, Sequence[Row]] = MappingProxyType({})
    """Other columns of the data rows, such as a reference, by the text of the prompt."""
    table: Sequence[PromptRow] = ()
    """Rows of the training prompts, then of the evaluation prompts."""
    replies: str = ""
    """Default folder for the stored replies of judges."""

    def by_prompt(self, parse: Callable[[Row], T]) -> dict[str, list[T]]:
        """Return the parsed rows by the prompt's text. Raise `DataError` if `parse` raises an error for a row."""
        values_by_prompt: dict[str, list[T]] = {}
        for text, rows in self.rows.items():
            try:
                values_by_prompt[text] = [parse(row) for row in rows]
            except ValueError as error:
                raise DataError(f"the row of the prompt {text[:SHOWN]!r}: {error}") from error
        return values_by_prompt

    def one_by_prompt(self, parse: Callable[[Row], T]) -> dict[str, T]:
        """Return one parsed row by the prompt's text. Raise an error if rows with the same prompt differ."""
        parsed_values = self.by_prompt(parse)
        for text, values in parsed_values.items():
            if other := [value for value in values if value != values[0]]:
                raise DataError(
                    f"the rows of the prompt {text[:SHOWN]!r} differ: {str(values[0])[:SHOWN]!r} and "
                    f"{str(other[0])[:SHOWN]!r}; keep one of them, because rows are looked up by their prompt"
                )
        return {text: values[0] for text, values in parsed_values.items()}

    def texts_by_prompt(self, name: str) -> dict[str, str]:
        """Return the text in column `name` by the prompt's text. Raise `DataError` if it is missing or empty."""

        def text(row: Row) -> str:
            if not isinstance(value := column(row, name), str) or not value.strip():
                raise ValueError(f"'{name}' must be a text, got {str(value)[:SHOWN]!r}")
            return value

        return self.one_by_prompt(text)

    def numbers_by_prompt(self, name: str) -> dict[str, list[int]]:
        """Return the lists of whole numbers in column `name` by the prompt's text. Refuse other values."""

        def numbers(row: Row) -> list[int]:
            value = column(row, name)
            if not isinstance(value, list) or not all(re.fullmatch(r"-?\d+", str(item)) for item in value):
                raise ValueError(f"'{name}' must be a list of whole numbers, got {str(value)[:SHOWN]!r}")
            return [int(item) for item in value]

        return self.one_by_prompt(numbers)


def per_completion(values: Mapping[str, T], score: Callable[[str, T], float | None]) -> RewardFunction:
    """Return a reward function that computes `score(completion, value)`; `values` maps prompt texts to `value`."""
    return lambda examples: [score(example.text, values[prompt_text(example.prompt)]) for example in examples]


def sources_by_name(texts: Sequence[str]) -> dict[str, str]:
    """Parse arguments NAME=SOURCE; return the sources by name. Raise `UsageError` for a repeated name."""
    pairs = [split_name(text) for text in texts]
    sources = dict(pairs)
    if len(sources) < len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise UsageError(f"two rewards are called '{twice}'; rename one of them with NAME=SOURCE")
    return sources


def open_rewards(
    trained: Mapping[str, str], watched: Mapping[str, str], run: RunFacts, record: Path, *, skip: bool = False
) -> RewardSources:
    """Load all reward models and functions. The rewards of `watched` sources are logged but not trained on."""
    sources = {name: _open_reward(source, run) for name, source in {**trained, **watched}.items()}
    return RewardSources(sources, watched=[*watched], skip=skip, record=record)


class NoPolicy:
    """Placeholder for the policy in `RunFacts` of a process without a policy. Every access raises `UsageError`."""

    def __init__(self, why: str):
        self.why = why

    def __getattr__(self, name: str) -> Any:
        raise UsageError(f"a reward reads the policy's weights, and {self.why}")


def open_fixed_rewards(
    trained: Sequence[str], watched: Sequence[str], run: RunFacts, record: Path, *, skip: bool = False
) -> RewardSources:
    """Open rewards from arguments NAME=SOURCE. Raise `UsageError` for a reward that learns during policy training."""
    sources = open_rewards(sources_by_name(trained), sources_by_name(watched), run, record, skip=skip)
    for name in (*sources.learners, *(["hidden states"] if sources.reads_states else [])):
        raise UsageError(f"--reward {name} learns while a policy is trained; name a reward that does not change")
    return sources


def check_functions(sources: Sequence[str], table: Sequence[PromptRow]) -> None:
    """Run the reward sources that are plain functions on trial completions, before a model is loaded."""
    for source in sources:
        if not Path(source).exists() and (reward := function_reward(source, table)):
            reward.check()


def _open_reward(source: str, run: RunFacts) -> Any:
    if source.endswith(".py"):
        raise UsageError(f"the reward {source} is a file of code; name a function in it, as {source}:FUNCTION")
    if Path(source).exists():
        return load_reward_model(source, **run.loading)
    if source.partition("(")[0] in names("apps.rewards"):
        return build("apps.rewards", source, run=run)
    if not is_function(source):
        return load_reward_model(source, **run.loading)
    if reward := function_reward(source, run.table):
        return reward
    result = build("policy", source)
    if not (isinstance(result, RatesCompletions) or callable(result)):
        raise UsageError(f"{source} returns {result!r}, neither a reward model nor a function of completions")
    return result


SIGNATURE = "(prompts, completions, **columns) -> a list or tensor of numbers, or None where a reward is missing"
MADE_UP = "A made-up completion."


@dataclass(frozen=True)
class FunctionReward:
    """Reward by a plain function. The function gets the other columns of the prompts' rows as keyword arguments.

    As in TRL, `prompts` and `completions` are strings where the row's prompt is a string, and lists of messages where
    it is a list of messages. A column that a row lacks is None.
    """

    function: Callable[..., Any]
    text: str
    """The function as written by the user, for error messages."""
    table: Sequence[PromptRow]
    reads_rows = True

    def __call__(self, examples: Sequence[Example], rows: Sequence[int]) -> Any:
        """Call the function. `rows` are the row numbers of the prompts in the table of data rows."""
        read = [self.table[row] for row in rows]
        columns = {name: [row.columns.get(name) for row in read] for name in self.columns}
        prompts, completions = [], []
        for example, row in zip(examples, read, strict=True):
            prompt = example.prompt
            prompts.append(prompt[0]["content"] if row.as_text and len(prompt) == 1 else [*prompt])
            completions.append(example.text if row.as_text else [*completion_turns(example.completion)])
        more = {"prompts": prompts} if takes(self.function, "prompts") else {}
        return self.function(**more, completions=completions, **columns)

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns that the function gets: the names of its parameters, or all columns for `**columns`.

        An argument that the user sets is not replaced by the column of that name.
        """
        available = dict.fromkeys(name for row in self.table for name in row.columns)
        others = {"prompts", "completions", *parse_spec(self.text).arguments}
        return [name for name in available if name not in others and takes(self.function, name)]

    def check(self) -> None:
        """Raise `UsageError` if the data lacks a column of the function, or the function fails on test completions."""
        available = [*self.columns, "prompts", "completions"]
        required = [name for name, parameter in signature(self.function).parameters.items() if is_required(parameter)]
        if absent := [name for name in required if name not in available]:
            columns = ", ".join(dict.fromkeys(name for row in self.table for name in row.columns)) or "none"
            raise UsageError(
                f"reward {self.text} reads the column '{absent[0]}', which no row of the data has (columns: {columns})"
            )
        rows = range(min(2, len(self.table)))
        examples = [Example(self.table[row].prompt, MADE_UP) for row in rows]
        try:
            values = [*resolve(self(examples, rows))]
        except Exception as error:  # user functions raise arbitrary errors
            raise UsageError(
                f"reward {self.text} fails on trial completions ({type(error).__name__}: {error}); its signature "
                f"is {SIGNATURE}"
            ) from error
        if len(values) != len(rows):
            raise UsageError(
                f"reward {self.text} returns {len(values)} values for {len(rows)} completions; its signature is "
                f"{SIGNATURE}"
            )


def function_reward(source: str, table: Sequence[PromptRow]) -> FunctionReward | None:
    """Return the reward of a plain function. None if the source is a model, a built-in reward or a factory.

    A function that does not take `completions` is a factory. Raise an error if a factory has required arguments that
    `source` does not contain.
    """
    if not is_function(source):
        return None
    function = load("policy", parse_spec(source).name)
    if is_reward_function(function):
        return FunctionReward(bind_arguments(function, source), source, table)
    parameters, arguments = signature(function).parameters, parse_spec(source).arguments
    if missing := [name for name, parameter in parameters.items() if is_required(parameter) and name not in arguments]:
        raise UsageError(
            f"{source}: the argument '{missing[0]}' is missing; a reward function has the signature {SIGNATURE}, and a "
            "factory is called with the arguments in parentheses"
        )
    return None


Rate = Callable[[Sequence[Example], Sequence[int]], Float[ndarray, " N"]]
"""Maps completions, and the data rows of their prompts, to rewards [N]. NaN is a missing reward."""
NAME = "rating"


def open_rate(source: str, run: RunFacts) -> Rate:
    """Open a source of --reward with one component. The returned function raises `DataError` if the source fails.

    Raise `UsageError` if the source learns online or reads the policy's hidden states, since completions by other
    models have no such states.
    """
    sources = open_rewards({NAME: source}, {}, run, Path(os.devnull))
    if len(sources.names) != 1:
        raise UsageError(
            f"{source} has {len(sources.names)} components ({', '.join(sources.names)}); use one component"
        )
    if sources.learners or sources.reads_states:
        raise UsageError(f"{source} learns from the policy and cannot rate a partner's completions; use another")
    if isinstance(opened := sources.sources[NAME], ReadsFinished) and opened.reads_finished:
        raise UsageError(f"{source} reads which completions are truncated, which is unknown here; use another one")
    return lambda examples, rows: sources(examples, rows=rows)[0].values[:, 0].numpy()
