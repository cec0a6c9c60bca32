"""`rewardlab parity`: score conversations in every way, and report differences and their causes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....rm.contract.golden_scores import GOLDEN, read_golden
from ....rm.contract.loading_settings import reading
from ....rm.contract.scoring_contract import ScoringContract
from ....rm.data.pairs import load_examples
from ....rm.errors import CheckFailed, UsageError
from ....rm.kinds.latent.model import LatentRewardModel
from ....rm.kinds.process.model import ProcessRewardModel
from ....rm.load import load_reward_model
from ....rm.parity.known_faults import Scored
from ....rm.parity.parity import Parity, Way, edge_cases, other_precision, own_ways, parity
from ....rm.types import Example
from ...runs.run_folder import log, log_report, log_rows, replace_file, replace_text, trust, write_json
from .loaders import adapter, checkpoint, cut_plainly, fresh_process, other_model
from .report import as_json, junit, markdown, sentence, verdict
from .settings import NATIVE_WAYS, Against, ParityConfig
from .sglang import PROBABILITIES, sglang
from .steps import process_parities, step_parities
from .vllm import served, vllm


class Group(NamedTuple):
    """Ways that score the same conversations."""

    examples: Sequence[Example]
    ways: dict[str, Way]
    theirs: bool = False
    """Whether another program computes them."""


def run_parity(config: ParityConfig) -> dict[str, Any]:
    """Compare every way with the model's own scores and write the reports; a way that differs fails the check."""
    if config.step_token is not None:
        return _report(config, *step_parities(config, _data_examples(config)))
    model = load_reward_model(config.model, check=False, **reading(config), **trust(config))
    folder = Path(config.model)
    golden = read_golden(folder) if (folder / GOLDEN).exists() else ([], None)
    examples, notes = _conversations(config, model, golden)
    groups, left_out = _groups(config, model, examples, golden)
    precision = other_precision(model)
    results: list[Parity] = []
    for group in groups:
        half = [*precision, *(group.ways if config.half and group.theirs else ())]
        reported = [PROBABILITIES, *(() if config.half else precision)]
        for result in parity(model, group.examples, group.ways, half=half, report_only=reported):
            log(f"{verdict(result):>6}  {sentence(result)}")
            results.append(result)
    if isinstance(model, ProcessRewardModel):
        steps = process_parities(config, model, examples)
        results += steps
        left_out += [f"token_classify: n counts the steps of {len(examples)} conversations."] if steps else []
    return _report(config, model.contract, results, notes + left_out)


def _report(
    config: ParityConfig, contract: ScoringContract, results: Sequence[Parity], notes: Sequence[str]
) -> dict[str, Any]:
    text = markdown(config.model, contract, results, notes)
    facts = as_json(config.model, contract, results, notes)
    if config.output:
        path = Path(config.output)
        replace_text(path, text)
        replace_file(path.with_suffix(".json"), lambda temporary: write_json(temporary, facts))
    if config.junit:
        replace_file(Path(config.junit), lambda temporary: temporary.write_bytes(junit(config.model, results)))
    log_report(f"\n{text}")
    if failed := [result for result in results if not result.passed]:
        failures = "; ".join(f"{result.way}: {result.culprit}" for result in failed)
        raise CheckFailed(f"{config.model}: {len(failed)} of {len(results)} ways give other scores. {failures}")
    return facts


def _conversations(config: ParityConfig, model: Any, golden: tuple[list[Example], Any]) -> tuple[list[Example], list]:
    """Return golden conversations, those of --data and edge cases of missing kinds, and notes on their numbers."""
    read = _data_examples(config)
    given = _with_score(model, read) if isinstance(model, ProcessRewardModel) else read
    edges = edge_cases(model, [*golden[0], *given])
    examples = [*golden[0], *given, *edges]
    counts = f"{len(golden[0])} golden conversations, {len(given)} of --data, {len(edges)} edge cases made for the rest"
    left_out = len(read) - len(given)
    note = f"Left out of --data, since they have no step or one that was cut off and so no score: {left_out}."
    return examples, [counts + ".", *([note] if left_out else [])]


def _with_score(model: ProcessRewardModel, examples: Sequence[Example]) -> list[Example]:
    """Return the examples with a score; a completion without steps or with one that was cut off has none."""
    finite = np.isfinite(model.rate(examples)).all(axis=1) if examples else []
    return [example for example, has_score in zip(examples, finite, strict=True) if has_score]


def _data_examples(config: ParityConfig) -> list[Example]:
    if not config.data:
        return []
    named, rows = load_examples(config.data, on_bad_row=config.on_bad_row)
    log_rows("data", rows)
    return [example for _, example in named]


def _groups(
    config: ParityConfig, model: Any, examples: list[Example], golden: tuple[list[Example], Any]
) -> tuple[list[Group], list[str]]:
    """Return all ways with the conversations that each can read, and a note on those left out."""
    stored_examples, scores = golden
    groups = [Group(stored_examples, {"kept golden scores": lambda _: Scored(scores)})] if stored_examples else []
    groups.append(Group(examples, own_ways(model) | other_precision(model)))
    if config.fresh:
        objectives = model.contract.objectives
        groups.append(Group(examples, fresh_process(config.model, objectives, **reading(config), **trust(config))))
    plain = cut_plainly(model, examples) if hasattr(model, "encoder") else examples
    for against in config.asked:
        groups += _against(against, config, model, examples, plain)
    left = len(examples) - len(plain)
    note = f"{left} conversations beyond {model.contract.max_length} tokens are left out where another truncates: the "
    needs_note = left and any(group.examples is plain for group in groups)
    return groups, [
        note + "contract keeps the BOS in front, which a tokenizer's setting cannot say."
    ] if needs_note else []


def _against(
    asked: Against, config: ParityConfig, model: Any, examples: list[Example], plain: list[Example]
) -> list[Group]:
    options = trust(config)
    if isinstance(model, ProcessRewardModel) and asked.kind not in ("http", "model"):
        if asked.kind == "vllm":
            return []  # compared step by step, by `process_parities`
        raise UsageError(
            f"--against {asked.kind} gives one score for a conversation; the steps of a process reward model are "
            "compared with --against vllm URL or http URL"
        )
    if isinstance(model, LatentRewardModel) and asked.kind in ("vllm", "sglang"):
        raise UsageError(
            f"--against {asked.kind} feeds no hidden state back, which a latent reward model needs; compare it with "
            "http URL of rewardlab serve, or with another folder"
        )
    if asked.kind in NATIVE_WAYS:
        read = checkpoint if asked.kind == "checkpoint" else adapter
        return [Group(plain, read(config.model, model, **options), True)]
    if asked.kind == "vllm":
        by_ids, by_messages = vllm(asked.target, model)
        return [Group(examples, by_ids, True), Group(plain, by_messages, True)]
    if asked.kind == "sglang":
        by_ids, by_text = sglang(asked.target, model)
        lengths = [encoded.length for encoded in model.encoder.encode_all(examples)]
        limit = model.contract.max_length or max(lengths)
        short = [example for example, length in zip(examples, lengths, strict=True) if length <= limit]
        return [Group(examples, by_ids, True), Group(short, by_text, True)]
    if asked.kind == "http":
        return [Group(examples, served(asked.target, config.token), True)]
    return [Group(examples, other_model(asked.target, **options), True)]
