"""Checks of a verb's settings before anything is loaded: files, installed packages, writable outputs, ranges."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...rm.data.readers import SUFFIXES, format_of
from ...rm.errors import UsageError, did_you_mean
from ...rm.io.hub_names import is_path
from ...rm.registry.settings import (
    A_NUMBER,
    ABOVE_0,
    ABOVE_0_OR_INF,
    AT_LEAST_0,
    AT_LEAST_1,
    PORT,
    SEED,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    STEPS,
    Range,
    Settings,
    as_list,
    check_number,
    declarations,
)

FILES = ("data", "eval_data", "scores")
"""Settings whose values are data: FILE, NAME=FILE or a dataset on the Hub."""
ONE_EACH = (*FILES, "reward", "watch", "objectives")
"""List settings that must not contain duplicates."""
OUTPUTS = ("output", "fix", "junit", "output_dir")
LOGGERS = {
    **{name: (name,) for name in ("wandb", "trackio", "mlflow", "clearml", "comet_ml", "neptune", "swanlab")},
    **{"tensorboard": ("tensorboard", "tensorboardX"), "azure_ml": ("azureml",), "dagshub": ("dagshub",)},
    **{"codecarbon": ("codecarbon",), "dvclive": ("dvclive",), "flyte": ("flytekit",)},
    **dict.fromkeys(("none", "all"), ()),
}
"""--report_to -> packages, one of which must be installed."""
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch_4bit", "adamw_torch_8bit"), "torchao"),
    **{"adamw_apex": "apex", "galore": "galore_torch", "apollo": "apollo_torch", "lomo": "lomo_optim"},
    **{"grokadamw": "grokadamw", "stable_adamw": "optimi", "schedule_free": "schedulefree"},
    **dict.fromkeys(("8bit", "bnb", "paged", "ademamix"), "bitsandbytes"),
}
"""Substring of --optim -> required package. The first match is used."""


def check_settings(settings: Iterable[Any]) -> None:
    """Raise `UsageError` for missing files or packages, and for outputs that are not set or cannot be written."""
    pairs = [setting for group in settings for setting in vars(group).items()]
    for name, value in pairs:
        if name in ONE_EACH and isinstance(value, list):
            _check_repeated(name, value)
        if name in FILES:
            _check_files(name, as_list(value))
        elif name in OUTPUTS and value:
            check_writable(name, Path(str(value)))
        elif name == "report_to":
            _check_loggers(as_list(value))
        elif name == "optim":
            _check_optimizer(str(value.value if isinstance(value, Enum) else value))
    if "output_dir" in dict(pairs) and not any(value for name, value in pairs if name in ("output", "output_dir")):
        raise UsageError("--output is missing")


# ---- files ----


def _check_repeated(name: str, values: list[str]) -> None:
    counts = Counter(str(Path(value).resolve()) if Path(value).exists() else value for value in values)
    if repeated := [value for value, number in counts.items() if number > 1]:
        raise UsageError(f"--{name}: {repeated[0]} is given twice and would count twice; name it once")


def _check_files(name: str, values: list[str]) -> None:
    for value in values:
        path = value if _exists(value) or "=" not in value else value.partition("=")[2]
        looks_local = is_path(path) or format_of(path) in (*SUFFIXES, ".txt", ".toml")
        if path and looks_local and not _exists(path):
            raise UsageError(f"--{name}: no file {path}; check the path")


def _exists(path: str) -> bool:
    """Return whether a path exists. A folder may be followed by a revision and a split: `folder[@revision][:split]`."""
    return any(os.path.exists(name) for name in (path, path.partition(":")[0].partition("@")[0]))


def check_writable(name: str, path: Path) -> None:
    """Raise `UsageError` for a path below a file or in a read-only folder. The check creates and removes a folder."""
    parents = Path(os.path.abspath(path)).parents
    if not parents:
        raise UsageError(f"--{name} {path} is the root of all folders; name a path below it")
    above = next((parent for parent in parents if parent.exists() or parent.is_symlink()), Path("/"))
    if not above.is_dir():
        raise UsageError(f"--{name} {path}: {above} is a file, so nothing can be written below it; name another path")
    probe = None
    try:
        probe = tempfile.mkdtemp(prefix=".rewardlab-", dir=above)
    except OSError as error:
        raise UsageError(f"--{name} {path}: {above} cannot be written to ({error.strerror}); use another") from error
    finally:
        if probe:
            with suppress(OSError):
                Path(probe).rmdir()


# ---- packages ----


def _check_loggers(values: list[str]) -> None:
    for value in values:
        if value not in LOGGERS:
            raise UsageError(f"--report_to: no '{value}'; {did_you_mean(value, LOGGERS)}")
        packages = LOGGERS[value]
        if packages and not any(map(find_spec, packages)):
            raise UsageError(
                f"--report_to {value} needs the package {packages[0]}, which is not installed; install it, or leave "
                "--report_to out"
            )


def _check_optimizer(name: str) -> None:
    package = next((package for part, package in OPTIMIZERS.items() if part in name), None)
    if package and not find_spec(package):
        raise UsageError(
            f"--optim {name} needs the package {package}, which is not installed; install it, or use adamw_torch"
        )


# ---- ranges of numbers ----


NAMES_BY_RANGE: tuple[tuple[Range, str], ...] = (
    (
        AT_LEAST_1,
        "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps eval_accumulation_steps "
        "save_total_limit max_completion_length num_generations num_generations_eval num_iterations "
        "steps_per_generation generation_batch_size vllm_tensor_parallel_size vllm_max_model_length max_length",
    ),
    (
        AT_LEAST_0,
        "learning_rate weight_decay adam_epsilon max_grad_norm warmup_steps eval_delay dataloader_num_workers "
        "rollout_steps diversity_weight",
    ),
    (ABOVE_0, "num_train_epochs save_steps eval_steps logging_steps repetition_penalty temperature"),
    (ABOVE_0_OR_INF, "kl_budget"),
    (SHARE, "min_p label_smoothing_factor label_smoothing case_weight"),
    (SHARE_ABOVE_0, "top_p vllm_gpu_memory_utilization"),
    (SHARE_BELOW_1, "adam_beta1 adam_beta2 weight_average weight_average_start"),
    (Range("at least 0, or -1 for off", -1, below=True), "top_k"),
    (PORT, "vllm_server_port vllm_group_port"),
    (SEED, "seed data_seed"),
    (STEPS, "max_steps"),
)
TRAINER_RANGES: Mapping[str, Range] = {name: allowed for allowed, names in NAMES_BY_RANGE for name in names.split()}
"""Ranges of the trainer arguments of Transformers and TRL, and of the arguments that rewardlab's subclasses add."""


def is_trainers(group: type) -> bool:
    """Return whether a dataclass inherits from the trainer arguments of Transformers or TRL."""
    return any(is_dataclass(base) and not issubclass(base, Settings) for base in group.__mro__[1:])


def check_ranges(group: type, values: Mapping[str, Any]) -> None:
    """Raise `UsageError` for the first value outside the range of its setting. `group` is a settings dataclass."""
    ranges = TRAINER_RANGES if is_trainers(group) else {}
    for name, declared in declarations(group).items():
        check_number(declared, values.get(name), ranges.get(name, A_NUMBER))
