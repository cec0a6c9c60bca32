"""One step of every training by gradient descent on a batch of eight rows that is divided in several ways.

Run by torchrun as `divided_batches.py FILE`, it writes loss and gradient of every case as two processes compute them.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from rewardlab.apps.runs.processes import leave
from rewardlab.judges.cdrrm.weak_driven import WeakDrivenTrainer
from rewardlab.rm.adapters.adapter import attach
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.data.preference_vectors import dirichlet
from rewardlab.rm.kinds.autoregressive.preference_task import PreferenceRow, PreferenceTask
from rewardlab.rm.kinds.latent.model import latent_from_config
from rewardlab.rm.kinds.latent.training import LatentRow, LatentTask
from rewardlab.rm.kinds.multi_objective.training import ObjectiveRow, ObjectivesTask
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.kinds.process.training import ProcessTask, SolutionRow
from rewardlab.rm.kinds.scalar.lists import ListRow, ListTask
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.losses._pair_batch import PairLoss
from rewardlab.rm.losses.sequence_logistic import sequence_logistic
from rewardlab.rm.registry import load, names
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

ROWS, NAN, BOTH = 8, float("nan"), ("helpful", "harmless")
WORDS = small_tokenizer([f"the quick brown fox number {number} jumps" for number in range(60)], 120)
IDS = [[5 + (3 * row + column) % 90 for column in range(3 + row % 4)] for row in range(2 * ROWS)]
PAIRS = [PairRow(IDS[row], IDS[ROWS + row], 1.0 if row % 3 else 0.25, 0.5 + row % 2, row / ROWS) for row in range(ROWS)]
NO_PAIR_LOSS = ("attribute_regression", "grebt", "listwise_cross_entropy", "plackett_luce", "sequence_logistic")
LOSSES: dict[str, PairLoss] = {
    name: load("rm.losses", name)(**({"share": 0.5} if name == "boosted" else {}))
    for name in names("rm.losses")
    if name not in NO_PAIR_LOSS
}


class Step(NamedTuple):
    """Loss in nats and gradients by parameter of one optimizer step."""

    loss: float
    gradients: dict[str, list[float]]


def config():
    return small_config(WORDS, hidden=16, layers=1, heads=2)


def causal_lm(seed: int = 0):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config())


def reward_trainer(model: Any, task: Any, rows: list[Any], arguments: dict[str, Any]) -> RewardTrainer:
    encoder = SimpleNamespace(tokenizer=WORDS, contract=SimpleNamespace(max_length=None))
    reward_model = SimpleNamespace(model=model, encoder=encoder)
    return RewardTrainer(reward_model, RewardArguments(**arguments), task, rows)


def scalar(name: str, arguments: dict[str, Any]) -> RewardTrainer:
    task = ScalarTask(LOSSES[name])
    task.check(PAIRS)
    return reward_trainer(scalar_from_config(config(), WORDS, seed=0).model, task, PAIRS, arguments)


def lists(name: str, arguments: dict[str, Any]) -> RewardTrainer:
    """Lists of two to four completions, some of equal or missing score."""
    scores = [(2.0, 1.0), (0.5, NAN, 1.0), (1.0, 1.0, 0.0, 3.0)]
    rows = [ListRow(IDS[row : row + len(scores[row % 3])], scores[row % 3]) for row in range(ROWS)]
    task = ListTask(load("rm.losses", name)())
    return reward_trainer(scalar_from_config(config(), WORDS, seed=0).model, task, rows, arguments)


def objectives(arguments: dict[str, Any]) -> RewardTrainer:
    """Rows with one, two and no labels of a pair, and rated completions that have no second one."""
    wins = [(1.0, NAN), (0.0, 1.0), (NAN, 0.3), (NAN, NAN)]
    scores = [(NAN, NAN), (0.5, NAN), (NAN, NAN), (0.2, 0.9)]
    gaps = (NAN, NAN)
    rows = [
        ObjectiveRow(IDS[row], None if row % 4 == 3 else IDS[ROWS + row], wins[row % 4], gaps, scores[(row // 2) % 4])
        for row in range(ROWS)
    ]
    task = ObjectivesTask({name: load("rm.losses", "bradley_terry")() for name in BOTH}, regression_weight=0.7)
    return reward_trainer(scalar_from_config(config(), WORDS, objectives=BOTH, seed=0).model, task, rows, arguments)


def process(arguments: dict[str, Any]) -> RewardTrainer:
    """Solutions of one to three labelled steps."""
    rows = [
        SolutionRow(IDS[row], (0, 1, 2), (1.0, NAN if row % 2 else 0.0, NAN if row % 3 else 0.5)) for row in range(ROWS)
    ]
    return reward_trainer(process_from_config(config(), WORDS, seed=0).model, ProcessTask(), rows, arguments)


def latent(arguments: dict[str, Any]) -> RewardTrainer:
    model = latent_from_config(config(), WORDS, latent_steps=2, latent_depth="head", seed=0)
    rationales = ([11, 12, 13], [14]), ([], [8, 9]), ([], [])
    rows = [
        LatentRow(IDS[row], IDS[ROWS + row], 1.0 if row % 3 else 0.25, rationales[row % 3], row) for row in range(ROWS)
    ]
    return reward_trainer(model.model, LatentTask(model, seed=1), rows, arguments)


def preference(form: str, arguments: dict[str, Any], **options: Any) -> RewardTrainer:
    settings = AdapterSettings(kind="moslora", objectives=BOTH, rank=2, embedding="random")
    adapter = attach(causal_lm(), settings)
    wins = [(1.0, NAN), (0.0, 1.0), (0.3, 0.5)]
    rows = [PreferenceRow(IDS[row], IDS[ROWS + row], (1, 1), wins[row % 3], (0.4, -0.2), row) for row in range(ROWS)]
    loss = sequence_logistic(0.5, weight=0.5, form=form)
    task = PreferenceTask(adapter, BOTH, loss, dirichlet(2), **options)
    return reward_trainer(adapter.model, task, rows, arguments)


def conversations() -> Dataset:
    texts = [(f"the fox number {row}", "jumps " * (1 + row % 4)) for row in range(ROWS)]
    return Dataset.from_list([{"prompt": prompt, "completion": completion} for prompt, completion in texts])


def supervised(weak: bool, arguments: dict[str, Any]) -> SFTTrainer:
    made = partial(WeakDrivenTrainer, weak=causal_lm(1)) if weak else SFTTrainer
    arguments |= {"max_length": 64, "completion_only_loss": True}
    return made(causal_lm(), args=SFTConfig(**arguments), train_dataset=conversations(), processing_class=WORDS)


CASES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{f"ScalarTask, {name}": partial(scalar, name) for name, loss in LOSSES.items() if not loss.depends_on_batch},
    **{f"ListTask, {name}": partial(lists, name) for name in ("listwise_cross_entropy", "plackett_luce")},
    "ObjectivesTask": objectives,
    "ProcessTask": process,
    "LatentTask": latent,
    "PreferenceTask, scalarised": partial(preference, "scalarised", reference=True),
    "PreferenceTask, vertices": partial(preference, "vertices", per_batch=True),
    "SFTTrainer": partial(supervised, False),
    "WeakDrivenTrainer": partial(supervised, True),
}
PADDING_FREE = ", padding_free"
CASES |= {
    f"{name}{PADDING_FREE}": lambda arguments, made=CASES[name]: made(arguments | {"padding_free": True})
    for name in ("ScalarTask, bradley_terry", "ObjectivesTask", "ProcessTask")
}


def trainer_of(name: str, rows: int, micro_batches: int, folder: Path) -> Any:
    """Return a trainer of one step of gradient descent with a learning rate of 1, on rows in order."""
    arguments = {
        "output_dir": str(folder), "max_steps": 1, "per_device_train_batch_size": rows, "max_grad_norm": 0.0,
        "gradient_accumulation_steps": micro_batches, "learning_rate": 1.0, "optim": "sgd", "save_strategy": "no",
        "lr_scheduler_type": "constant", "train_sampling_strategy": "sequential", "use_cpu": True, "disable_tqdm": True,
        "report_to": "none", "logging_steps": 1, "ddp_find_unused_parameters": True, "bf16": False,
        "gradient_checkpointing": False,
    }  # fmt: skip
    return CASES[name](arguments)


def step(name: str, rows: int, micro_batches: int, folder: Path) -> Step:
    """Train for one step; the gradient is what it subtracts from the weights."""
    trainer = trainer_of(name, rows, micro_batches, folder)
    weights = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    if isinstance(trainer, RewardTrainer) and isinstance(trainer.task, ScalarTask):
        weights |= dict(trainer.task.modules.named_parameters())
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    loss = trainer.train().training_loss
    return Step(loss, {name: (before[name] - weight.detach()).flatten().tolist() for name, weight in weights.items()})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        steps = {name: step(name, ROWS // 4, 2, Path(folder)) for name in CASES}
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(steps))
    leave(finished=True)
