"""Base classes of trainings: labelled rows, streams, backbones from scratch, and counts of tokens."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from peft import LoraConfig
from transformers import PreTrainedTokenizerBase

from ..backbones.loading import load_tokenizer, small_config, small_tokenizer
from ..backbones.tokenization import check_renders
from ..contract.loading_settings import edges
from ..data.pairs import RowReport, load_pairs, refuse_bad_rows
from ..data.scored_rows import Judged
from ..data.streaming import PairStream, StreamPosition
from ..errors import UsageError
from ..training.encoding import Encoding
from ..training.protocol import Training, TrainingData
from ..types import Example, PreferencePair, message_text
from ._settings import ClassifierSettings, LabelSettings, RowSettings

R = TypeVar("R", bound=RowSettings)
L = TypeVar("L", bound=LabelSettings)


class RowTraining(Training[R]):
    """Training on rows of files. All bad rows are refused in one error."""

    summary_prefixes = ("train_", "eval_loss", "eval_accuracy")
    """Prefixes of the names of manifest entries that are part of the summary."""

    @abstractmethod
    def load_rows(self, sources: Sequence[str]) -> tuple[Judged, RowReport]:
        """Load all rows of the sources, with a report of the bad rows."""

    def load_training_rows(self, sources: Sequence[str]) -> tuple[Judged, RowReport]:
        """Load the training rows; for a stream, only the first rows, for checks and the report."""
        return self.load_rows(sources)

    def read(self, sources: Sequence[str], held_out: Sequence[str]) -> TrainingData:
        """Load training and held-out data. Bad rows of both are refused in one error."""
        train, rows = self.load_training_rows(sources)
        held, held_rows = self.load_rows(held_out)
        if self.settings.on_bad_row == "refuse":
            refuse_bad_rows(rows + held_rows)
        return TrainingData(train, held, rows, held_rows, sources)

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the losses and accuracies for the summary."""
        return {name: value for name, value in facts.items() if name.startswith(self.summary_prefixes)}


