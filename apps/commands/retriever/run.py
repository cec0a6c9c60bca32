"""`rewardlab retriever`: train a retrieval encoder on prompts with rubrics or labelled cases."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ....judges.case_rows import parse_case
from ....judges.retrieval.encoder import new_encoder
from ....judges.retrieval.sources import labelled_text
from ....judges.retrieval.training import RetrieverArguments, RetrieverTrainer, TextPair, joint_rows, pairs_within
from ....judges.rubrics.files import rubric_of_row
from ....judges.rubrics.rubric import render
from ....judges.types import Case
from ....rm.data.pairs import collect, parse_pair, row_prompt
from ....rm.training import CHECKPOINTS
from ....rm.training.checkpointing import last_complete_checkpoint
from ....rm.types import prompt_text
from ...runs.model_hashes import with_model_hashes
from ...runs.run_folder import (
    data_hash,
    log,
    log_rows,
    run_folder,
    training_recipe,
    trust_option,
    write_manifest,
    write_rows,
)
from ...runs.stop_training import train_until_signal
from .settings import RetrieverConfig


def train_retriever(config: RetrieverConfig, arguments: RetrieverArguments) -> dict[str, Any]:
    """Train an encoder and save its folder. An interrupted run resumes from the last complete checkpoint."""
    started = time.time()
    labelled, report = collect(config.data, partial(_labelled_pair, group_by=config.group_by), config.on_bad_row)
    log_rows("data", report)
    questions, groups = [pair for pair, _ in labelled], [group for _, group in labelled]
    cases = pairs_within([pair[0] for pair in questions], groups, per_text=config.partners, seed=arguments.seed)
    rows = joint_rows(questions, cases, arguments.case_weight, arguments.seed)
    data, keep = {source: data_hash(source) for source in config.data}, f"{CHECKPOINTS}/*"
    recipe = training_recipe(with_model_hashes(config.identity() | {"data_sha256": data}), arguments)
    with run_folder(config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=keep) as work:
        encoder = _encoder(config, questions, arguments.seed)
        over = encoder.over_length([text for pair in questions for text in pair[:2]])
        if over:
            log(f"data: {over} of {2 * len(questions)} texts exceed {config.max_length} tokens and are truncated")
        folder = work / CHECKPOINTS
        checkpoint = last_complete_checkpoint(folder, log) if config.resume else None
        if checkpoint:
            log(f"resuming from {checkpoint.name}")
        trainer = RetrieverTrainer(encoder, replace(arguments, output_dir=str(folder)), rows)
        result = train_until_signal(trainer, checkpoint)
        encoder.save(work)
        write_rows(work / "metrics.jsonl", trainer.state.log_history)
        counts = {
            "prompt -> rubric": len({row.question for row in rows} - {None}),
            "case -> case": len({row.case for row in rows} - {None}),
        }
        facts = {"pairs": counts, "over_length": over, "train_loss": result.training_loss}
        facts |= {"contract": encoder.contract}
        more = {"rows": report.as_json(), "arguments": arguments.to_sanitized_dict()}
        write_manifest(work, data=config.data, seed=arguments.seed, started=started, **facts, **more)
    return {"retriever": config.output, **facts}


def _labelled_pair(values: Mapping[str, Any], group_by: str) -> tuple[TextPair, str]:
    """Return the prompt of a row with its rubric or labelled case, and the row's group."""
    stated = values.get(group_by)
    group = "" if stated is None else str(stated)
    if "rubric" in values or "rubrics" in values:
        return TextPair(prompt_text(row_prompt(values)), render(rubric_of_row(values))), group
    if "answers" in values:
        case = parse_case(values)
    else:
        pair = parse_pair(values)
        case = Case(pair.id, pair.prompt, (pair.chosen, pair.rejected))
    return TextPair(prompt_text(case.prompt), labelled_text(case)), group


def _encoder(config: RetrieverConfig, pairs: Sequence[TextPair], seed: int) -> Any:
    texts = [text for pair in pairs for text in pair[:2]]
    options = {"hidden": config.small_hidden, "layers": config.small_layers, "vocabulary": config.small_vocabulary}
    encoder = new_encoder(config.encoder_settings(), config.model, texts, seed=seed, **options, **trust_option(config))
    if not config.model:
        size = sum(parameter.numel() for parameter in encoder.parameters())
        log(
            f"no --model given: created a small encoder with {size:,} random weights, whose vocabulary covers only the "
            "data; for other texts, name a pretrained backbone with --model"
        )
    return encoder
