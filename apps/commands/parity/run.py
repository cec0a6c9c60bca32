"""`rewardlab parity`: score conversations in several implementations, and report differences and their causes."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....rm.contract.golden_scores import GOLDEN, read_golden
from ....rm.contract.loading_settings import loading_options
from ....rm.contract.scoring_contract import ScoringContract
from ....rm.data.pairs import load_examples
from ....rm.data.scored_rows import reward_columns
from ....rm.errors import CheckFailed
from ....rm.kinds.process.model import ProcessRewardModel
from ....rm.load import load_reward_model
from ....rm.parity.known_faults import BackendScores
from ....rm.parity.loaders import Group, target_groups, with_plain_truncation
from ....rm.parity.model_server import PROBABILITIES
from ....rm.parity.parity import Backend, Parity, edge_cases, other_precision, own_variants, parity
from ....rm.parity.report import as_json, junit, markdown, sentence, verdict
from ....rm.parity.steps import StepModel, process_parities, step_parities
from ....rm.types import Example, ReadsTokens, completion_json
from ... import cli
from ...runs.run_folder import log, log_report, log_rows, replace_file, replace_text, trust_option, write_json
from ...serving.client import ScoringClient
from .settings import ParityConfig


def run_parity(config: ParityConfig) -> dict[str, Any]:
    """Compare the scores of every implementation with the scores of the model, and write the reports.

    Raise `CheckFailed` if the scores of an implementation differ.
    """
    if config.step_token is not None:
        edges = {"bos": config.bos, "eos": config.eos}
        steps_model = StepModel(config.model, config.step_token, config.step_labels, **edges, **trust_option(config))
        results, note = step_parities(steps_model, config.targets, _data_examples(config), half=config.half)
        return _report(config, steps_model.contract, results, [note])
    model = load_reward_model(config.model, check=False, **loading_options(config), **trust_option(config))
    folder = Path(config.model)
    golden = read_golden(folder) if (folder / GOLDEN).exists() else ([], None)
    examples, notes = _conversations(config, model, golden)
    groups, left_out = _groups(config, model, examples, golden)
    precision = other_precision(model)
    results: list[Parity] = []
    for group in groups:
        half = [*precision, *(group.backends if config.half and group.theirs else ())]
        reported = [PROBABILITIES, *(() if config.half else precision)]
        for result in parity(model, group.examples, group.backends, half=half, report_only=reported):
            log(f"{verdict(result):>6}  {sentence(result)}")
            results.append(result)
    if isinstance(model, ProcessRewardModel):
        steps = process_parities(model, config.targets, examples, token=config.token, half=config.half)
        results += steps
        left_out += [f"token_classify: n is the number of steps in {len(examples)} conversations."] if steps else []
    return _report(config, model.contract, results, notes + left_out)


def _report(
    config: ParityConfig, contract: ScoringContract, results: Sequence[Parity], notes: Sequence[str]
) -> dict[str, Any]:
    """Write the reports. Return the results, or raise `CheckFailed` if a comparison failed."""
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
        raise CheckFailed(f"{config.model}: {len(failed)} of {len(results)} comparisons failed. {failures}")
    return facts


def _conversations(config: ParityConfig, model: Any, golden: tuple[list[Example], Any]) -> tuple[list[Example], list]:
    """Return the conversations to score, and notes on their numbers.

    These are the golden conversations, those of `--data`, and generated edge cases that neither of them covers.
    """
    read = _data_examples(config)
    rateable = _drop_without_score(model, read) if isinstance(model, ProcessRewardModel) else read
    edges = edge_cases(model, [*golden[0], *rateable])
    examples = [*golden[0], *rateable, *edges]
    counts = f"{len(golden[0])} golden conversations, {len(rateable)} of --data, {len(edges)} generated edge cases"
    left_out = len(read) - len(rateable)
    note = f"Conversations of --data left out because they have no score (no step, or a truncated one): {left_out}."
    return examples, [counts + ".", *([note] if left_out else [])]


def _drop_without_score(model: ProcessRewardModel, examples: Sequence[Example]) -> list[Example]:
    """Return the examples with a finite score. Completions without steps or with a truncated step have no score."""
    finite = np.isfinite(model.rate(examples)).all(axis=1) if examples else []
    return [example for example, has_score in zip(examples, finite, strict=True) if has_score]


def _data_examples(config: ParityConfig) -> list[Example]:
    if not config.data:
        return []
    identified, rows = load_examples(config.data, on_bad_row=config.on_bad_row)
    log_rows("data", rows)
    return [example for _, example in identified]


def _groups(
    config: ParityConfig, model: Any, examples: list[Example], golden: tuple[list[Example], Any]
) -> tuple[list[Group], list[str]]:
    """Return groups of implementations, the conversations that each can read, and notes on omitted conversations."""
    stored_examples, scores = golden
    groups = (
        [Group(stored_examples, {"kept golden scores": lambda _: BackendScores(scores)})] if stored_examples else []
    )
    groups.append(Group(examples, own_variants(model) | other_precision(model)))
    if config.fresh:
        objectives = model.contract.objectives
        groups.append(
            Group(examples, _fresh_process(config.model, objectives, **loading_options(config), **trust_option(config)))
        )
    plain = with_plain_truncation(model, examples) if isinstance(model, ReadsTokens) else examples
    for target in config.targets:
        if target.kind == "http":
            client = ScoringClient(target.target, config.token, truncate=True)
            groups.append(Group(examples, {target.target: partial(_served_scores, client)}, True))
        else:
            groups += target_groups(target, config.model, model, examples, plain, **trust_option(config))
    cut = len(examples) - len(plain)
    note = f"{cut} conversations beyond {model.contract.max_length} tokens are left out for targets that truncate: the "
    needs_note = cut and any(group.examples is plain for group in groups)
    return groups, [
        note + "contract keeps the BOS at the front, which a tokenizer's settings cannot express."
    ] if needs_note else []


def _served_scores(client: ScoringClient, examples: Sequence[Example]) -> BackendScores:
    return BackendScores(client.rate(examples))


def _fresh_process(source: str, objectives: Sequence[str], **options: Any) -> dict[str, Backend]:
    """Return an implementation that runs `rewardlab score` in a new process with `options` as settings."""
    module = cli.__name__

    def score(examples: Sequence[Example]) -> BackendScores:
        with tempfile.TemporaryDirectory() as folder:
            data, out = Path(folder) / "conversations.jsonl", Path(folder) / "scores.jsonl"
            rows = (
                {"prompt": list(example.prompt), "completion": completion_json(example.completion)}
                for example in examples
            )
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            command = [sys.executable, "-m", module, "score", "--model", source, "--check", "False"]
            command += ["--on_long", "truncate"]
            command += ["--data", str(data), "--output", str(out)]
            command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                return BackendScores(np.empty(0), because=f"refused: {(run.stderr.strip().splitlines() or ['?'])[-1]}")
            rows_read = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
        return BackendScores(np.array([[row[name] for name in reward_columns(objectives)] for row in rows_read], float))

    return {"fresh process": score}
