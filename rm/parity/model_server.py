"""The scores of inference servers: vLLM's pooling endpoints, which `rewardlab serve` has too, and SGLang's."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import httpx
import numpy as np

from ..errors import DataError, UsageError
from ..io.api_keys import authorization, clean_token, environment_key
from ..io.server_rotation import on_this_machine
from ..types import Example, Message, ReadsTokens, tools_of
from .known_faults import BackendScores
from .parity import Backend

EACH = 64
"""Maximum number of conversations in a request."""
Row = TypeVar("Row")


class ModelServer:
    """A server with one model; a subclass names the program, its environment variable for the key, and its options."""

    program, key_variable, start = "server", "", ""

    def __init__(self, url: str, key: str | None = None, *, start: str | None = None):
        self.start = start or self.start
        self.url = url.rstrip("/").removesuffix("/v1")
        self.http = httpx.Client(
            timeout=300.0,
            headers=authorization(clean_token(key) or environment_key(self.key_variable)),
            trust_env=not on_this_machine(url),
        )
        self.name = self.model_name()

    def model_name(self) -> str | None:
        """Return the name of the server's model."""
        return self.request("GET", "/v1/models")["data"][0]["id"]

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request and return the JSON of the response; raise `DataError` for an error or other content."""
        try:
            reply = self.http.request(method, f"{self.url}{path}", json=body)
            reply.raise_for_status()
            return reply.json()
        except httpx.HTTPStatusError as error:
            refusal = f"{self.url}{path}: {error.response.status_code} {error.response.text[:300]}"
            remedy = f"; start {self.program} with {self.start}" if _is_unserved(error.response) else ""
            raise DataError(refusal + remedy) from error
        except (httpx.HTTPError, ValueError) as error:
            raise DataError(
                f"{self.url}{path}: no answer ({error}); is {self.program} running, with {self.start}?"
            ) from error

    def post(self, path: str, **body: Any) -> Any:
        """Send a POST request that names the model, and return the JSON of the response."""
        return self.request("POST", path, {"model": self.name, **body})


def _is_unserved(response: httpx.Response) -> bool:
    """Return whether the server was started without this endpoint, or for another task."""
    try:
        return response.status_code == 404 or response.json()["error"]["param"] == "task"
    except (ValueError, KeyError, TypeError):
        return False


def batches(rows: Sequence[Row], size: int = EACH) -> Iterator[Sequence[Row]]:
    """Yield consecutive parts of at most `size` rows."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def sort_by_index(data: Sequence[dict[str, Any]], field: str) -> list[Any]:
    """Return a field of every entry of a response, in the order of `index`."""
    return [entry[field] for entry in sorted(data, key=lambda entry: entry["index"])]


def all_or_none(rows: Sequence[list[int] | None], change: Callable[[list[int]], list[int]]) -> list[list[int]] | None:
    """Apply `change` to every row of token ids; return None if the server does not report one of them."""
    changed = [change(row) for row in rows if row is not None]
    return changed if len(changed) == len(rows) else None


def chat_body(example: Example) -> dict[str, Any]:
    """Return messages and tools in OpenAI's format: the arguments of a call are JSON text."""
    body: dict[str, Any] = {"messages": [_chat_message(turn) for turn in example.turns]}
    return body | ({"tools": tools} if (tools := tools_of(example.prompt)) else {})


def _chat_message(turn: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {key: value for key, value in turn.items() if key not in ("tools", "tool_calls")}
    calls = []
    for call in turn.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(call | {"function": call["function"] | {"arguments": text}})
    return plain | ({"tool_calls": calls} if calls else {})


def token_classify_options(labels: Sequence[str] = ()) -> str:
    """Return vLLM's options for scoring tokens by a token classifier, or by a causal language model's label tokens.

    vLLM chooses the pooling task by the model's class unless an option names it. The classifier's head consists of
    those rows of a causal language model's output head that belong to `labels` (tokens as in the vocabulary).

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
        """Return the head's outputs at every token that the server returns, [tokens, labels] per row."""
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
        """Return None: the server has one model, which requests need not name."""
        return None


def vllm(url: str, model: Any) -> tuple[dict[str, Backend], dict[str, Backend]]:
    """Score with vLLM on our token ids, with and without its activation; and on messages, with the server's template.

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
        """Return the head's output for each row through the embedding endpoint."""
        return sort_by_index(self.post("/v1/embeddings", input=rows)["data"], "embedding")

    def probabilities(self, rows: Sequence[list[int]]) -> list[list[float]]:
        """Return the label probabilities; this endpoint documents one sequence per request."""
        return [self.post("/v1/classify", input=row)["data"][0]["probs"] for row in rows]

    def tokens(self, text: str) -> list[int] | None:
        """Return a text's token ids by the server's tokenizer; None if it has no such endpoint."""
        try:
            return self.post("/tokenize", prompt=text)["tokens"]
        except DataError:
            return None


def sglang(url: str, model: Any) -> tuple[dict[str, Backend], dict[str, Backend]]:
    """Score with SGLang on our token ids, by each endpoint; and on rendered text, with the server's tokenizer.

    The second group is for conversations without truncation: SGLang refuses or truncates longer ones in its own way.
    """
    if not isinstance(model, ReadsTokens):
        raise UsageError(f"--against sglang sends token ids, and kind '{model.contract.kind}' has no tokenizer")
    server = Sglang(url)

    def by_ids(endpoint: Any) -> Backend:
        def score(examples: Sequence[Example]) -> BackendScores:
            rows = [encoded.ids for encoded in model.encoder.encode_all(examples)]
            return BackendScores(as_scores([score for some in batches(rows) for score in endpoint(some)]), rows)

        return score

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
