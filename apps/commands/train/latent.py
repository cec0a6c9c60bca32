"""Latent reasoning reward models: model, rows and task from settings and pairs."""

from typing import Any

from ....rm.errors import UsageError
from ....rm.models.latent import LatentRewardModel, latent, latent_from_config
from ....rm.training.encoding import Encoding
from ....rm.training.latent_task import LatentTask, encode_latent
from ....rm.training.trainer import RewardArguments
from ....rm.types import PreferencePair, message_text
from ...runs.run_folder import log, trust
from ...settings.reading import edges
from .latent_settings import LatentConfig
from .scalar import Prepared, log_encoding, log_small_model, lora_config, small_backbone
from .settings import TrainConfig


def prepare_latent(
    config: TrainConfig,
    steps: LatentConfig,
    arguments: RewardArguments,
    pairs: list[PreferencePair],
    held: list[PreferencePair],
) -> Prepared:
    """Return a causal language model with its heads, the rows of the pairs, and the number of rationales."""
    model = build_latent(config, steps, pairs, arguments.seed)
    if model.contract.latent_steps and arguments.gradient_checkpointing:
        raise UsageError("--gradient_checkpointing turns off the cache that latent steps read; leave it out")
    log(f"the first sequence reads: {model.encoder.render(pairs[0].examples[0])[:300]!r}")
    encoding, counts = _encode(model, pairs, config, steps, "data")
    eval_rows = _encode(model, held, config, steps, "eval_data")[0].rows if held else None
    task = LatentTask(
        model,
        alignment=steps.latent_alignment,
        rationale_weight=steps.rationale_weight,
        price=steps.latent_price,
        stage_1_steps=steps.latent_stage_1,
        seed=arguments.seed,
    )
    task.check(encoding.rows)
    return Prepared(model, task, encoding, eval_rows, {"rationales": counts})


def build_latent(config: TrainConfig, steps: LatentConfig, pairs: list[PreferencePair], seed: int) -> LatentRewardModel:
    """Return the named language model with new heads, a saved model that is trained on, or a small one from scratch."""
    options: dict[str, Any] = {"latent_steps": steps.latent_steps, "latent_depth": steps.latent_depth}
    options |= {"max_length": config.max_length, "seed": seed}
    if config.model:
        options |= {"chat_template": config.chat_template, "dtype": config.dtype, "lora": lora_config(config)}
        return latent(config.model, fresh=True, **options, **edges(config), **trust(config))
    texts = [message_text(turn) for pair in pairs for turn in pair.prompt]
    texts += [text for pair in pairs for text in (pair.chosen, pair.rejected, *pair.rationales)]
    tokenizer, shape = small_backbone(config, texts)
    model = latent_from_config(shape, tokenizer, **options)
    log_small_model(model.model, tokenizer)
    return model


def _encode(
    model: LatentRewardModel, pairs: list[PreferencePair], config: TrainConfig, steps: LatentConfig, name: str
) -> tuple[Encoding, dict[str, int]]:
    """Encode pairs with their rationales, and log how many there are."""
    positions = getattr(model.language_model.config.get_text_config(), "max_position_embeddings", None)
    limits = {"longest": steps.rationale_length, "positions": positions}
    encoding, counts = encode_latent(model.encoder, pairs, config.objective, config.on_long, **limits)
    cut = f", of which {counts.cut} were cut" if counts.cut else ""
    log(f"{name}: {counts.stated} of {counts.completions} completions have a rationale{cut}")
    return log_encoding(name, encoding, config), counts._asdict()
