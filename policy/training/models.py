"""Language models of policy training: the policy, its reference policy and its adapters."""

from functools import partial
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel

from ...rm.backbones.loading import load_causal_lm, load_tokenizer
from ...rm.backbones.lora_classifier import check_targets
from ...rm.backbones.packing.attention import set_attention
from ...rm.errors import UsageError
from ...rm.io.hub_names import absolute_name
from ...rm.io.sharded_weights import gathered_state
from ..decoding.engines import DecodingModel, decoding_model, shared_vocabulary
from ..step.forward import soup
from ..step.settings import ModelSettings, ReferenceSettings
from .arguments import DpoArguments, PolicyArguments, SftArguments

Arguments = PolicyArguments | SftArguments | DpoArguments


def open_language_model(source: str, settings: ModelSettings, arguments: Arguments) -> DecodingModel:
    """Load a language model and its tokenizer. An adapter is merged. Raise an error for a reward model."""
    source = absolute_name(source)  # an adapter keeps the name of its base
    options = {"trust_remote_code": True} if arguments.trust_remote_code else {}
    tokenizer = load_tokenizer(source, chat_template=settings.chat_template, **options)

    def load(name: str) -> Any:
        return load_causal_lm(name, tokenizer, dtype=settings.dtype, device=str(arguments.device), **options)

    model: Any = load(source)
    if adapters := getattr(model, "peft_config", None):  # set by PEFT
        if settings.lora:
            raise UsageError(f"{source} is an adapter already; remove --lora to train it, or use its base model")
        base = load(next(iter(adapters.values())).base_model_name_or_path)
        model = PeftModel.from_pretrained(base, source).merge_and_unload().requires_grad_(True)
    set_attention(model, arguments.attn_implementation)
    return decoding_model(model, tokenizer)


def open_with_same_vocabulary(policy: DecodingModel, source: str, settings: ModelSettings, arguments: Arguments) -> Any:
    """Load the language model `source`. Raise an error if its vocabulary is not the policy's."""
    other = open_language_model(source, settings, arguments)
    shared_vocabulary([policy, other])
    return other.model


def open_reference(policy: DecodingModel, settings: ReferenceSettings, arguments: Arguments) -> Any:
    """Load the reference policy. None if it is the initial policy."""
    load = partial(open_with_same_vocabulary, policy, settings=settings, arguments=arguments)
    base = load(settings.reference) if settings.reference else None
    if settings.soup is None:
        return base
    return soup(base or policy.model, load(settings.soup), settings.soup_share)


def lora_config(settings: ModelSettings, model: Any) -> LoraConfig | None:
    """Return the configuration of the adapters to train; None if all weights are trained."""
    if not settings.lora:
        return None
    targets: Any = settings.lora_target_modules
    if targets != ["all-linear"]:
        check_targets(model, targets)
    return LoraConfig(
        r=settings.lora_r,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )


def save_policy(trainer: Any, folder: Path) -> None:
    """Save the policy of a trainer and its tokenizer. Every process calls this, and rank 0 writes the folder."""
    trainer.model.config.use_cache = True  # Transformers' loop switches it off
    weights = gathered_state(trainer.model)
    if trainer.accelerator.is_main_process:
        trainer.model.save_pretrained(folder, state_dict=weights)
        trainer.processing_class.save_pretrained(folder)
