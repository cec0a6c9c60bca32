"""Information about a training run that rewards may use."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from ...policy.decoding.language_models import DecodingModel
from ...policy.training.prompts import PromptRow, Row
from ...rm.errors import DataError

T = TypeVar("T")
SHOWN = 60  # characters of a prompt in a message


class RunFacts(NamedTuple):
    """Information about policy training, before its first step."""

    policy: DecodingModel
    """The policy at the start; its model object is the one that is trained."""
    cycles: int
    """Number of cycles of generation and training."""
    seed: int
    loading: Mapping[str, Any]
    """Options for opening a model."""
    rows: Mapping[str, Sequence[Row]] = MappingProxyType({})
    """A prompt's text -> what the rows with that prompt have beside it, such as a reference."""
    table: Sequence[PromptRow] = ()
    """Rows of the training prompts, then of the evaluation prompts."""

    def by_prompt(self, parse: Callable[[Row], T]) -> dict[str, list[T]]:
        """Parse every row, by the prompt's text; raise a `DataError` for a row that `parse` refuses."""
        values_by_prompt: dict[str, list[T]] = {}
        for text, rows in self.rows.items():
            try:
                values_by_prompt[text] = [parse(row) for row in rows]
            except ValueError as error:
                raise DataError(f"the row of the prompt {text[:SHOWN]!r}: {error}") from error
        return values_by_prompt

    def one_by_prompt(self, parse: Callable[[Row], T]) -> dict[str, T]:
        """Parse the rows of every prompt, which must agree, because rewards identify a row by its prompt's text."""
        parsed_values = self.by_prompt(parse)
        for text, values in parsed_values.items():
            if other := [value for value in values if value != values[0]]:
                raise DataError(
                    f"the rows of the prompt {text[:SHOWN]!r} differ: {str(values[0])[:SHOWN]!r} and "
                    f"{str(other[0])[:SHOWN]!r}; leave one of them, for answers are distinguished by their prompt alone"
                )
        return {text: values[0] for text, values in parsed_values.items()}
