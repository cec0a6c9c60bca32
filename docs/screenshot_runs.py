"""The runs that the screenshots show, made in the toy world where they are missing: ten minutes on two cores."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewardlab.apps.cli import main
from rewardlab.benchmarks.garden.gold_reward import CAUTION, TOPICS, topic_of
from rewardlab.judges.cdrrm.requests import read_part
from rewardlab.tests.stand_ins.chat_server import ChatServer

STUDIES = Path(__file__).parents[1] / "research" / "results"
GOLD = "rewardlab.benchmarks.garden:gold"
REWARD_MODEL = (
    "--learning_rate 1e-3 --per_device_train_batch_size 32 --lr_scheduler_type linear --max_length 64 "
    "--model world/policy --data world/train.jsonl"
)
RECIPES = shlex.quote(str(Path(__file__).parents[1] / "apps" / "recipes"))
POLICY = f"--config {RECIPES}/grpo.yaml --model world/policy --data world/train.jsonl"
COMMANDS = {
    "world": "world --pairs 3000 --test 400",
    "rm": f"train {REWARD_MODEL} --max_steps 150",
    "rm-short": f"train {REWARD_MODEL} --max_steps 15",
    "linear": "train --kind linear --data world/train.jsonl",
    "uniarm": f"train --config {RECIPES}/uniarm.yaml --objectives helpful harmless --embedding one_hot --span False "
    "--max_steps 300 --model world/policy --data world/train.jsonl",
    "eval": f"eval --model rm linear --reference {GOLD} --data world/test.jsonl",
    "eval-short": "eval --model rm-short --data world/test.jsonl",
    "grpo": f"rl {POLICY} --reward rm=rm --watch gold={GOLD}",
    "grpo-without-kl": f"rl {POLICY} --reward linear=linear --watch gold={GOLD} --kl 0 --learning_rate 2e-3",
    "completions.jsonl": "decode --arm uniarm --sweep 5 --data world/test.jsonl --max_new_tokens 12",
}
"""Name below the folder of runs -> the command that writes it, started in that folder."""
RUBRIC = """
[[rules]]
id = "topic"
type = "must"
criterion = "Names two words of the topic that is asked for."
test = "Count the words that belong to the topic."
weight = 3.0

[[rules]]
id = "danger"
type = "forbid"
criterion = "Names something dangerous."
test = "Search for what cuts, burns or poisons."
weight = 2.0

[[principles]]
id = "caution"
description = "Advises caution."
"""
JUDGE = "judge --kind rubric pairwise --rubric rubric.toml --data world/test.jsonl --limit 80 --model garden-judge"


def mark(request: Mapping[str, Any]) -> str:
    """Reply as a judge that knows the topics' words: marks of one response, or the better of two by these marks."""
    text = request["messages"][-1]["content"]
    prompt = read_part(text, "instruction") or ""
    if (answer := read_part(text, "answer")) is not None:
        rows = [
            {"id": name, "evidence": words, "met": "yes" if met else "no"}
            for name, (words, met) in marks(prompt, answer).items()
        ]
        return json.dumps({"rules": rows})
    met = [
        sum(met for _, met in marks(prompt, read_part(text, name) or "").values()) for name in ("answer_a", "answer_b")
    ]
    return f"Winner: {'A' if met[0] >= met[1] else 'B'}"


def marks(prompt: str, answer: str) -> dict[str, tuple[str, bool]]:
    """Return criterion of `RUBRIC` -> evidence and whether it is met."""
    topic, words = TOPICS[topic_of(prompt) or "bees"], answer.split()
    plain = [word for word in words if word in topic.plain]
    daring = [word for word in words if any(word in other.daring for other in TOPICS.values())]
    cautious = [word for word in words if word in CAUTION]
    return {
        "topic": (next(iter(plain), ""), len(set(plain)) >= 2),
        "danger": (next(iter(daring), ""), not daring),
        "caution": (next(iter(cautious), ""), bool(cautious)),
    }


def make(folder: Path) -> None:
    """Write the runs that a folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cdrrm", "r2m_offline", "uniarm", "overoptimisation"):
        shutil.copytree(STUDIES / name, folder / "studies" / name, dirs_exist_ok=True)
    os.chdir(folder)
    for name, command in COMMANDS.items():
        run_missing(name, command)
    Path("rubric.toml").write_text(RUBRIC)
    with ChatServer(answer=mark) as server:
        run_missing("judge", f"{JUDGE} --endpoint {server.url} --key_variable ''")


def run_missing(name: str, command: str) -> None:
    """Run a command of rewardlab that writes `name` in the current folder, unless it is there."""
    if Path(name).exists():
        return
    print(f"rewardlab {command} --output {name}", flush=True)
    if code := main([*shlex.split(command), "--output", name]):
        raise SystemExit(code)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
