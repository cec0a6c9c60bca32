"""Run folders as `rewardlab rl` writes them, of numbers that can be checked on paper."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from rewardlab.apps.runs.run_folder import write_json
from rewardlab.policy.training.rollout_files import write_rollouts
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.types import Example, user_turn

HOSTILE = "<img src=x onerror=window.hacked=1>"
TEXTS = (("why?", "because it is"), ("why?", f"so {HOSTILE}"), ("how?", "thus"))
EXAMPLES = [Example(user_turn(prompt), completion) for prompt, completion in TEXTS]
SETTINGS = {"reward": ["rm=runs/rm", "style=my.code:style"], "watch": ["gold=my.code:gold"], "weight": ["style=0.5"]}
NAMES = ("rm", "style", "gold")
NAN = float("nan")


def logged(step: int, **more: float) -> dict[str, float]:
    """A line of the log: the reward is step / 10, gold falls by as much, the KL rises by a quarter."""
    line = {"loss": 0.5, "epoch": 0.1, "step": step, "reward": step / 10, "entropy": 2.0, "watch/length": 10.0 + step}
    line |= {"watch/kl": step / 4, "watch/kl_stderr": 0.125, "rewards/rm/mean": step / 20}
    return line | {"rewards/style/mean": step / 10, "rewards/gold/mean": 1 - step / 10} | more


def write_training(
    folder: Path,
    lines: Sequence[Mapping[str, float]],
    *,
    kept: Sequence[int] = (0, 2, 4),
    settings: Mapping[str, Any] = SETTINGS,
    finished: bool = True,
) -> Path:
    """Settings, log, the answers of some steps, and a manifest where it is finished."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(settings)))
    (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in kept:
        keep_answers(folder, step)
    if finished:
        write_json(folder / "manifest.json", {})
    return folder


def keep_answers(folder: Path, step: int) -> None:
    """Three answers of 3, 2 and 1 tokens; the reward of the last is missing.

    rm 1, 0.5, missing; style 2, 4, 0; gold 3, 0, 0. The transform `gate` makes style 0 for the second. Trained on is
    rm + style / 2: 2, then 0.5. The estimate is a number each, and `spread` one a token: 3, 0, 0 for the first.
    """
    response = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    rollout = Rollout(
        group=torch.tensor([0, 0, 1]),
        response=response,
        finished=torch.tensor([True, False, True]),
        tokens=torch.tensor([[5, 6, 7], [8, 9, 0], [4, 0, 0]]),
        logprobs=torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -1.0, 0.0], [-3.0, 0.0, 0.0]]),
        base=torch.tensor([[-1.5, -2.0, -1.5], [-1.0, -1.0, 0.0], [-3.0, 0.0, 0.0]]),
        written=torch.full((3, 3), -9.0),
    )
    values = torch.tensor([[1.0, 2.0, 3.0], [0.5, 4.0, 0.0], [NAN, 0.0, 0.0]])
    gated = values.clone()
    gated[1, 1] = 0.0
    rewards = {"sources": Rewards(values, NAMES), "gate": Rewards(gated, NAMES)}
    spread = torch.tensor([[3.0, 0.0, 0.0], [-0.5, -1.0, 0.0], [0.0, 0.0, 0.0]])
    advantages = {"estimate": torch.tensor([0.75, -0.75, 0.0]), "spread": spread}
    path = folder / "rollouts" / f"step-{step:06d}.parquet"
    write_rollouts(path, step, EXAMPLES, rollout, rewards, advantages, {"rm": {"head": step, "omega": 0.5}})
