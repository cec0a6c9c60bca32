"""What a kind of reward model provides for its training: the data it reads, its model and task, and the last steps."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from transformers import TrainerCallback

from ..data.pairs import RowReport
from ..data.scored_rows import Judged
from ..data.streaming import PairStream
from ..settings import Settings
from ..types import Example
from .encoding import Encoding
from .task import Task
from .trainer import RewardArguments

S = TypeVar("S", bound=Settings)
Report = Callable[[str], object]
"""Takes a line about the progress of a training."""


class TrainingData(NamedTuple):
    """Data to train on and held-out data, with what was read of both."""

    train: Judged
    held_out: Judged
    rows: RowReport
    held_out_rows: RowReport
    sources: Sequence[str] = ()
    """Names of the data to train on, for streams."""


class Monitor(TrainerCallback):
    """Callback that measures a model in training, and may have it trained again from the start."""

    def restart(self) -> bool:
        """Return whether the training has to start again, after putting the initial weights back."""
        return False

    def facts(self, model: Any) -> dict[str, Any]:
        """Return facts of the trained model, for its manifest."""
        return {}


class Prepared(NamedTuple):
    """A model with what the trainer needs; a model without a task is complete."""

    model: Any
    task: Task | None = None
    encoding: Encoding | None = None
    """Rows to train on."""
    eval_rows: list[Any] | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
    """Facts for the manifest."""
    stream: Callable[[], PairStream] | None = None
    """Opens the stream of rows that is read in place of those of the encoding."""
    monitor: Monitor | None = None


class Training(Generic[S]):
    """The training of one kind of reward model; `fit` calls `prepare`, the trainer, `finish` and `golden_examples`.

    `options` are those of loading models, such as `trust_remote_code`; `report` takes lines about the progress.
    """

    def __init__(self, settings: S, arguments: RewardArguments, *, report: Report = print, **options: Any):
        self.settings, self.arguments = settings, arguments
        self.report, self.options = report, options

    def check(self, sources: Sequence[str]) -> None:
        """Raise a `UsageError` for settings and sources that are refused before anything is read."""
        self.settings.validate()

    def files(self, sources: Sequence[str]) -> list[str]:
        """Return the files that the sources name."""
        return list(sources)

    def read(self, sources: Sequence[str], held_out: Sequence[str]) -> TrainingData:
        """Read the data to train on and the held-out data."""
        raise NotImplementedError

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the model with its rows and task."""
        raise NotImplementedError

    def finish(self, prepared: Prepared, data: TrainingData) -> tuple[Any, dict[str, Any]]:
        """Return the trained model, complete, and further facts of it."""
        return prepared.model, {}

    def golden_examples(self, model: Any, data: TrainingData, number: int) -> list[Example]:
        """Return the examples whose rewards are saved with the model, at most as many as that number."""
        raise NotImplementedError

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results that a user reads at the end of the training."""
        raise NotImplementedError
