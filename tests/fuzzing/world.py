"""The valid folders that are bent: small models, and runs as the verbs write them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from peft import LoraConfig
from rewardlab.apps.runs.evaluation_files import write_evaluation
from rewardlab.apps.runs.judgments import write_judgments
from rewardlab.apps.runs.run_folder import write_json, write_rows
from rewardlab.apps.runs.tables import STEPS
from rewardlab.benchmarks.accounts import evaluate_judges
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.pairs import pairs as pairs_suite
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds.rubric import rubric
from rewardlab.judges.rubrics.rubric import from_toml
from rewardlab.judges.types import Case
from rewardlab.policy.training.rollout_files import write_rollouts
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.adapters.adapter import attach
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.kinds.ensemble.model import load_ensemble
from rewardlab.rm.kinds.latent.model import latent_from_config
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.kinds.scalar.model import load_scalar, scalar_from_config
from rewardlab.rm.types import Example, user_turn
from transformers import AutoModelForCausalLM

from tests.fuzzing.shapes import Shape
from tests.fuzzing.target import Target

TEXTS = [f"the {noun} is {word}" for noun in ("answer", "tree", "sum", "bird") for word in ("short", "long", "four")]
EXAMPLES = [Example(user_turn("What is it?"), text) for text in TEXTS]
RUBRIC = """
source = "ours"
[[rules]]
id = "names"
type = "must"
criterion = "Names a tree."
test = "Search for a tree."
weight = 3.0
[[principles]]
id = "short"
description = "Is short."
weight = -1.0
"""
CASES = [
    Case("c1", user_turn("Name a tree"), ("An oak is a tree.", "A newt"), (0,), "trees"),
    Case("c2", user_turn("Name a bird"), ("heron", "a newt", "moon"), (0, 1), "birds"),
]
SAID = '{"rules": [{"id": "names", "met": "yes", "evidence": "oak"}, {"id": "short", "met": "no", "evidence": ""}]}'


@cache
def _kept() -> TemporaryDirectory[str]:
    """A folder that stays as long as the process, with every valid folder in it."""
    kept = TemporaryDirectory(prefix="rewardlab-valid-")
    folder = Path(kept.name)
    _models(folder)
    _evaluation(folder / "eval")
    _judging(folder / "judge")
    _training(folder / "rl")
    return kept


def home() -> Path:
    return Path(_kept().name)


@cache
def files(name: str) -> Mapping[str, bytes]:
    """The files of one of the folders by their paths in it."""
    folder = home() / name
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def inside(family: str, folder: str, file: str, opens: Any, shape: Shape | None, name: str = "") -> Target:
    """A file of one of the folders beside its others."""
    found = files(folder)
    beside = {path: content for path, content in found.items() if path != file}
    return Target(f"{family}/{name or f'{folder}/{file}'}", file, (found[file],), opens, shape, beside)


def _models(folder: Path) -> None:
    words = small_tokenizer(TEXTS, 300)
    config = small_config(words, hidden=8, layers=1, heads=1, positions=64)
    small = scalar_from_config(config, words)
    small.save(folder / "scalar")
    write_golden(small, EXAMPLES[:2], folder / "scalar")
    lora = LoraConfig(r=2, target_modules=["q_proj"])
    adapted = load_scalar(str(folder / "scalar" / "."), fresh=True, lora=lora)
    adapted.save(folder / "lora")
    latent_from_config(config, words, latent_depth="head").save(folder / "latent")
    load_ensemble(f"{folder}/scalar,{folder}/scalar").save(folder / "ensemble")
    words_only = new_linear()
    words_only.vectorizer.set_params(min_df=1)
    words_only.vectorizer.fit(TEXTS)
    words_only.weights = torch.linspace(-1, 1, len(words_only.vectorizer.vocabulary_) + 1).double().numpy()
    words_only.save(folder / "linear")
    base = arm_base()
    settings = AdapterSettings("moslora", ("helpful", "harmless"), rank=2, targets=("q_proj",), hidden=4)
    attach(base, settings, words).save_pretrained(folder / "arm")


def arm_base() -> torch.nn.Module:
    """A small language model without an adapter, the same at every call."""
    words = small_tokenizer(TEXTS, 300)
    config = small_config(words, hidden=8, layers=1, heads=1, positions=64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).float()


def _evaluation(folder: Path) -> None:
    scores: Mapping[str, tuple[float, ...] | str] = {"c1": (1.0, 0.5), "c2": "no reply"}
    models = [StoredScores("rm", scores), StoredScores("length", {"c1": (0.0, 1.0), "c2": (1, 2, 3)}, role="baseline")]
    folder.mkdir()
    write_evaluation(evaluate(pairs_suite(), CASES, models, samples=20), folder)
    (folder / "config.yaml").write_text(yaml.safe_dump({"objective": None, "model": ["rm"], "preference": None}))
    write_json(folder / "manifest.json", {"contracts": {"rm": "0123456789abcdef"}, "seed": 0})


def _judging(folder: Path) -> None:
    court = [rubric(scripted(lambda _ask: SAID, "small"), from_toml(RUBRIC), name="small rubric")]
    found = evaluate_judges(pairs_suite(), CASES[:1], court, notes=(), samples=20)
    folder.mkdir()
    write_evaluation(found, folder)
    write_judgments(found, ["small rubric"], folder)
    (folder / "rubric.toml").write_text(RUBRIC)
    (folder / "config.yaml").write_text(yaml.safe_dump({"rubric": "rubric.toml", "score": "gated"}))
    write_json(folder / "manifest.json", {})


def _training(folder: Path) -> None:
    folder.mkdir()
    settings = {"reward": ["rm=runs/rm", "style=my.code:style"], "watch": ["gold=runs/gold"], "weight": ["style=0.5"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    lines = ({"reward": step / 10, "rewards/rm/mean": 0.5, "watch/kl": 0.1, "step": step} for step in range(3))
    write_rows(folder / STEPS, lines)
    rollout = Rollout(
        group=torch.tensor([0, 0]),
        response=torch.tensor([[True, True], [True, False]]),
        finished=torch.tensor([True, False]),
        tokens=torch.tensor([[5, 6], [8, 0]]),
        logprobs=torch.tensor([[-1.0, -2.0], [-1.0, 0.0]]),
        base=torch.tensor([[-1.5, -2.0], [-1.0, 0.0]]),
    )
    rewards = {"sources": Rewards(torch.tensor([[1.0, 2.0], [0.5, float("nan")]]), ("rm", "style"))}
    advantages = {"estimate": torch.tensor([0.75, -0.75]), "spread": torch.tensor([[3.0, 0.0], [-0.5, 0.0]])}
    path = folder / "rollouts" / "step-000002.parquet"
    write_rollouts(path, 2, EXAMPLES[:2], rollout, rewards, advantages, {"rm": {"head": 1}})
    write_json(folder / "manifest.json", {})
