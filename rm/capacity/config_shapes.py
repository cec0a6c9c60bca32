"""Shapes of language models from any configuration, built without memory on PyTorch's `meta` device."""

import re
from collections import defaultdict
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from ..backbones.hub import text_option
from ..backbones.loading import load_config
from ..errors import UNREADABLE, DataError, UsageError
from .shapes import MIXES, NARROWS, READS, WIDENS, Linear, Shape

MOST_LAYERS = 1000
OUT = "^(o_proj|out|dense|c_proj)"
"""Names of the attention's output matrix in several architectures; by default it is the last matrix."""


def folder_shape(model: str, *, trust_remote_code: bool = False) -> Shape:
    """Return the shape of the model in a folder or with a Hugging Face id; reads only config.json."""
    try:
        config = load_config(model, trust_remote_code=trust_remote_code)
    except UsageError:
        raise
    except UNREADABLE as error:
        raise DataError(
            f"{model}: cannot read its config.json ({_error_text(error)}); give a size such as 7b"
        ) from error
    return shape_of(config, model, trust_remote_code=trust_remote_code)


def shape_of(config: Any, name: str, *, trust_remote_code: bool = False) -> Shape:
    """Return the shape of a causal language model with this configuration; its layers must be equal."""
    text = config.get_text_config()
    if not 1 <= (text_option(config, "num_hidden_layers") or 0) <= MOST_LAYERS:
        raise UsageError(f"{name}: not a decoder of 1 to {MOST_LAYERS} layers ({config.model_type}); give one")
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except (*UNREADABLE, RuntimeError) as error:
        raise UsageError(f"{name}: its config.json is not of a causal language model ({_error_text(error)})") from error
    linears = _layer_matrices(model, text.num_hidden_layers, name)
    layer_parameters = sum(parameter.numel() for key, parameter in model.named_parameters() if _layer_number(key) == 0)
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
        kv_heads=text_option(config, "num_key_value_heads") or heads,
        head_dim=text_option(config, "head_dim") or text.hidden_size // heads,
        mlp=mlp,
        vocabulary=model.get_input_embeddings().weight.shape[0],
        tied=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        gated=sum(linear.outputs for linear in linears if linear.stage == WIDENS) >= 2 * mlp,
        head_normed=any(key.endswith("q_norm") for key, _ in model.named_modules()),
        linears=linears,
        positions=text_option(config, "max_position_embeddings") or 0,
    )


def _error_text(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _layer_number(key: str) -> int | None:
    match = re.search(r"(?:^|\.)(\d+)\.", key)
    return int(match[1]) if match else None


def _layer_matrices(model: nn.Module, layers: int, name: str) -> tuple[Linear, ...]:
    if any(parameter.dim() > 2 and _layer_number(key) is not None for key, parameter in model.named_parameters()):
        raise UsageError(f"{name}: has experts or convolutions; the formulas hold for dense decoders only")
    sizes_by_layer: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for key, module in model.named_modules():
        layer_index = _layer_number(key)
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
        raise UsageError(f"{name}: some layers are not attention and an MLP, as the formulas require")
    stages = {key: READS for key in groups["attention"]} | {key: WIDENS for key in groups["mlp"]}
    out = [key for key in groups["attention"] if re.search(OUT, key.rpartition(".")[2])] or groups["attention"]
    stages |= {out[-1]: MIXES, groups["mlp"][-1]: NARROWS}
    return tuple(Linear(key.rpartition(".")[2], *sizes, stages[key]) for key, sizes in sizes_by_layer[0].items())
