"""Classifiers of other software (no scoring contract): detection of reward output, BOS/EOS policy, normalisation."""

import math
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub.repocard import metadata_load
from jaxtyping import Float
from torch import Tensor, nn
from yaml import YAMLError

from ...backbones.hub import Head, file_of, replace_head
from ...backbones.loading import load_config, name_labels
from ...backbones.lora_classifier import ADAPTER, base_of, head_rows, read_lora
from ...backbones.sequence_scores import decoder_head
from ...contract.scoring_contract import FILE
from ...errors import UNREADABLE, DataError, UsageError, did_you_mean

OBJECTIVES = ("reward",)
UNNAMED = re.compile(r"LABEL_\d+")
CLASSIFIER = "ForSequenceClassification"
TRL_CARD, TRL_ARGUMENTS = {"trl", "reward-trainer"}, b"trl.trainer.reward_config"
"""Traces of TRL's RewardTrainer in a folder: tags in README.md, and the class name in the pickle training_args.bin. The
pickle is searched as bytes and never loaded."""
OPENRLHF = ("normalize_reward", "value_head_prefix")


class Outputs(NamedTuple):
    """Names of the outputs of a classifier of other software."""

    names: tuple[str, ...]
    are_classes: bool
    """Whether the outputs are class logits, so that none of them is necessarily a reward."""


def outputs_of(source: str, *, adapted: bool, trust_remote_code: bool) -> Outputs:
    """Return the names of the outputs, from the config.json of a folder or Hub id, or from an adapter's saved head.

    Labels are classes, unless the config states the problem type `regression` or uses custom model code.
    """
    if adapted:
        return _outputs_of_adapter(Path(source), trust_remote_code)
    try:
        config = load_config(source, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):
        return Outputs(OBJECTIVES, False)  # loading raises the proper error
    names, architectures = _label_names(config), config.architectures or ()
    classifier = not architectures or any(name.endswith(CLASSIFIER) for name in architectures)
    language_model = any(name.endswith("ForCausalLM") for name in architectures)
    if len(names) == 1 or language_model or (not classifier and names == ("LABEL_0", "LABEL_1")):
        return Outputs(OBJECTIVES, False)  # the labels are Transformers' defaults
    return Outputs(names, all(map(UNNAMED.fullmatch, names)) or (classifier and config.problem_type != "regression"))


def classes_of(source: str) -> tuple[str, ...]:
    """Return the class names of a local classifier of other software; empty for all other models."""
    folder = Path(source)
    if not folder.is_dir() or (folder / FILE).exists():
        return ()
    adapted = (folder / ADAPTER).exists()
    outputs = outputs_of(source, adapted=adapted, trust_remote_code=False)
    return outputs.names if outputs.are_classes else ()


def _outputs_of_adapter(folder: Path, trust_remote_code: bool) -> Outputs:
    """Return one output per row of the saved head, with the names in the base model's config, if any."""
    rows = head_rows(folder)
    if rows == 1:
        return Outputs(OBJECTIVES, False)
    config = load_config(base_of(read_lora(folder)[0]), trust_remote_code=trust_remote_code)
    names = _label_names(config)
    return Outputs(names if len(names) == rows else tuple(f"LABEL_{row}" for row in range(rows)), True)


def _label_names(config: Any) -> tuple[str, ...]:
    labels = config.id2label or {0: OBJECTIVES[0]}
    return tuple(labels[index] for index in sorted(labels))


def reward_index(source: str, outputs: Outputs, objective: str | None) -> int | None:
    """Return the index of output `objective`, or None if all are rewards; `objective` is required for classes."""
    names = outputs.names
    if len(names) == 1 or (objective is None and not outputs.are_classes):
        return None
    if objective is None:
        listed = ", ".join(names[:6]) + (" ..." if len(names) > 6 else "")
        raise DataError(
            f"{source}: a classifier of {len(names)} classes ({listed}), none named as reward; say which output is "
            "the reward with --objective NAME, or for every command with "
            f"rewardlab merge {source} --objective NAME --output FOLDER"
        )
    if objective not in names:
        raise UsageError(f"--objective {objective}: {source} has no such output; {did_you_mean(objective, names)}")
    return names.index(objective)


