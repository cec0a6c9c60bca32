"""Loading of a LoRA folder as a sequence classifier: base model, adapter and head, with checks of names and shapes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, TaskType, get_peft_model, set_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from ..errors import UNREADABLE, DataError, UsageError, did_you_mean
from .hub import ADAPTER, HEAD, Head, base_name, refuse_pickles, replace_head, stored_head
from .loading import load_classifier

WEIGHTS = "adapter_model.safetensors"
RANK = 65_536  # larger than any layer is wide; a damaged file with a larger rank would exhaust memory


def check_targets(model: Any, targets: Any) -> None:
    """Raise `UsageError` for layer names that the model does not have; `all-linear` is every linear layer."""
    if targets is None or isinstance(targets, str):
        return
    layers = {name for name, _ in model.named_modules()}
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            last = sorted({name.rpartition(".")[2] for name in layers if not name.rpartition(".")[2].isdigit()})
            raise UsageError(f"--lora_target_modules: the model has no layer '{target}'; {did_you_mean(target, last)}")


def load_lora(folder: Path, objectives: tuple[str, ...], *, trainable: bool, **loading: Any) -> PeftModel:
    """Load the base model that the folder names, with adapter and head; raise `DataError` if they do not fit."""
    config, keys = read_lora(folder)
    if (rows := head_rows(folder)) != len(objectives):
        raise UsageError(
            f"{folder}: the head of the adapter has {rows} outputs, but {len(objectives)} objectives are requested "
            f"({', '.join(objectives)}); start from its base model {base_of(config)}"
        )
    model, absent = load_classifier(base_of(config), objectives, fresh_head=True, **loading)
    head = stored_head(str(folder))
    if head is not None:
        replace_head(model, head, str(folder))
    elif lost := [key for key in absent if not any(name.endswith(key) for name in keys)]:
        raise DataError(
            f"{folder}: the adapter was saved without its head ({', '.join(lost[:3])}), so its scores would be random; "
            "train with rewardlab train --lora, or in PEFT with task_type=SEQ_CLS"
        )
    elif any(name.endswith(f"{HEAD}.bias") for name in keys):
        weight = model.get_submodule(HEAD).weight
        replace_head(model, Head(weight, weight.new_zeros(len(weight))), str(folder))
    if head is None:
        return apply_saved_lora(model, folder, trainable=trainable)
    return _check_fit(folder, config, keys, lambda: _with_head(model, config, load_file(folder / WEIGHTS), trainable))


def read_lora(folder: Path) -> tuple[LoraConfig, list[str]]:
    """Return the settings of a LoRA folder and the names of its tensors; raise `DataError` for a damaged folder."""
    weights = folder / WEIGHTS
    refuse_pickles(folder)
    if not weights.exists():
        raise DataError(f"{folder}: has {ADAPTER} but no {WEIGHTS}; give the full folder")
    try:
        config = LoraConfig.from_pretrained(str(folder))
        if not isinstance(config, LoraConfig) or not isinstance(config.base_model_name_or_path, str):
            raise ValueError("it has no base model, or is not a LoRA adapter")
        ranks = (config.r, *(config.rank_pattern or {}).values())
        if not all(type(rank) is int and 0 < rank <= RANK for rank in ranks):
            raise ValueError(f"a rank is a whole number from 1 to {RANK}")
    except UNREADABLE as error:
        raise DataError(f"{folder / ADAPTER}: not the settings of a LoRA ({error}); restore it") from error
    try:
        with safe_open(weights, framework="pt") as tensors:
            return config, [*tensors.keys()]
    except SafetensorError as error:
        raise DataError(f"{weights}: damaged ({error}); fetch it again") from error


def head_rows(folder: Path) -> int:
    """Return the number of outputs of the head that is saved with an adapter; 1 if there is none."""
    if (head := stored_head(str(folder))) is not None:
        return len(head.weight)
    with safe_open(folder / WEIGHTS, framework="pt") as tensors:
        matrices = [key for key in read_lora(folder)[1] if ".lora_" not in key and key.endswith(".weight")]
        shapes = [tensors.get_slice(key).get_shape() for key in matrices]
    return min((shape[0] for shape in shapes if len(shape) == 2), default=1)


def base_of(config: LoraConfig) -> str:
    """Return the base model in a LoRA config: a path, or a Hub id with revision."""
    return base_name(str(config.base_model_name_or_path), config.revision)


def apply_saved_lora(model: PreTrainedModel, folder: Path, *, trainable: bool) -> PeftModel:
    """Add the adapter of a folder to its base model; raise `DataError` if it does not fit."""
    config, keys = read_lora(folder)
    return _check_fit(folder, config, keys, lambda: PeftModel.from_pretrained(model, folder, is_trainable=trainable))


def _check_fit(folder: Path, config: LoraConfig, keys: list[str], adapt: Callable[[], PeftModel]) -> PeftModel:
    """Return the model that `adapt` creates; raise `DataError` if the adapter does not fit all of its layers."""
    try:
        adapted = adapt()
    except Exception as error:  # mismatched shapes, and settings or patterns that PEFT does not understand
        raise _base_mismatch_error(folder, config) from error
    layers = [name for name, _ in adapted.named_parameters() if ".lora_A." in name]
    if len(layers) != sum(".lora_A." in name for name in keys):
        raise _base_mismatch_error(folder, config)
    return adapted


def _with_head(model: PreTrainedModel, config: LoraConfig, tensors: dict[str, Tensor], trainable: bool) -> PeftModel:
    """Add an adapter that was saved without a head; saving the adapter then includes the model's head."""
    config.task_type, config.inference_mode = TaskType.SEQ_CLS, not trainable
    head = {f"base_model.model.{HEAD}.{name}": x for name, x in model.get_submodule(HEAD).state_dict().items()}
    adapted = get_peft_model(model, config)
    set_peft_model_state_dict(adapted, tensors | head)
    return adapted


def _base_mismatch_error(folder: Path, config: LoraConfig) -> DataError:
    return DataError(
        f"{folder}: the adapter does not fit its base {config.base_model_name_or_path}, which has other layers; "
        f"restore the base that it was trained on, or name it in {ADAPTER}"
    )
