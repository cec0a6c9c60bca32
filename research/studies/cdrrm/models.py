"""A small language model as the rubric generator: pretrained on the world's phrases, then trained on rubrics by SFT."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from ....judges.cdrrm.generator import Record, generate
from ....judges.cdrrm.requests import Rejected
from ....judges.cdrrm.synthesise import Sides
from ....judges.cdrrm.training import SupervisedSettings, train
from ....judges.rubrics.rubric import Rubric
from .._runs.job_cache import Arrays, Job
from .arms import Asked, Corpus, Source

LIBRARIES = ("torch", "transformers", "trl")


@dataclass(frozen=True)
class Reader(Job):
    """The initial model: pretrained on the world's vocabulary, without preferences or rubrics."""

    steps: int
    seed: int = 0
    learning_rate: float = 3e-3
    batch: int = 64

    libraries: ClassVar = LIBRARIES

    def work(self, cache: Path) -> Arrays:
        """Train the model and return its weights by name."""
        from ....tests.stand_ins.check_models import causal_lm, lessons, tokenizer

        words = tokenizer()
        model = causal_lm(words, self.seed)
        _train(model, lessons(self.steps * self.batch, self.seed), words, self.steps, self.learning_rate, self.batch)
        return {name: value.numpy() for name, value in model.state_dict().items()}


@dataclass(frozen=True)
class LanguageModel(Source):
    """A language model trained on n rubrics, in both orders of the responses, with the contrast before the rubric."""

    reader: Reader
    corpus: Corpus
    n: int
    steps: int
    asked: Asked
    learning_rate: float = 1e-3
    batch: int = 32

    libraries: ClassVar = LIBRARIES

    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """Train the model and return its rubrics; see `Source`."""
        import torch

        from ....judges.backends.local_model import chat_from_model
        from ....tests.stand_ins.check_models import causal_lm, tokenizer

        words = tokenizer()
        model = causal_lm(words)
        model.load_state_dict({name: torch.from_numpy(value) for name, value in self.reader.result(cache).items()})
        records = self.corpus.records(cache, self.n)
        _train(model, records, words, self.steps, self.learning_rate, self.batch, self.corpus.seed)
        return generate(chat_from_model(model.eval(), words, name="toy-world model", batch_size=128), shown)


def _train(
    model: Any, records: Sequence[Record], words: Any, steps: int, learning_rate: float, batch: int, seed: int = 0
) -> None:
    how = SupervisedSettings(
        steps=steps, learning_rate=learning_rate, batch=batch, accumulate=1, max_length=512, seed=seed
    )
    with TemporaryDirectory() as folder:
        train(model, records, folder, how, words)
