"""TRL's private code that ours replaces or relies on: its sources by hash, and four steps by fixed numbers.

Signatures are part of the sources. Where a test here fails after an upgrade of TRL, its message says what to read.
"""

import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trl
import trl.trainer.utils
from rewardlab.benchmarks.garden import models
from rewardlab.judges.cdrrm.weak_driven import WeakDrivenTrainer
from rewardlab.policy.composition.algorithm import Penalty
from rewardlab.policy.training.trainer import PolicyTrainer
from trl import GRPOTrainer, SFTTrainer

from tests.policy.toy_training import algorithm, logged, prompts

PINNED: dict[str, str] = json.loads(Path(__file__).with_name("trl_sources.json").read_text(encoding="utf-8"))
SUBCLASSES = {PolicyTrainer: GRPOTrainer, WeakDrivenTrainer: SFTTrainer}
RELIED_ON = (
    (GRPOTrainer, "compute_loss"),  # calls `_compute_loss`
    (GRPOTrainer, "prediction_step"),
    (GRPOTrainer, "log"),  # reads `_metrics` and `_logs`
    (GRPOTrainer, "get_train_dataloader"),
    (GRPOTrainer, "_get_train_sampler"),  # repeats prompts by `num_generations` and `num_iterations`
    (GRPOTrainer, "_get_eval_sampler"),
    (GRPOTrainer, "_set_signature_columns_if_needed"),
    (GRPOTrainer, "_generate"),
    (GRPOTrainer, "_generate_single_turn"),
    (SFTTrainer, "prediction_step"),
    (trl.trainer.utils, "shuffle_sequence_dict"),
    (trl.trainer.utils, "split_tensor_dict"),
    (trl.trainer.utils, "use_adapter"),
    (trl.trainer.utils, "nanstd"),
)
"""Not replaced; ours calls it, or is called by it."""


def source_hash(function: Any) -> str:
    """Return a hash of the source without indentation, blank lines and lines of comment."""
    lines = textwrap.dedent(inspect.getsource(inspect.unwrap(function))).splitlines()
    code = [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


def overridden(own: type, theirs: type) -> Iterator[str]:
    """Names that classes of ours above `theirs` define although TRL's class defines them too."""
    ours = [one for one in own.__mro__ if one.__module__.startswith("rewardlab.")]
    for name in sorted({name for one in ours for name in vars(one)}):
        found = inspect.getattr_static(theirs, name, None)
        if inspect.isfunction(found) and found.__module__.startswith("trl."):
            yield name


def present_hashes() -> dict[str, str]:
    """Return the hash of everything of TRL's that is replaced or relied on, as it is installed."""
    wanted = [(theirs, name) for own, theirs in SUBCLASSES.items() for name in overridden(own, theirs)]
    return {
        f"{owner.__name__}.{name}": source_hash(getattr(owner, name)) if hasattr(owner, name) else "absent"
        for owner, name in (*wanted, *RELIED_ON)
    }


def changes(pinned: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return a sentence for everything that is not as pinned: what changed, and what to do."""
    found = []
    for name, value in present.items():
        if name not in pinned:
            found.append(f"{name} is replaced or relied on and not pinned: add '{name}': '{value}' to trl_sources.json")
        elif pinned[name] != value:
            found.append(
                f"{name} of TRL {trl.__version__} is not the code that ours was written beside: read what changed in "
                f"it, adapt our method of that name, then pin '{value}' in trl_sources.json"
            )
    unused = [name for name in pinned if name not in present]
    found += [f"{name} is pinned and no longer used: remove it from trl_sources.json" for name in unused]
    return found


def test_the_code_that_ours_replaces_is_the_one_it_was_written_beside():
    assert not (found := changes(PINNED, present_hashes())), "\n".join(found)


EXPECTED = {
    "loss": [0.0294314, -0.1068911, 0.0253723, -0.1009776],
    "grad_norm": [0.9265122, 0.4615616, 0.8952768, 0.4155862],
    "reward": [-0.3025, 0.10875],
    "entropy": [4.7403796, 4.7404836, 4.7389359, 4.7355441],
    "kl": [0.0, 0.0529336, 0.0074563, 0.0596085],
    "ratio": [1.0, 1.0490261, 1.0, 1.0269296],
    "completions/mean_length": [14.8125, 14.9375],
}


def test_four_steps_give_fixed_numbers(make_trainer, words):
    """GRPO with a KL and two passes over each batch, from weights drawn by a seed.

    Plain gradient descent, which does not turn rounding into steps as AdamW does: between the instruction sets of one
    machine (default, AVX2, AVX-512) the largest difference is 4e-7.
    """
    changes = {"optim": "sgd", "learning_rate": 0.5, "num_iterations": 2, "max_steps": 4, "bf16": False}
    formulas, model = algorithm(penalty=Penalty(0.05)), models.causal_lm(words, seed=1)
    trainer = make_trainer(formulas, model=model, data=prompts(16), **changes)
    trainer.train()
    for name, expected in EXPECTED.items():
        assert logged(trainer, name) == pytest.approx(expected, abs=1e-5), name
