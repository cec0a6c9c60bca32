"""The scores of vLLM's pooling endpoints, which `rewardlab serve` has too."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError, UsageError
from ..types import Example, ReadsTokens
from .known_faults import BackendScores
from .model_server import ModelServer, all_or_none, batches, chat_body, sort_by_index
from .parity import Way


def token_classify_options(labels: Sequence[str] = ()) -> str:
    """Return vLLM's options for scores of tokens: of a token classifier, or of a causal language model's label tokens.

    A server has one pooling task, which vLLM chooses by the name of the model's class unless it is named. The head of
    a causal language model becomes the rows of its output head for `labels`, in their order and as in the vocabulary.

    >>> token_classify_options()
    '--runner pooling --pooler-config.task token_classify'
    """
    options = ["--runner", "pooling", "--pooler-config.task", "token_classify"]
    if labels:
        head = {"classifier_from_token": [*labels], "method": "no_post_processing", "num_labels": len(labels)}
        options += ["--convert", "classify", "--hf-overrides", json.dumps(head, ensure_ascii=False)]
    return shlex.join(options)


class Vllm(ModelServer):
    """vLLM's server with `--runner pooling` (0.31 to 0.33): POST /classify, /pooling and /tokenize."""

    program, key_variable, start = "vLLM", "VLLM_API_KEY", "--runner pooling"

    def classify(self, **body: Any) -> list[list[float]]:
        """Return the scores of each conversation, in order."""
        return sort_by_index(self.post("/classify", **body)["data"], "probs")

    def token_classify(self, rows: Sequence[list[int]], **body: Any) -> list[list[list[float]]]:
        """Return what the head gives at every token that the server's pooling returns, [tokens, labels] per row."""
        return sort_by_index(self.post("/pooling", input=rows, task="token_classify", **body)["data"], "data")

    def tokens(self, example: Example) -> list[int] | None:
        """Return the server's token ids of a conversation; None if the server has no such endpoint."""
        try:
            return self.post("/tokenize", **chat_body(example), add_generation_prompt=False)["tokens"]
        except DataError:
            return None


class ServedSteps(Vllm):
    """`rewardlab serve` with a process reward model, whose /pooling endpoint is compatible with vLLM's."""

    program, key_variable, start = "rewardlab serve", "REWARDLAB_TOKEN", "this model"

    def model_name(self) -> str | None:
        """Return None: a request need not name its only model."""
        return None


def vllm(url: str, model: Any) -> tuple[dict[str, Way], dict[str, Way]]:
    """Score with vLLM on our token ids, with and without its activation; and on messages, with its chat template.

    The second group is for conversations that vLLM truncates as the scoring contract does.
    """
    if not isinstance(model, ReadsTokens):
        raise UsageError(f"--against vllm sends token ids, and kind '{model.contract.kind}' has no tokenizer")
    server = Vllm(url)

    def by_ids(examples: Sequence[Example], **options: Any) -> BackendScores:
        rows = [encoded.ids for encoded in model.encoder.encode_all(examples)]
        scores = [score for some in batches(rows) for score in server.classify(input=some, **options)]
        return BackendScores(np.array(scores, float), rows)

    def by_messages(examples: Sequence[Example]) -> BackendScores:
        contract, scores = model.contract, []
        cut = {"truncate_prompt_tokens": contract.max_length, "truncation_side": contract.truncation}
        cut = cut if contract.max_length else {}
        for chat_example in examples:
            scores += server.classify(**chat_body(chat_example), use_activation=False, **cut)
        tokens = all_or_none([server.tokens(example) for example in examples], model.encoder.truncated)
        return BackendScores(np.array(scores, float), tokens)

    ids = {"vLLM": lambda examples: by_ids(examples, use_activation=False), "vLLM, as it activates": by_ids}
    return ids, {"vLLM, its template": by_messages}
