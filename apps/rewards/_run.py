"""Information about a policy training run for reward sources."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from ...policy.decoding.language_models import DecodingModel
from ...policy.training.prompts import PromptRow, Row
from ...rm.errors import DataError

T = TypeVar("T")
SHOWN = 60  # characters of a prompt in a message


class RunFacts(NamedTuple):
    """Information about a policy training run, before its first step, for reward sources."""

    policy: DecodingModel
    """The initial policy. Its model object is the trained one, so that it is the current policy during training."""
    cycles: int
    """Number of cycles of generation and training."""
    seed: int
    loading: Mapping[str, Any]
    """Options for opening a model."""
    rows: Mapping[str, Sequence[Row]] = MappingProxyType({})
    """Other columns of the data rows, such as a reference, by the text of the prompt."""
    table: Sequence[PromptRow] = ()
    """Rows of the training prompts, then of the evaluation prompts."""

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
                    f"{str(other[0])[:SHOWN]!r}; leave one of them, for answers are distinguished by their prompt alone"
                )
        return {text: values[0] for text, values in parsed_values.items()}