class PairTraining(RowTraining[L]):
    """Training on labelled pairs."""

    def split_source(self, text: str) -> tuple[str | None, str]:
        """Split `harmless=pairs.jsonl` into the objective of the file's labels (None without a prefix) and the file."""
        name, sign, path = text.partition("=")
        return (name, path) if sign and name in self.settings.objectives else (None, text)

    def files(self, sources: Sequence[str]) -> list[str]:
        """Return the file paths of the sources, with any `OBJECTIVE=` prefix removed."""
        return [self.split_source(source)[1] for source in sources]

    def load_rows(self, sources: Sequence[str]) -> tuple[Judged, RowReport]:
        """Load all sources; pairs of a file that is assigned to an objective are labelled for this objective."""
        data, report = Judged([], []), RowReport()
        for objective, path in map(self.split_source, sources):
            part, rows = self.load_file(path, objective)
            lists = (*data.lists, *part.lists)
            data = Judged(data.pairs + part.pairs, data.completions + part.completions, lists=lists)
            report += rows
        return data, report

    def load_file(self, path: str, objective: str | None) -> tuple[Judged, RowReport]:
        """Load one file; its pairs are labelled for `objective`, or as in the file if `objective` is None."""
        pairs, rows = load_pairs(path, on_bad_row="skip")
        return Judged([pair.labelled_for(objective) for pair in pairs] if objective else pairs, []), rows

    def count_labels(self, pairs: Sequence[PreferencePair], objective: str) -> dict[str, int]:
        """Return the numbers of pairs with and without a label; report the unlabelled pairs, which are left out."""
        if unlabelled := sum(objective not in pair.wins for pair in pairs):
            self.report(f"data: {unlabelled} of {len(pairs)} pairs unlabelled for '{objective}', left out")
        return {"pairs": len(pairs), "unlabelled": unlabelled, "kept": len(pairs) - unlabelled}

    def golden_examples(self, model: Any, data: TrainingData, number: int) -> list[Example]:
        """Return the completions of the first pairs, or rated responses if there are no pairs."""
        return alternating_examples(data.train)[:number]

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of pairs (for a stream, of pairs read so far), losses and accuracies."""
        pairs = facts["stream"]["pairs"] if "stream" in facts else len(data.train.pairs)
        return {"pairs": pairs} | super().summary(model, data, facts)


def alternating_examples(data: Judged) -> list[Example]:
    """Return an example of each pair, alternately chosen and rejected; without pairs the rated or ranked responses."""
    lists = [example for ranked in data.lists for example in ranked.examples]
    return [pair.examples[index % 2] for index, pair in enumerate(data.pairs)] or [
        *(answer.example for answer in data.completions),
        *lists,
    ]


class BackboneTraining(RowTraining[Any]):
    """Training of a backbone that reads conversations."""

    settings: Any

    def check(self, sources: Sequence[str]) -> None:
        """Raise an error if the chat template cannot render a conversation, before all data are read."""
        super().check(sources)
        if self.settings.model:
            template = self.settings.chat_template
            check_renders(load_tokenizer(self.settings.model, chat_template=template, **self.options))

    def loading_options(self) -> dict[str, Any]:
        """Return the options, common to all kinds, for loading the named backbone."""
        settings = self.settings
        options = {"max_length": settings.max_length, "chat_template": settings.chat_template, "dtype": settings.dtype}
        return options | edges(settings) | self.options

    def log_encoding(self, name: str, encoding: Encoding, noun: str = "pairs") -> Encoding:
        """Report the numbers of truncated and dropped rows, and of rows with text that the chat template omits."""
        for line in encoding.lines(name, noun, self.settings.on_long):
            self.report(line)
        return encoding


class ClassifierTraining(BackboneTraining):
    """Training of a backbone with a new head, or of a small model from scratch."""

    def classifier_options(self) -> dict[str, Any]:
        """Return the options for loading the named backbone with a new head."""
        return self.loading_options() | {"lora": lora_config(self.settings), "seed": self.arguments.seed}

    def small_backbone(self, texts: Sequence[str]) -> tuple[PreTrainedTokenizerBase, Any]:
        """Train a tokenizer on the texts; return it and the configuration of a small model for it."""
        settings: ClassifierSettings = self.settings
        tokenizer = small_tokenizer(texts, settings.small_vocabulary)
        return tokenizer, small_config(tokenizer, hidden=settings.small_hidden, layers=settings.small_layers)

    def log_small_model(self, model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        """Report that a model was built from scratch, and its size."""
        size = sum(parameter.numel() for parameter in model.parameters())
        self.report(
            f"no --model: built a small {model.config.model_type} from scratch with {size:,} random weights and "
            f"{len(tokenizer):,} tokens learnt from the training text; name a pretrained backbone with --model "
            "for a useful reward model"
        )


def lora_config(settings: ClassifierSettings) -> LoraConfig | None:
    """Return the configuration of the adapters that --lora adds; None without --lora."""
    if not settings.lora:
        return None
    targets: Any = settings.lora_target_modules or ["all-linear"]
    rank = settings.lora_r or 16
    return LoraConfig(
        r=rank,
        lora_alpha=2 * rank if settings.lora_alpha is None else settings.lora_alpha,  # type: ignore[arg-type]
        lora_dropout=settings.lora_dropout,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
    )


def texts_of(pairs: Sequence[PreferencePair]) -> list[str]:
    """Return the texts of prompts and completions."""
    prompts = [message_text(turn) for pair in pairs for turn in pair.prompt]
    return prompts + [text for pair in pairs for text in pair.texts]


class StreamedTraining(PairTraining[Any]):
    """Training on pairs in memory, or on a stream of pairs that is read during the training."""

    settings: Any

    def check(self, sources: Sequence[str]) -> None:
        """Raise a `UsageError` for a stream with settings that need all pairs in memory."""
        super().check(sources)
        if not self.streams:
            return
        if self.arguments.max_steps < 1:
            raise UsageError("--stream has no end; set the number of steps with --max_steps")
        if self.arguments.dataloader_num_workers:
            raise UsageError("--stream counts rows in the training process; remove --dataloader_num_workers")
        if labelled := [source for source in sources if self.split_source(source)[0]]:
            raise UsageError(f"--stream does not support '{labelled[0]}' (NAME=FILE); add a column 'wins' to the pairs")

    def load_training_rows(self, sources: Sequence[str]) -> tuple[Judged, RowReport]:
        """Load all pairs, or the first block of a stream."""
        if not self.streams:
            return super().load_training_rows(sources)
        stream = PairStream(sources, list, block=self.settings.stream_block, on_bad_row=self.settings.on_bad_row)
        pairs, _ = stream.read(StreamPosition())
        return Judged(pairs, []), stream.report

    @property
    def streams(self) -> bool:
        """Whether the pairs are read during the training."""
        return bool(vars(self.settings).get("stream"))

    def stream(
        self, data: TrainingData, encode: Callable[[list[PreferencePair]], Encoding]
    ) -> Callable[[], PairStream] | None:
        """Return a function that opens the stream of encoded pairs; None if all pairs are in memory."""
        if not self.streams:
            return None
        options = {"block": self.settings.stream_block, "on_bad_row": self.settings.on_bad_row}
        return lambda: PairStream(data.sources, encode, seed=self.arguments.seed, **options)
