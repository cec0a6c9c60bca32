"""Several completions of each prompt by a policy in this process or behind a server; an interrupted run continues."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from ....judges.backends.chat import Ask
from ....judges.backends.faults import EMPTY
from ....judges.backends.openai_endpoint import Endpoint
from ....judges.store import Store, StoredReplies
from ....policy.decoding.engines import Engine
from ....policy.decoding.guided import decode
from ....policy.decoding.requests import Request
from ....policy.decoding.search import derived
from ....rm.errors import DataError
from ....rm.types import content_hash
from ...runs.resumable_rows import ResumableRows, engine_identity

SEEDS = 2**31
"""Seeds of servers are below this number, which every server accepts."""


class SampledCompletion(NamedTuple):
    """Text of a completion, why it ended (`eos`, `stop`, `length` ...), and its number of tokens."""

    text: str
    finished: str
    tokens: int

    @property
    def is_cut(self) -> bool:
        """Whether the completion ended at the maximum length or at the end of the context."""
        return self.finished in ("length", "context")


def repeated(requests: Sequence[Request], n: int) -> list[Request]:
    """Return n requests for each request, with the seeds of `best_of_n`; those of one prompt are neighbours."""
    return [replace(request, seed=derived(request.seed, 0, i)) for request in requests for i in range(n)]


def sample_locally(
    engine: Engine, requests: Sequence[Request], file: Path, *, batch_size: int
) -> tuple[list[SampledCompletion], int]:
    """Return a completion of each request, and how many were generated now; the others were read from `file`.

    A batch is appended to the file when it is complete.
    """
    models, rows = engine_identity(engine), ResumableRows(file, resume=True, overwrite=False)
    keys = [content_hash([index, asdict(request), models]) for index, request in enumerate(requests)]
    stored = rows.resume(keys)
    missing = [index for index, key in enumerate(keys) if key not in stored]
    with tqdm(total=len(keys), initial=len(stored), desc="sampling", unit="completion", disable=None) as bar:
        for first in range(0, len(missing), batch_size):
            batch = missing[first : first + batch_size]
            requested = [requests[index] for index in batch]
            completions = decode(engine, requested, batch_size=batch_size, progress=False, guide_logprobs=False)
            for index, completion in zip(batch, completions, strict=True):
                facts = SampledCompletion(completion.text, completion.finished, len(completion.tokens))
                rows.append(keys[index], facts._asdict())
            bar.update(len(batch))
    return [SampledCompletion(**row) for row in rows.rows(keys)], len(missing)


def sample_from_server(
    endpoint: Endpoint, requests: Sequence[Request], folder: Path
) -> tuple[list[SampledCompletion], int]:
    """Return a completion of each request, and how many were requested now; the others were read from `folder`.

    Replies are stored on arrival. Raise `DataError` if the server left requests without a reply.
    """
    asks = [
        Ask(request.prompt, None, request.max_new_tokens, request.temperature, request.seed % SEEDS)
        for request in requests
    ]
    with Store(folder) as store:
        before = len(store.replies)
        replies = StoredReplies(endpoint, store).ask(asks)
        requested = len(asks) - before
    failed = [reply.error for reply in replies if reply.error and not reply.error.startswith(EMPTY.name)]
    if failed:
        raise DataError(
            f"{len(failed)} of {len(asks)} requests to {endpoint.name} have no completion, the first since "
            f"{failed[0]}; mend it and continue with --resume, which repeats only these"
        )
    return [SampledCompletion(reply.text, reply.finish, reply.completion_tokens) for reply in replies], requested
