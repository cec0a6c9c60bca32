"""Shapes of language models from their configuration alone, built without memory on PyTorch's `meta` device."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from ..backbones.loading import load_config
from ..errors import UNREADABLE, DataError, UsageError, did_you_mean

READS, MIXES, WIDENS, NARROWS = range(4)
"""Stages of a layer's matrices: attention input (q, k, v), its output, MLP input (gate, up), its output."""
OUT = "^(o_proj|out|dense|c_proj)"
"""Names of the attention's output matrix in different architectures; else it is the last one of the attention."""


class Linear(NamedTuple):
    """A weight matrix of a decoder layer."""

    name: str
    inputs: int
    outputs: int
    stage: int


class Shape(NamedTuple):
    """Dimensions of a decoder-only model, as needed by the formulas; all layers are equal."""

    name: str
    family: str
    parameters: int
    """Parameters of the causal language model, counting a tied output head once."""
    layer_parameters: int
    """Parameters of one decoder layer, norms and biases included."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    """Width of the MLP."""
    vocabulary: int
    """Rows of the embedding."""
    tied: bool
    gated: bool
    """Whether the MLP is a product of two branches."""
    head_normed: bool
    """Whether each head's queries and keys are normalised, as in Qwen 3."""
    linears: tuple[Linear, ...]
    positions: int

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; the output head has as many unless it is tied."""
        return self.vocabulary * self.width

    @property
    def trunk(self) -> int:
        """Parameters without a separate output head, which a scalar reward model keeps."""
        return self.parameters - (0 if self.tied else self.embedding)


# ---- public architectures ----

FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3": {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 40960},
    "qwen2.5": {"model_type": "qwen2", "vocab_size": 152064, "max_position_embeddings": 32768},
    "llama3": {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072},
}
SIZES = {  # layers, width, heads, KV heads, MLP width, tied
    "qwen3-0.6b": (28, 1024, 16, 8, 3072, True),
    "qwen3-1.7b": (28, 2048, 16, 8, 6144, True),
    "qwen3-4b": (36, 2560, 32, 8, 9728, True),
    "qwen3-8b": (36, 4096, 32, 8, 12288, False),
    "qwen3-14b": (40, 5120, 40, 8, 17408, False),
    "qwen3-32b": (64, 5120, 64, 8, 25600, False),
    "qwen2.5-0.5b": (24, 896, 14, 2, 4864, True),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 8960, True),
    "qwen2.5-3b": (36, 2048, 16, 2, 11008, True),
    "qwen2.5-7b": (28, 3584, 28, 4, 18944, False),
    "qwen2.5-14b": (48, 5120, 40, 8, 13824, False),
    "qwen2.5-32b": (64, 5120, 40, 8, 27648, False),
    "qwen2.5-72b": (80, 8192, 64, 8, 29568, False),
    "llama3-1b": (16, 2048, 32, 8, 8192, True),
    "llama3-3b": (28, 3072, 24, 8, 8192, True),
    "llama3-8b": (32, 4096, 32, 8, 14336, False),
    "llama3-70b": (80, 8192, 64, 8, 28672, False),
}
"""Qwen 3 (arXiv:2505.09388, table 1), Qwen 2.5 (arXiv:2412.15115, table 1), Llama 3.1 and 3.2, from their configs."""
MOST_LAYERS = 1000
SMALL_VOCABULARY = 151936  # Qwen 2.5 up to 3B


def choices() -> list[str]:
    """Return the names in the table, and sizes without a family."""
    return [*SIZES, *dict.fromkeys(name.partition("-")[2] for name in SIZES)]


def full_name(name: str) -> str | None:
    """Return the table's name for a name or a size: the first one of that size, or None.

    >>> full_name("7b"), full_name("Llama3-8B"), full_name("9b")
    ('qwen2.5-7b', 'llama3-8b', None)
    """
    name = name.lower()
    return next((size for size in SIZES if name in (size, size.partition("-")[2])), None)


def table_config(name: str) -> Any:
    """Return the configuration of a name in the table."""
    family = name.partition("-")[0]
    layers, width, heads, kv_heads, mlp, tied = SIZES[name]
    settings = dict(FAMILIES[family])
    if family == "qwen2.5" and tied:
        settings["vocab_size"] = SMALL_VOCABULARY
    return AutoConfig.for_model(
        settings.pop("model_type"),
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=mlp,
        tie_word_embeddings=tied,
        **{"head_dim": width // heads} | settings,
    )


def find_shape(model: str, *, trust_remote_code: bool = False) -> Shape:
    """Return the shape of a size (`7b`, `qwen3-8b`), a folder or a Hugging Face id; reads only config.json."""
    known = full_name(model)
    if known is not None and not Path(model).exists():
        return shape_of(table_config(known), known)
    if "/" not in model and not Path(model).exists():
        raise UsageError(
            f"no size '{model}', and no folder of that name; "
            + did_you_mean(model.lower(), choices(), f"a Hub id is owner/name, and there is {', '.join(SIZES)}")
        )
    try:
        config = load_config(model, trust_remote_code=trust_remote_code)
    except UsageError:
        raise
    except UNREADABLE as error:
        raise DataError(
            f"{model}: no config.json can be read there ({_error_text(error)}); give a size such as 7b"
        ) from error
    return shape_of(config, model, trust_remote_code=trust_remote_code)


# ---- shapes from configurations ----


def shape_of(config: Any, name: str, *, trust_remote_code: bool = False) -> Shape:
    """Return the shape of a causal language model with this configuration; its layers must be equal."""
    text = config.get_text_config()
    if not 1 <= getattr(text, "num_hidden_layers", 0) <= MOST_LAYERS:
        raise UsageError(f"{name}: no decoder of 1 to {MOST_LAYERS} layers ({config.model_type}); give one")
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except (*UNREADABLE, RuntimeError) as error:
        raise UsageError(f"{name}: its config.json makes no causal language model ({_error_text(error)})") from error
    linears = _layer(model, text.num_hidden_layers, name)
    layer_parameters = sum(parameter.numel() for key, parameter in model.named_parameters() if _of_layer(key) == 0)
    heads = text.num_attention_heads
    narrow = [linear for linear in linears if linear.stage == NARROWS]
    mlp = sum(linear.inputs for linear in narrow)
    return Shape(
        name=name,
        family=config.model_type,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layer_parameters=layer_parameters,
        layers=text.num_hidden_layers,
        width=text.hidden_size,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        mlp=mlp,
        vocabulary=model.get_input_embeddings().weight.shape[0],
        tied=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        gated=sum(linear.outputs for linear in linears if linear.stage == WIDENS) >= 2 * mlp,
        head_normed=any(key.endswith("q_norm") for key, _ in model.named_modules()),
        linears=linears,
        positions=getattr(text, "max_position_embeddings", None) or 0,
    )


def _error_text(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _of_layer(key: str) -> int | None:
    """Return the layer number in a dotted name, or None."""
    match = re.search(r"(?:^|\.)(\d+)\.", key)
    return int(match[1]) if match else None


def _layer(model: nn.Module, layers: int, name: str) -> tuple[Linear, ...]:
    """Return the matrices of one decoder layer."""
    if any(parameter.dim() > 2 and _of_layer(key) is not None for key, parameter in model.named_parameters()):
        raise UsageError(f"{name}: a mixture of experts or of convolutions; the formulas are of dense decoders")
    sizes_by_layer: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for key, module in model.named_modules():
        layer_index = _of_layer(key)
        if layer_index is not None and isinstance(module, nn.Linear | Conv1D):
            outputs, inputs = module.weight.shape if isinstance(module, nn.Linear) else reversed(module.weight.shape)
            sizes_by_layer[layer_index][key.partition(f".{layer_index}.")[2]] = inputs, outputs
    groups: dict[str, list[str]] = defaultdict(list)
    for key in sizes_by_layer[0]:
        groups["attention" if "att" in key else "mlp"].append(key)
    if (
        len(sizes_by_layer) != layers
        or any(layer != sizes_by_layer[0] for layer in sizes_by_layer.values())
        or len(groups) != 2
    ):
        raise UsageError(f"{name}: its layers are not all of attention and an MLP; the formulas are of such decoders")
    stages = {key: READS for key in groups["attention"]} | {key: WIDENS for key in groups["mlp"]}
    out = [key for key in groups["attention"] if re.search(OUT, key.rpartition(".")[2])] or groups["attention"]
    stages |= {out[-1]: MIXES, groups["mlp"][-1]: NARROWS}
    return tuple(Linear(key.rpartition(".")[2], *sizes, stages[key]) for key, sizes in sizes_by_layer[0].items())
