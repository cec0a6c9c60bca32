"""Sampling of several completions per prompt from a policy in this process or behind a server; rewards and files.

An interrupted run can be resumed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from ...judges.backends.chat import Ask
from ...judges.backends.faults import EMPTY
from ...judges.backends.openai_endpoint import Endpoint
from ...judges.store import Store, StoredReplies
from ...policy.decoding.best_of_n import Gain, expected_gains
from ...policy.decoding.engines import Engine
from ...policy.decoding.guided import decode
from ...policy.decoding.requests import Request
from ...policy.decoding.selection import Pick, PickedPair, win_shares
from ...policy.rewards.sources import RewardSources
from ...policy.training.prompts import PromptRow
from ...policy.types import Rewards
from ...rm.data.messages_and_tools import as_columns
from ...rm.data.pairs import row_id
from ...rm.errors import DataError
from ...rm.types import OVERALL, Example, Message, content_hash
from ..runs.resumable_rows import ResumableRows, engine_identity
from ..runs.run_folder import log, write_rows

ALL, CONTROL = "all.parquet", "_control"
SEEDS = 2**31
"""Exclusive upper bound of the seeds in requests, within the range that every server accepts."""


class SampledCompletion(NamedTuple):
    """Text of a completion, why it ended (`eos`, `stop`, `length` ...), and its number of tokens."""

    text: str
    finished: str
    tokens: int

    @property
    def is_cut(self) -> bool:
        """Whether the completion ended at the maximum length or at the end of the context."""
        return self.finished in ("length", "context")


def sample_locally(
    engine: Engine, requests: Sequence[Request], file: Path, *, batch_size: int
) -> tuple[list[SampledCompletion], int]:
    """Return one completion per request, and how many of them this call generated; the rest were read from `file`.

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
    """Return one completion per request, and how many of them this call requested; the rest were read from `folder`.

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
            f"{len(failed)} of {len(asks)} requests to {endpoint.name} have no completion; the first error: "
            f"{failed[0]}. Correct the cause and continue with --resume, which repeats only these requests"
        )
    return [SampledCompletion(reply.text, reply.finish, reply.completion_tokens) for reply in replies], requested


# ---- rewards ----


class Sample(NamedTuple):
    """Prompts, n completions of each in a flat list, and their rewards."""

    prompts: Sequence[PromptRow]
    completions: Sequence[SampledCompletion]
    rewards: Rewards
    names: Sequence[str]
    """Names of the rewards that are used for selection. The other rewards are only reported."""

    @property
    def total(self) -> Float[ndarray, "P n"]:
        """Mean over the rewards used for selection. NaN if one of these rewards is missing."""
        return self.by_prompt(self.rewards.values[:, self._columns].mean(1))

    @property
    def parts(self) -> Float[ndarray, "P n E"] | None:
        """Rewards used for selection if several, else rewards of the ensemble's members. None if neither exists."""
        every = self.rewards.values if len(self.names) > 1 else self.rewards.members
        if every is None:
            return None
        parts = every[:, self._columns].flatten(1)
        parts = parts[:, ~parts.isnan().all(0)]  # a watched ensemble may have more members
        return parts.numpy().reshape(len(self.prompts), -1, parts.shape[1]) if parts.shape[1] else None

    @property
    def spread(self) -> Float[ndarray, " N"] | None:
        """Standard deviation over `parts`. None if `parts` is None."""
        return None if self.parts is None else self.parts.std(2).ravel()

    @property
    def _columns(self) -> list[int]:
        return [self.rewards.index(name) for name in self.names]

    def by_prompt(self, values: Float[Tensor, " N"]) -> Float[ndarray, "P n"]:
        """Reshape one value per completion into a table with one row per prompt."""
        return values.numpy().reshape(len(self.prompts), -1)

    def texts(self) -> list[list[str]]:
        """Return the texts of the completions, [P][n]."""
        texts = iter(completion.text for completion in self.completions)
        return [[next(texts) for _ in range(len(self.completions) // len(self.prompts))] for _ in self.prompts]

    def lengths(self, in_tokens: bool) -> Float[ndarray, "P n"]:
        """Return the lengths of the completions in tokens or in characters."""
        counts = [completion.tokens if in_tokens else len(completion.text) for completion in self.completions]
        return self.by_prompt(torch.tensor(counts, dtype=torch.float64))

    def ids(self) -> list[str]:
        """Return the ids of the prompts' rows if every row has a unique id, else the indices of the prompts."""
        stated = [row_id(row.columns) for row in self.prompts]
        unique = None not in stated and len({*map(str, stated)}) == len(stated)
        return [str(id) for id in (stated if unique else range(len(stated)))]


def rate(
    sources: RewardSources, prompts: Sequence[PromptRow], completions: Sequence[SampledCompletion], batch_size: int
) -> Rewards:
    """Compute the rewards of all completions in batches. `batch_size` is a multiple of the completions per prompt."""
    n, parts = len(completions) // len(prompts), []
    with tqdm(total=len(completions), desc="rewards", unit="completion", disable=None) as bar:
        for first in range(0, len(completions), batch_size):
            batch = completions[first : first + batch_size]
            rows = [(first + offset) // n for offset in range(len(batch))]
            pairs = zip(rows, batch, strict=True)
            examples = [Example(prompts[row].prompt, completion.text) for row, completion in pairs]
            rewards, _ = sources(examples, rows=rows, finished=[not completion.is_cut for completion in batch])
            parts.append(rewards)
            bar.update(len(batch))
    members = [part.members for part in parts if part.members is not None]
    most = max((part.shape[2] for part in members), default=0)  # a batch of faults has fewer
    padded = [pad(part, (0, most - part.shape[2]), value=math.nan) for part in members]
    values = torch.cat([part.values for part in parts])
    return Rewards(values, parts[0].names, members=torch.cat(padded) if len(padded) == len(parts) else None)


def log_gains(sample: Sample) -> dict[str, Any]:
    """Return and log the expected gain of best-of-n in the reward used for selection, and in every other reward."""
    rewards = torch.from_numpy(sample.total)
    gains, watched = expected_gains(rewards, rewards), {}
    for gain in gains[-1:]:
        log(
            f"the best of {gain.n} by reward: expected gain {_text(gain)} over the mean completion ({gain.prompts} "
            f"prompts), at a KL of at most {gain.kl_bound:.3g} nats from the policy"
        )
    for name in (name for name in sample.rewards.names if name not in sample.names):
        values = torch.from_numpy(sample.by_prompt(sample.rewards[name]))
        for gain in expected_gains(rewards, values)[-1:]:
            watched[name] = gain._asdict()
            worse = "; the selection lowers this reward" if gain.high < 0 else ""
            log(f"expected gain in '{name}': {_text(gain)} ({gain.prompts} prompts){worse}")
    every = [gain._asdict() for gain in gains]
    return {"gain": every[-1] if every else None, "watched": watched, "gains": every}


def _text(gain: Gain) -> str:
    return f"{gain.value:+.3g} [{gain.low:.3g}, {gain.high:.3g}]"


# ---- files ----


def write_selection(sample: Sample, name: str, picks: Sequence[Any], control: Sequence[Any], folder: Path) -> None:
    """Write the selected rows to `NAME.jsonl` and the control to `NAME_control.jsonl`.

    Pairs selected by several rewards or an ensemble have `wins`, the share of rewards or members that prefer `chosen`.
    """
    texts, ids, rewards, parts = sample.texts(), sample.ids(), sample.total, sample.parts

    def row(pick: Pick | PickedPair, is_control: bool) -> dict[str, Any]:
        prompt = list(sample.prompts[pick.prompt].prompt)
        chosen, *others = [_as_messages(texts[pick.prompt][index]) for index in pick[1:]]
        scores = [float(rewards[pick.prompt, index]) for index in pick[1:]]
        if not others:
            number = f"{ids[pick.prompt]}/{pick[1]}"
            return {"id": number, "prompt": prompt, "completion": chosen, "reward": scores[0]}
        pair = {"id": ids[pick.prompt], "prompt": prompt, "chosen": chosen, "rejected": others[0]}
        if is_control:
            return pair
        pair |= dict(zip(("score_chosen", "score_rejected"), scores, strict=True))
        return pair if parts is None else pair | {"wins": {OVERALL: float(win_shares([pick], parts)[0])}}

    write_rows(folder / f"{name}.jsonl", (row(pick, False) for pick in picks))
    write_rows(folder / f"{name}{CONTROL}.jsonl", (row(pick, True) for pick in control))


def _as_messages(text: str) -> list[Message]:
    return [Message(role="assistant", content=text)]


def write_all(sample: Sample, contracts: Mapping[str, str], path: Path) -> None:
    """Write every completion with its rewards; the hashes of the scoring contracts are metadata of the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids, n = sample.ids(), len(sample.completions) // len(sample.prompts)
    prompts = [[as_columns(turn) for turn in row.prompt] for row in sample.prompts]
    columns: dict[str, Any] = {
        "id": [id for id in ids for _ in range(n)],
        "index": [*range(n)] * len(ids),
        "prompt": [prompt for prompt in prompts for _ in range(n)],
        "completion": [completion.text for completion in sample.completions],
        "finished": [completion.finished for completion in sample.completions],
        "tokens": [completion.tokens for completion in sample.completions],
    }
    reserved = {*columns, "reward", "spread"}
    names = [f"reward_{name}" if name in reserved else name for name in sample.rewards.names]
    values = dict(zip(names, sample.rewards.values.numpy().T, strict=True)) | {"reward": sample.total.ravel()}
    if sample.spread is not None:
        values["spread"] = sample.spread
    columns |= {name: pa.array(column, from_pandas=True) for name, column in values.items()}
    pq.write_table(pa.table(columns).replace_schema_metadata({"contracts": json.dumps(contracts)}), path)
