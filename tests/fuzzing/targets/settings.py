"""What a user's files and words say: rubrics, checklists, levels, gates, settings, and specs of a line."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from rewardlab.apps.cli import VERBS, parse
from rewardlab.apps.inspector.tabs.judgments.explanation.rescore import parse_rubric
from rewardlab.benchmarks.compare import read_gate
from rewardlab.judges.kinds.checklist import read_checklist
from rewardlab.judges.rubrics.files import open_levels, read_rubrics
from rewardlab.judges.rubrics.rubric import lint, render, to_toml
from rewardlab.rm.data.preference_vectors import parse_preference, preference_vector
from rewardlab.rm.registry.specs import build, is_function, parse_spec, split_name

from tests.fuzzing.shapes import JSON, JSON_LINES, TOML, YAML
from tests.fuzzing.target import Target
from tests.fuzzing.targets.preferences import lines
from tests.fuzzing.world import RUBRIC

LEVELS = {"criteria": "Is it right?"} | {f"score{level}_description": f"level {level}" for level in range(1, 6)}
OURS = {"rules": [{"id": "r", "type": "must", "criterion": "c", "test": "t", "veto": True}], "principles": []}
CASE = {"case": "1", "rubric": OURS}
HEALTH = {"prompt_id": "2", "rubrics": [{"criterion": "Names a dose.", "points": -5, "tags": []}]}
QUESTIONS = b"""questions = [
    {id = "q1", text = "Is it a tree?"},
    {id = "q2", text = "An oak?", depends_on = ["q1"]},
]"""
GATE = b"- area: overall\n  max_drop: 0.01\n  even_if_noise: true\n"
TRAIN = {
    "data": ["pairs.jsonl"], "model": "small", "learning_rate": 1e-4, "lora": True, "max_steps": 3, "output": "run",
}  # fmt: skip
LOSSES = (b"bradley_terry", b"smoothed_bradley_terry(epsilon=0.2)")
TRANSFORMS = (b"gate(reward=rm, by=form, threshold=0.5)", b"clip(eta=0.5)")
SPECS = (*LOSSES[:1], *TRANSFORMS[:1], b"judge(kind=pairwise(seeds=[1, 2]))", b"my_rewards.code:compiles(timeout=2)")


def settings() -> list[Target]:
    whole = to_toml(parse_rubric(RUBRIC)).encode()
    return [
        Target("settings/rubric.toml", "rubric.toml", (RUBRIC.encode(), whole), _rubrics, TOML),
        Target("settings/rubric.json", "rubric.json", (json.dumps(OURS).encode(),), _rubrics, JSON),
        Target("settings/rubrics.jsonl", "rubrics.jsonl", (lines([CASE, HEALTH]),), _rubrics, JSON_LINES),
        Target("settings/typed rubric", "typed.txt", (whole,), lambda path: parse_rubric(_text(path))),
        Target("settings/levels.json", "levels.json", (json.dumps(LEVELS).encode(),), _levels, JSON),
        Target("settings/checklist.toml", "questions.toml", (QUESTIONS,), lambda path: read_checklist(str(path)), TOML),
        Target("settings/gate.yaml", "gate.yaml", (GATE,), lambda path: read_gate(str(path)), YAML),
        Target("settings/config.yaml", "config.yaml", (yaml.safe_dump(TRAIN).encode(),), _config, YAML),
        Target("settings/specs", "spec.txt", SPECS, _specs),
        Target("settings/losses", "spec.txt", LOSSES, _builds("rm.losses")),
        Target("settings/transforms", "spec.txt", TRANSFORMS, _builds("policy.transforms")),
        Target("settings/preference", "spec.txt", (b"helpful=0.7,harmless=0.3",), _preference),
    ]


def _rubrics(path: Path) -> None:
    for rubric in read_rubrics(path).values():
        lint(rubric, ["An oak is a tree, and it is as long as it is wide."])
        render(rubric)


def _levels(path: Path) -> None:
    levels: Any = open_levels(str(path))
    levels.render()


def _config(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        parse("train", VERBS["train"], ["--config", str(path)])


def _specs(path: Path) -> None:
    text = _text(path)
    parse_spec(text)
    split_name(text)
    is_function(text)


def _builds(folder: str) -> Callable[[Path], None]:
    """Functions of users are left out: naming one imports it."""

    def opens(path: Path) -> None:
        if ":" not in (text := _text(path)):
            build(folder, text)

    return opens


def _preference(path: Path) -> None:
    preference_vector(parse_preference(_text(path)), ["helpful", "harmless"])


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")
