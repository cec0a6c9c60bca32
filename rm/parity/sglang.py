"""The scores of SGLang's reward, embedding and classification endpoints."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError, UsageError
from ..types import Example, ReadsTokens
from .known_faults import BackendScores
from .model_server import ModelServer, all_or_none, batches, sort_by_index
from .parity import Way

PROBABILITIES = "SGLang, /v1/classify"
"""Backend of label probabilities: always a softmax, which is 1 for a single label. Reported, never a failure."""


class Sglang(ModelServer):
    """SGLang's server with `--is-embedding`: POST /classify, /v1/embeddings, /v1/classify and /tokenize.

    /classify takes `text` or `input_ids` and returns a list with an `embedding` for each, which for a sequence
    classifier is the output of its head; /v1/embeddings returns the same in OpenAI's format.
    """

    program, key_variable, start = "SGLang", "SGLANG_API_KEY", "--is-embedding"

    def classify(self, **body: Any) -> list[list[float]]:
        """Return the head's output for each row of `input_ids` or `text`, in order."""
        replies = self.post("/classify", **body)
        return [reply["embedding"] for reply in (replies if isinstance(replies, list) else [replies])]

    def embeddings(self, rows: Sequence[list[int]]) -> list[list[float]]:
        """Return the same through the embedding endpoint."""
        return sort_by_index(self.post("/v1/embeddings", input=rows)["data"], "embedding")

    def probabilities(self, rows: Sequence[list[int]]) -> list[list[float]]:
        """Return the label probabilities; this endpoint documents one sequence per request."""
        return [self.post("/v1/classify", input=row)["data"][0]["probs"] for row in rows]

    def tokens(self, text: str) -> list[int] | None:
        """Return the ids that the server's tokenizer makes of a text; None where it has no such endpoint."""
        try:
            return self.post("/tokenize", prompt=text)["tokens"]
        except DataError:
            return None


def sglang(url: str, model: Any) -> tuple[dict[str, Way], dict[str, Way]]:
    """Score with SGLang on our token ids, by each endpoint; and on rendered text, with the server's tokenizer.

    The second group is for conversations without truncation: SGLang refuses or truncates longer ones in its own way.
    """
    if not isinstance(model, ReadsTokens):
        raise UsageError(f"--against sglang sends token ids, and kind '{model.contract.kind}' has no tokenizer")
    server = Sglang(url)

    def by_ids(endpoint: Any) -> Way:
        def way(examples: Sequence[Example]) -> BackendScores:
            rows = [encoded.ids for encoded in model.encoder.encode_all(examples)]
            return BackendScores(as_scores([score for some in batches(rows) for score in endpoint(some)]), rows)

        return way

    def by_text(examples: Sequence[Example]) -> BackendScores:
        texts = [model.encoder.render(example) for example in examples]
        scores = as_scores([score for some in batches(texts) for score in server.classify(text=some)])
        return BackendScores(scores, all_or_none([server.tokens(text) for text in texts], list))

    ids = {
        "SGLang": by_ids(lambda rows: server.classify(input_ids=rows)),
        "SGLang, /v1/embeddings": by_ids(server.embeddings),
        PROBABILITIES: by_ids(server.probabilities),
    }
    return ids, {"SGLang, its tokenizer": by_text}


def as_scores(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Return rows of numbers as [N, K]; NaN fills rows that are shorter than the longest."""
    width = max(map(len, rows), default=0)
    return np.array([[*row, *[np.nan] * (width - len(row))] for row in rows], float).reshape(len(rows), width)
