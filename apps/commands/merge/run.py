"""`rewardlab merge`: a LoRA or a value-head checkpoint as a plain folder that gives the same scores."""

import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from peft import PeftModel

from ....rm.backbones.forward_hooks import head_bias
from ....rm.backbones.hub import stored_head
from ....rm.backbones.loading import merged_copy
from ....rm.backbones.tokenization import Encoder
from ....rm.contract.golden_scores import GOLDEN, check_golden, read_golden, write_golden
from ....rm.contract.loading_settings import has_contract, loading_options
from ....rm.data.preference_vectors import parse_preference
from ....rm.errors import UsageError
from ....rm.kinds.autoregressive.model import AutoregressiveRewardModel
from ....rm.kinds.multi_head.model import MultiHeadRewardModel
from ....rm.kinds.scalar.model import ScalarRewardModel
from ....rm.load import load_reward_model
from ....rm.parity.parity import edge_cases, with_weights
from ....rm.types import ScoresSteps, ScoresTokens
from ...publishing.hub_upload import open_repository
from ...runs.run_folder import log, run_folder, trust_option, write_manifest
from .settings import MergeConfig


def run_merge(config: MergeConfig) -> dict[str, Any]:
    """Merge the adapter into the weights, and save the folder if it reproduces the golden scores."""
    started, repository = time.time(), open_repository(config)
    model: Any = load_reward_model(config.model, **loading_options(config), **trust_option(config))
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        if isinstance(model, AutoregressiveRewardModel):
            plain = _merge_guide(model, config, work)
        else:
            plain = _merge_scalar(model, config, work)
        plain.save(work)
        difference = check_golden(load_reward_model(str(work), check=False, **trust_option(config)), work)
        facts = {"contract": plain.contract.hash(), "golden_difference": difference}
        write_manifest(work, data=[], seed=0, started=started, source=config.model, **facts)
    if repository:
        facts["commit"] = repository.upload(Path(config.output))
    return {"model": config.output, "kind": plain.contract.kind, **facts}


def _merge_scalar(model: Any, config: MergeConfig, work: Path) -> Any:
    """Merge the adapter of a reward model that is not autoregressive into the model's weights, and return the model."""
    if config.preference:
        raise UsageError(f"{config.model} takes no preference, got {config.preference}; leave --preference out")
    classifier = model.body if isinstance(model, MultiHeadRewardModel) else model
    adapted = isinstance(classifier, ScoresTokens | ScoresSteps) and isinstance(classifier.model, PeftModel)
    if not adapted and (has_contract(config.model) or not (stored_head(config.model) or loading_options(config))):
        raise UsageError(
            f"{config.model}: no adapter in it (kind '{model.contract.kind}'), so there is nothing to merge; to write "
            "a contract for a model that has none, give --objective, --bos or --eos"
        )
    if (Path(config.model) / GOLDEN).exists():
        shutil.copy(Path(config.model) / GOLDEN, work / GOLDEN)
    else:
        write_golden(model, edge_cases(model, []), work)
    plain = with_weights(classifier, merged_copy(classifier.model) if adapted else classifier.model)
    if isinstance(plain, ScalarRewardModel) and head_bias(plain.model) is not None:
        log(
            "the head has a bias, which is saved as score.bias; rewardlab and vLLM add it to the scores, Transformers "
            "ignores it"
        )
    return MultiHeadRewardModel(plain, model.heads, model.rule) if isinstance(model, MultiHeadRewardModel) else plain


def _merge_guide(model: AutoregressiveRewardModel, config: MergeConfig, work: Path) -> AutoregressiveRewardModel:
    """Return an autoregressive reward model with its adapter merged at the configured preference."""
    adapter = model.adapter
    if adapter is None:
        raise UsageError(f"{config.model}: no adapter in it (kind 'autoregressive'), so there is nothing to merge")
    if model.centred:
        raise UsageError(f"{config.model} cannot be merged: its rewards also need the base model without the adapter")
    preference = parse_preference(config.preference) if config.preference else None
    if adapter.settings.follows_preference and preference is None:
        raise UsageError(
            f"{config.model} depends on a preference over {', '.join(adapter.objectives)}; choose one with --preference"
        )
    shifts = adapter.settings.kind == "moslora" and adapter.settings.shift
    if shifts and any(layer.get_base_layer().bias is None for layer in adapter.layers.values()):
        raise UsageError(
            f"{config.model}: its shift needs biases that Transformers would drop from a plain folder; train with "
            "--shift False, or write a PEFT LoRA from Python with adapter.export_lora(preference, folder)"
        )
    read = model.at(preference) if preference else model
    has_golden = (Path(config.model) / GOLDEN).exists()
    write_golden(read, read_golden(Path(config.model))[0] if has_golden else edge_cases(model, []), work)
    contract = replace(read.contract, backbone=None)
    merged = adapter.merge(preference or {})
    encoder = Encoder(model.encoder.tokenizer, contract)
    return AutoregressiveRewardModel(merged, encoder, beta=model.beta, token_offset=model.token_offset)
