"""Sources of models (folders, GGUF files, Hub ids), checks of their weights, and heads that are stored beside them."""

import warnings
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers.utils import cached_file

from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import from_json
from ..io.hub_names import COMMIT, check_connection, is_local, record_commit
from .gguf import ORIGIN, SUFFIX, convert_gguf

ADAPTER = "adapter_config.json"
TOKENIZERS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
    "tekken.json",
)  # fmt: skip


class Source(NamedTuple):
    """Folder or Hub id of a model, and its revision (None for a folder, or for the newest revision)."""

    name: str
    revision: str | None = None


def parse_source(source: str, *, trust_remote_code: bool = False) -> Source:
    """Split a source into name and revision; folders stay as they are. Remote code requires a full commit SHA.

    For a GGUF file the name is the folder of the converted model.

    >>> parse_source("org/model@v1.0")
    Source(name='org/model', revision='v1.0')
    >>> parse_source("org/model@v1.0", trust_remote_code=True)
    Traceback (most recent call last):
    rewardlab.rm.errors.UsageError: org/model@v1.0: --trust_remote_code runs code that its authors may change ...
    """
    if source.lower().endswith(SUFFIX):
        return Source(convert_gguf(source))
    if is_local(source):
        return Source(source)
    name, _, revision = source.partition("@")
    if trust_remote_code and not COMMIT.fullmatch(revision):
        raise UsageError(
            f"{source}: --trust_remote_code runs code that its authors may change at any time; read the code of one "
            f"commit and give {name}@SHA, with all 40 digits, or a local folder"
        )
    check_connection()
    return Source(name, revision or None)


def origin(config: Any) -> dict[str, str]:
    """Return the scoring contract's field `weights` for a model converted from a GGUF file; empty for other models."""
    stated = config.to_dict().get(ORIGIN)
    if not isinstance(stated, dict):
        return {}
    return {"weights": f"{stated.get('quantisation')}, dequantised; GGUF file with SHA-256 {stated.get('sha256')}"}


def tokenizer_source(source: str) -> str:
    """Return the source of a model's tokenizer: the model, or an adapter's base; raise `DataError` if both lack it."""
    if not _lacks_tokenizer(Path(source)):
        return source
    base = _base_of_adapter(Path(source) / ADAPTER)
    if _lacks_tokenizer(Path(base or source)):
        holder = f"{source}, which is an adapter, or in that of its base model {base}" if base else source
        raise DataError(
            f"no tokenizer in the folder {holder} (none of {', '.join(TOKENIZERS)}); copy the tokenizer files of the "
            "original model (before fine-tuning) into it"
        )
    return base or source


def _lacks_tokenizer(folder: Path) -> bool:
    return folder.is_dir() and not any((folder / name).exists() for name in TOKENIZERS)


def _base_of_adapter(settings: Path) -> str | None:
    """Return the base model that the settings of an adapter name; None if they are absent or damaged."""
    try:
        values = from_json(settings.read_text(encoding="utf-8"))
        return base_name(str(values["base_model_name_or_path"]), values.get("revision"))
    except UNREADABLE:
        return None


def base_name(base: str, revision: str | None) -> str:
    """Return the source of the base model that an adapter names: a path, or a Hub id with its revision."""
    return f"{base}@{revision}" if revision and not Path(base).exists() else base


def record_model_commit(source: str) -> None:
    """Record the commit of a model loaded from the Hub: the name of the folder with its cached config.json."""
    if not is_local(source):
        path = file_of(source, "config.json")
        record_commit(source, path.parent.name if path else "")


HEAD = "score"  # the head's name in every decoder with a sequence classifier in Transformers
VALUE_HEADS = ("v_head.summary", "value_head")  # of TRL and LLaMA-Factory, and of OpenRLHF
READ_ELSEWHERE = (f"{HEAD}.", *(f"{name}." for name in VALUE_HEADS), "lm_head.")
"""Prefixes of tensors that Transformers may ignore: heads that `stored_head` reads, and a language model's head."""
BESIDE = "value_head.safetensors"
SINGLE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = {"pytorch_model": "model", "adapter_model": "adapter_model", "value_head": "value_head"}
TRAINERS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")


class Head(NamedTuple):
    """Linear head for K objectives on the last hidden state h: r_k = w_k · h + b_k."""

    weight: Float[Tensor, "K D"]
    bias: Float[Tensor, " K"] | None


