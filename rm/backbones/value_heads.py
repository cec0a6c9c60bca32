"""Heads that Transformers' sequence classifiers do not load by themselves: value heads, and biases of heads."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers.utils import cached_file

from ..errors import UNREADABLE, DataError
from ..io.checked_files import from_json
from .hub import parse_source

HEAD = "score"  # the head's name in every decoder with a sequence classifier in Transformers
VALUE_HEADS = ("v_head.summary", "value_head")  # of TRL and LLaMA-Factory, and of OpenRLHF
READ_ELSEWHERE = (f"{HEAD}.", *(f"{name}." for name in VALUE_HEADS), "lm_head.")
"""Prefixes of tensors that Transformers may leave out: heads that `stored_head` reads, and a language model's."""
BESIDE = "value_head.safetensors"
SINGLE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = {"pytorch_model": "model", "adapter_model": "adapter_model", "value_head": "value_head"}
TRAINERS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")


class Head(NamedTuple):
    """r = w · h_last + b for each of K objectives."""

    weight: Float[Tensor, "K D"]
    bias: Float[Tensor, " K"] | None


def stored_head(source: str) -> Head | None:
    """Load the head in the safetensors of a folder or Hub id that a sequence classifier would ignore; None without one.

    Heads of rewardlab may have a bias, for which Transformers' decoders have no parameter. Otherwise it is TRL's
    `v_head.summary`, among a causal model's weights or, as LLaMA-Factory writes it, in value_head.safetensors beside
    them or beside a LoRA; or OpenRLHF's `value_head`.
    """
    files = (BESIDE, SINGLE_FILE)
    score_head = load_stored_tensors(source, [f"{HEAD}.weight", f"{HEAD}.bias"], (SINGLE_FILE,))
    if f"{HEAD}.weight" in score_head:
        return Head(score_head[f"{HEAD}.weight"], score_head[f"{HEAD}.bias"]) if f"{HEAD}.bias" in score_head else None
    value_heads = load_stored_tensors(
        source, [f"{name}.{part}" for name in VALUE_HEADS for part in ("weight", "bias")], files
    )
    name = next((name for name in VALUE_HEADS if f"{name}.weight" in value_heads), None)
    return Head(value_heads[f"{name}.weight"], value_heads.get(f"{name}.bias")) if name else None


def load_stored_tensors(source: str, names: Iterable[str], files: Iterable[str]) -> dict[str, Tensor]:
    """Load those of the named tensors that the safetensors files contain, sharded or not."""
    paths = [path for name in files if (path := file_of(source, name))]
    if not paths and (index := file_of(source, INDEX)):
        try:
            shards = from_json(index.read_text(encoding="utf-8"))["weight_map"]
        except UNREADABLE as error:
            raise DataError(f"{index}: damaged ({error}); fetch it again") from error
        paths = [path for name in sorted({shards[n] for n in names if n in shards}) if (path := file_of(source, name))]
    tensors_by_name: dict[str, Tensor] = {}
    for path in paths:
        try:
            with safe_open(path, framework="pt") as tensors:
                tensors_by_name |= {name: tensors.get_tensor(name) for name in {*names} & {*tensors.keys()}}
        except SafetensorError as error:
            raise DataError(f"{path}: damaged ({error}); fetch it again") from error
    return tensors_by_name


def file_of(source: str, name: str) -> Path | None:
    """Return the path of a file of a folder or Hub id; None if it does not exist, or the Hub cannot be reached."""
    if Path(source).is_dir():
        return Path(source) / name if (Path(source) / name).exists() else None
    location = parse_source(source)
    try:
        path = cached_file(location.name, name, revision=location.revision)
    except OSError:
        return None
    return Path(path) if path else None


def put_head(model: nn.Module, head: Head, source: str) -> None:
    """Replace a decoder's head, bias included; the weights are converted to the model's precision."""
    old: Any = model.get_submodule(HEAD)
    if head.weight.shape != old.weight.shape:
        raise DataError(
            f"{source}: the head has shape {tuple(head.weight.shape)} and the model needs {tuple(old.weight.shape)}; "
            "give the model that the head was trained with"
        )
    like = {"device": old.weight.device, "dtype": old.weight.dtype}
    new = nn.Linear(old.in_features, old.out_features, bias=head.bias is not None, **like)
    with torch.no_grad():
        new.weight.copy_(head.weight)
        if head.bias is not None:
            new.bias.copy_(head.bias)
    setattr(model, HEAD, new)


def warn_of_unread(model: Any, names: Iterable[str], source: str, fresh_head: bool) -> None:
    """Warn of stored tensors without a layer in the model; with a fresh head, tensors of other heads are ignored."""
    trunk = f"{model.base_model_prefix}."
    unread = sorted(name for name in names if not name.startswith(READ_ELSEWHERE))
    if unread := [name for name in unread if name.startswith(trunk) or not fresh_head]:
        warnings.warn(
            f"{source}: {len(unread)} of its tensors are not read, because a {type(model).__name__} has no layer for "
            f"them: {', '.join(unread[:4])}{' ...' if len(unread) > 4 else ''}; its scores may need them",
            stacklevel=2,
        )


def refuse_pickles(folder: Path) -> None:
    """Raise `DataError` for weights that exist only as a pickle, with the command that converts them."""
    safe = [path.name for path in folder.glob("*.safetensors")]
    for path in sorted(path for suffix in ("bin", "pt", "pth") for path in folder.glob(f"*.{suffix}")):
        target = _safe_name(path, bool(safe))
        if target and not any(name.startswith(target) for name in safe):
            raise DataError(f"{path}: a pickle, which can run code when it is read; {_conversion(path, target)}")


def _safe_name(path: Path, safe: bool) -> str:
    """Return the name of the safetensors file that replaces a pickle; empty for pickles without model weights."""
    stem = path.stem.partition("-")[0]
    if stem == "pytorch_model" and (path.parent / "adapter_config.json").exists():
        return "value_head"  # TRL's name for the head of an adapted model
    if stem in PICKLES:
        return PICKLES[stem]
    return "" if safe or stem.startswith(TRAINERS) else "model"


def _conversion(path: Path, target: str) -> str:
    if "-of-" in path.stem:
        return "ask its author for safetensors, or convert every shard and the index where its author is trusted"
    return (
        "only safetensors are read. Where its author is trusted, convert it once in its folder: "
        'python -c "import torch; from safetensors.torch import save_file; '
        f"save_file({{k: v.clone() for k, v in torch.load('{path.name}', weights_only=True).items()}}, "
        f"'{target}.safetensors', metadata={{'format': 'pt'}})\""
    )
