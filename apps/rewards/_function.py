"""Plain functions as rewards, with the signature of TRL's reward functions: `(prompts, completions, **columns)`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any

from ...policy.training.prompts import PromptRow
from ...rm.errors import UsageError
from ...rm.io.coroutines import resolve
from ...rm.registry import load
from ...rm.registry.specs import is_function, is_required, parse_spec, typed_arguments
from ...rm.types import Example, completion_turns

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
    """The user's name of the function, for error messages."""
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
        return self.function(
            **({"prompts": prompts} if self._has("prompts") else {}), completions=completions, **columns
        )

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the function gets: the names of its parameters, or all columns for `**columns`."""
        available = dict.fromkeys(name for row in self.table for name in row.columns)
        return [name for name in available if name not in ("prompts", "completions") and self._has(name)]

    def _has(self, name: str) -> bool:
        parameters = signature(self.function).parameters
        return name in parameters or any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())

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
                f"reward {self.text} fails on made-up completions ({type(error).__name__}: {error}); its signature is "
                f"{SIGNATURE}"
            ) from error
        if len(values) != len(rows):
            raise UsageError(
                f"reward {self.text} returns {len(values)} values for {len(rows)} completions; its signature is "
                f"{SIGNATURE}"
            )


def function_reward(source: str, table: Sequence[PromptRow]) -> FunctionReward | None:
    """Return the reward of a plain function. None if the source is a model, a built-in reward or a factory.

    A function without a parameter `completions` is a factory. Raise an error if a factory has required arguments that
    `source` does not contain.
    """
    if not is_function(source):
        return None
    function = load("policy", parse_spec(source).name)
    parameters = signature(function).parameters
    arguments = typed_arguments(source, function)
    if "completions" in parameters:
        bound = partial(function, **arguments) if arguments else function
        return FunctionReward(bound, source, table)
    if missing := [name for name, parameter in parameters.items() if is_required(parameter) and name not in arguments]:
        raise UsageError(
            f"{source}: the argument '{missing[0]}' is missing; a reward function has the signature {SIGNATURE}, and a "
            "factory is called with the arguments in parentheses"
        )
    return None