def keep_output(model: Any, names: tuple[str, ...], index: int) -> None:
    """Replace the K outputs of a classifier with the output at `index`."""
    weights = torch.zeros(len(names))
    weights[index] = 1.0
    with_single_output(model, weights)
    name_labels(model.config, (names[index],))


@torch.no_grad()
def with_single_output(model: Any, weights: Float[Tensor, " K"]) -> None:
    """Replace a head's K outputs z by Σ_k weights_k z_k, in place."""
    head: Any = last_linear(model, len(weights))
    if head is None:
        raise DataError(f"this {type(model).__name__} has no linear head of {len(weights)} outputs to choose one from")
    weights = weights.to(head.weight)
    head.weight = nn.Parameter((weights @ head.weight)[None], head.weight.requires_grad)
    head.bias = None if head.bias is None else nn.Parameter((weights @ head.bias)[None], head.bias.requires_grad)
    head.out_features = 1
    model.num_labels = 1


def last_linear(model: nn.Module, outputs: int) -> nn.Linear | None:
    """Return the linear layer that outputs the rewards (with PEFT its trainable copy); None if there is none."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear) and module.out_features == outputs]
    return layers[-1] if layers else None


def edges_of(source: str, config: Any) -> dict[str, str]:
    """Return the BOS and EOS policies of the software that trained a reward model; empty if it cannot be identified.

    TRL's RewardTrainer leaves BOS and EOS to the chat template. OpenRLHF adds no BOS, and one EOS.
    """
    if _is_from_trl(source):
        return {"bos": "template", "eos": "template"}
    return {"bos": "template", "eos": "once"} if any(name in config.to_dict() for name in OPENRLHF) else {}


def _is_from_trl(source: str) -> bool:
    arguments, card = file_of(source, "training_args.bin"), file_of(source, "README.md")
    if arguments is not None and TRL_ARGUMENTS in arguments.read_bytes():
        return True
    try:
        return card is not None and {*(metadata_load(card) or {}).get("tags", ())} >= TRL_CARD
    except (*UNREADABLE, YAMLError):  # a card of any other form
        return False


def apply_normalisation(model: Any, source: str) -> dict[str, float]:
    """Fold OpenRLHF's normalisation (v - mean) / std into a value head; return it as fields of the contract.

    config.json contains the mean and standard deviation of the rewards v after training, and whether to apply them.
    """
    stated = {name: model.config.to_dict().get(name) for name in ("mean", "std")}
    if None in stated.values():
        return {}
    mean, std = stated["mean"], stated["std"]
    if not model.config.to_dict().get("normalize_reward"):
        warnings.warn(
            f"{source}: rewards are not normalised by the mean {mean} and std {std} in its config.json; OpenRLHF "
            "normalises only if normalize_reward is true there",
            stacklevel=2,
        )
        return {}
    head: Any = decoder_head(model)
    if not (isinstance(mean, float | int) and isinstance(std, float | int)):
        raise DataError(f"{source}: mean {mean!r} and std {std!r} in its config.json are not numbers; restore the file")
    if not (math.isfinite(mean) and math.isfinite(std) and std > 0) or head is None or len(head.weight) != 1:
        raise DataError(
            f"{source}: rewards cannot be normalised by the mean {mean} and std {std} of its config.json; set "
            "normalize_reward to false there to use the head's rewards unchanged"
        )
    bias = torch.zeros(1) if head.bias is None else head.bias.detach()
    replace_head(model, Head(head.weight.detach() / std, (bias - mean) / std), source)
    for name in ("mean", "std", "normalize_reward"):  # the saved folder has it in its head
        delattr(model.config, name)
    warnings.warn(f"{source}: rewards are normalised as its config.json says, (v - {mean}) / {std}", stacklevel=2)
    return {"reward_mean": float(mean), "reward_std": float(std)}