def stored_head(source: str) -> Head | None:
    """Load the head that Transformers' sequence classifiers would ignore in a model's safetensors; None without one.

    Three heads are found: rewardlab's with a bias, for which Transformers' decoders have no parameter; TRL's
    `v_head.summary`, in a causal model's weights or, as LLaMA-Factory stores it, in value_head.safetensors beside a
    model or LoRA; and OpenRLHF's `value_head`.
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
    """Load the named tensors, where they exist, from safetensors files, sharded or not."""
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


def replace_head(model: nn.Module, head: Head, source: str) -> None:
    """Replace a decoder's head, bias included; the weights are converted to the model's precision."""
    old: Any = model.get_submodule(HEAD)
    if head.weight.shape != old.weight.shape:
        raise DataError(
            f"{source}: the head has shape {tuple(head.weight.shape)}, but the model needs {tuple(old.weight.shape)}; "
            "give the model that the head was trained with"
        )
    like = {"device": old.weight.device, "dtype": old.weight.dtype}
    new = nn.Linear(old.in_features, old.out_features, bias=head.bias is not None, **like)
    with torch.no_grad():
        new.weight.copy_(head.weight)
        if head.bias is not None:
            new.bias.copy_(head.bias)
    setattr(model, HEAD, new)


def warn_of_unused_tensors(model: Any, names: Iterable[str], source: str, fresh_head: bool) -> None:
    """Warn of stored tensors without a layer in the model; with a fresh head, tensors of other heads are ignored."""
    trunk = f"{model.base_model_prefix}."
    unread = sorted(name for name in names if not name.startswith(READ_ELSEWHERE))
    if unread := [name for name in unread if name.startswith(trunk) or not fresh_head]:
        warnings.warn(
            f"{source}: {len(unread)} of its tensors are not read, because a {type(model).__name__} has no layer for "
            f"them: {', '.join(unread[:4])}{' ...' if len(unread) > 4 else ''}; the scores may depend on them",
            stacklevel=2,
        )


def refuse_pickles(folder: Path) -> None:
    """Raise `DataError` for weights that exist only as a pickle, with the command that converts them."""
    safe = [path.name for path in folder.glob("*.safetensors")]
    for path in sorted(path for suffix in ("bin", "pt", "pth") for path in folder.glob(f"*.{suffix}")):
        target = _safe_name(path, bool(safe))
        if target and not any(name.startswith(target) for name in safe):
            raise DataError(f"{path}: a pickle, which can run code when it is read; {_conversion_remedy(path, target)}")


def _safe_name(path: Path, safe: bool) -> str:
    """Return the name of the safetensors file that replaces a pickle; empty for pickles without model weights."""
    stem = path.stem.partition("-")[0]
    if stem == "pytorch_model" and (path.parent / "adapter_config.json").exists():
        return "value_head"  # TRL's name for the head of an adapted model
    if stem in PICKLES:
        return PICKLES[stem]
    return "" if safe or stem.startswith(TRAINERS) else "model"


def _conversion_remedy(path: Path, target: str) -> str:
    if "-of-" in path.stem:
        return "ask its author for safetensors, or, if you trust its author, convert every shard and the index"
    return (
        "only safetensors are read. If you trust its author, convert it once in its folder: "
        'python -c "import torch; from safetensors.torch import save_file; '
        f"save_file({{k: v.clone() for k, v in torch.load('{path.name}', weights_only=True).items()}}, "
        f"'{target}.safetensors', metadata={{'format': 'pt'}})\""
    )


FACTOR = 64
"""Largest plausible ratio of a matrix's elements to stored numbers: above 1 for packed or factorised matrices."""
LAYERS = 10_000
HEADS = ("num_attention_heads", "num_key_value_heads")


def text_option(config: Any, name: str) -> Any:
    """Return an option of the language model from a config of Transformers; None if the config has no such option."""
    return getattr(config.get_text_config(), name, None)


def check_claims(config: Any, source: str) -> None:
    """Raise `DataError` if config.json claims larger matrices, or more layers, than the folder's weights hold."""
    numbers = stored_numbers(Path(source))
    if numbers and (name := oversized_value(config, numbers)):
        raise DataError(
            f"{source}: config.json states {name}, but the weights beside it hold only {numbers:,} numbers; "
            "restore the config.json of these weights"
        )


def check_layers(source: str) -> None:
    """Raise `DataError` if config.json has implausibly many layers, since Transformers would build a list of them."""
    path = Path(source) / "config.json"
    try:
        values = from_json(path.read_text(encoding="utf-8"))
        parts = [section for section in (values, *values.values()) if isinstance(section, dict)]
    except UNREADABLE:
        return  # loading the config raises the proper error
    for name, value in ((name, value) for part in parts for name, value in part.items()):
        if name.endswith(("layers", "n_layer")) and isinstance(value, int | float) and abs(value) > LAYERS:
            raise DataError(
                f"{path}: {name} = {value} exceeds the limit of {LAYERS:,}; restore the file, which may be damaged"
            )


def stored_numbers(folder: Path) -> int:
    """Return the number of elements in a folder's safetensors files; 0 if there are none, or one is damaged."""
    numbers = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt") as tensors:
                numbers += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        except (SafetensorError, OSError):
            return 0
    return numbers


def oversized_value(config: Any, numbers: int) -> str:
    """Return the first config value that implies more than `numbers` weights, as `name = value`; empty if none does.

    >>> from transformers import LlamaConfig
    >>> oversized_value(LlamaConfig(vocab_size=2**40, hidden_size=32), 10_000)
    'vocab_size = 1099511627776'
    """
    width, head = _positive_integer(config, "hidden_size"), _positive_integer(config, "head_dim") or 1
    sizes = {"hidden_size": width, "num_hidden_layers": FACTOR * _positive_integer(config, "num_hidden_layers") * width}
    sizes |= {name: _positive_integer(config, name) * width for name in ("vocab_size", "intermediate_size", "head_dim")}
    sizes |= {name: _positive_integer(config, name) * head * width for name in HEADS}
    largest = (name for name, size in sizes.items() if size > FACTOR * numbers)
    return next((f"{name} = {_positive_integer(config, name)}" for name in largest), "")


def _positive_integer(config: Any, name: str) -> int:
    value = text_option(config, name)
    return value if isinstance(value, int) else 0
