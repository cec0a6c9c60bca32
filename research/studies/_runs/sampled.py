"""Runs of `rewardlab sample` in a study: the rewards of all completions, the best of each prompt and a random one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from ....apps.api import sample
from ....policy.decoding.best_of_n import expected_gains
from ....rm.types import Messages
from ...statistics.estimates import Estimate
from .job_cache import Arrays

SELECTED = {"best": "best", "random": "best_control"}
"""Names of the files of a selection, by what is selected."""


def length(completions: Sequence[Any]) -> list[float]:
    """Return the number of characters of every completion, a reward function with TRL's signature."""
    return [float(len(completion[-1]["content"])) for completion in completions]


LENGTH = f"{__name__}:{length.__name__}"


def sample_best(folder: Path, prompts: Sequence[Messages], rewards: Mapping[str, str], **settings: Any) -> Arrays:
    """Select the best completion of each prompt by the first reward, and only report the others.

    Returns texts, tokens and every reward of all completions [P, n], and the indices of the `best` and `random`
    completions of the prompts in `selected`. A run that was cut off in `folder` is continued.
    """
    rows = [{"prompt": list(prompt)} for prompt in prompts]
    first, *others = [f"{name}={reward}" for name, reward in rewards.items()]
    sample(rows, reward=first, watch=others, output=folder, select=["best"], resume=True, overwrite=True, **settings)
    columns = pq.read_table(folder / "all.parquet").to_pydict()
    names = {"texts": "completion", "tokens": "tokens"} | {name: name for name in rewards}
    arrays = {key: np.array(columns[name]).reshape(len(prompts), -1) for key, name in names.items()}
    for key, name in SELECTED.items():
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        arrays["selected"], arrays[key] = np.array([json.loads(line)["id"].split("/") for line in lines]).astype(int).T
    return arrays


def selection_gains(arrays: Arrays, name: str) -> np.ndarray:
    """Return the differences between the best and the random completion of each prompt in a reward."""
    values, prompts = arrays[name], arrays["selected"]
    return values[prompts, arrays["best"]] - values[prompts, arrays["random"]]


def best_of_all(arrays: Arrays, selector: str, name: str) -> Estimate:
    """Estimate the expected gain in a reward of the best of all n completions by another one."""
    rewards, values = (torch.from_numpy(arrays[key].astype(float)) for key in (selector, name))
    return Estimate(*expected_gains(rewards, values)[-1][1:4])
