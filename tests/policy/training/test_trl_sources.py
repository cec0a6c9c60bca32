"""TRL's private code that ours replaces or relies on: its sources by hash.

Signatures are part of the sources. Where a test here fails after an upgrade of TRL, its message says what to read.
"""

import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trl
import trl.trainer.dpo_trainer
import trl.trainer.utils
from rewardlab.judges.cdrrm.weak_driven import WeakDrivenTrainer
from rewardlab.policy.training.fine_tuning import PreferenceTrainer
from rewardlab.policy.training.trainer import PolicyTrainer
from trl import DPOTrainer, GRPOTrainer, SFTTrainer

PINNED: dict[str, str] = json.loads(Path(__file__).with_name("trl_sources.json").read_text(encoding="utf-8"))
SUBCLASSES = {PolicyTrainer: GRPOTrainer, PreferenceTrainer: DPOTrainer, WeakDrivenTrainer: SFTTrainer}
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
    (SFTTrainer, "_prepare_dataset"),  # leaves rows with `input_ids` and `labels` as they are, and truncates them
    (trl.trainer.dpo_trainer.DataCollatorForPreference, "torch_call"),  # reads the rows of `encode_preferences`
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


def test_the_code_that_ours_replaces_is_the_one_it_was_written_beside():
    present = present_hashes()
    changed = {name: value for name, value in present.items() if PINNED.get(name) != value}
    assert not changed, (
        f"read what TRL {trl.__version__} changed, adapt our methods, pin in trl_sources.json: {changed}"
    )
    assert PINNED.keys() == present.keys(), "pinned and no longer used: remove it from trl_sources.json"
