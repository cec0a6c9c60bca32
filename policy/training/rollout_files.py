"""Rollout files: one step's completions as Parquet, with tokens, log-probabilities, rewards and advantages by stage."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from ...rm.types import Example, prompt_text
from ..types import Rewards, Rollout


def write_rollouts(
    path: Path,
    step: int,
    examples: Sequence[Example],
    rollout: Rollout,
    rewards: Mapping[str, Rewards],
    advantages: Mapping[str, Tensor],
    versions: Mapping[str, Mapping[str, Any]] | None = None,
    writers: Sequence[str] | None = None,
) -> None:
    """Write one row per completion, atomically.

    `rewards` and `advantages` are ordered by stage: the output of the sources and of each reward transform, then of the
    estimator and of each advantage transform. An advantage is a list: one number, or one number per completion token.
    `logprobs` are log-probabilities under the model that generated the completion; the column `logprobs_of` names
    it (`writers`, such as "server" or "agent 1"; by default the policy). Where that model returned none, the policy's
    value replaces it. `policy_logprobs` are log-probabilities under the policy. NaN is stored as null. `versions` are
    the versions of online reward models.
    """
    response = rollout.response
    log_of = (response, pa.float32())
    columns: dict[str, Any] = {
        "step": pa.array([step] * len(examples), pa.int64()),
        "group": pa.array(rollout.group.tolist(), pa.int64()),
        "prompt": [prompt_text(example.prompt) for example in examples],
        "completion": [example.text for example in examples],
        "finished": rollout.finished.tolist(),
        "length": pa.array(response.sum(1).tolist(), pa.int32()),
        "tokens": _completion_lists(rollout.tokens, response, pa.int32()),
        "logprobs": _completion_lists(rollout.logprobs if rollout.written is None else rollout.written, *log_of),
        "logprobs_of": ["policy"] * len(examples) if writers is None else [*writers],
        "policy_logprobs": _completion_lists(rollout.logprobs, *log_of),
        "base": _completion_lists(rollout.base, response, pa.float32()),
        "values": _completion_lists(rollout.values, response, pa.float32()),
    }
    for stage, stage_rewards in rewards.items():
        for name in stage_rewards.names:
            columns[f"reward/{stage}/{name}"] = pa.array(
                stage_rewards[name].double().numpy(force=True), from_pandas=True
            )
    for stage, values in advantages.items():
        lists = values[:, None].tolist() if values.dim() == 1 else _rows(values, response)
        columns[f"advantage/{stage}"] = pa.array(lists, pa.list_(pa.float64()))
    for name, version in (versions or {}).items():
        columns |= {f"version/{name}/{part}": [value] * len(examples) for part, value in version.items()}
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), unfinished)
    unfinished.replace(path)


def _completion_lists(values: Tensor | None, response: Tensor, kind: pa.DataType) -> pa.Array:
    """Convert values [N, L] to one list per completion, over the tokens in `response`. Nulls if `values` is None."""
    lists = [None] * len(response) if values is None else _rows(values, response)
    return pa.array(lists, pa.list_(kind))


def _rows(values: Tensor, response: Tensor) -> list[list[Any]]:
    """Return each row's values under its mask as a list."""
    return [row[mask].tolist() for row, mask in zip(values, response, strict=True)]
