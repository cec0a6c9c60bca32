"""Text of a model card. All numbers come from files, and all names are escaped."""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from huggingface_hub import EvalResult, ModelCardData

from ...benchmarks.evaluate import OVERALL
from ...benchmarks.report import table
from ...benchmarks.statistics.calibration import reliability
from ...benchmarks.types import Interval, part_of
from ...rm.backbones.lora_classifier import ADAPTER
from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import DataError
from ...rm.io.checked_files import from_json, from_yaml
from ...rm.io.escaping import CONTROL
from ..runs.finished import Finished
from ..runs.run_folder import CONFIG, MANIFEST

PARITY = "parity.json"
CLASSIFIERS = ("scalar", "multi_objective")
"""Kinds of reward models that are saved as sequence classifiers of Transformers."""


class Measured(NamedTuple):
    """A run of `rewardlab eval`, and the row of its summary about this model."""

    run: Finished
    row: Mapping[str, Any]


def card(folder: Path, contract: ScoringContract, measured: Sequence[Measured]) -> str:
    """Return the YAML header and the text of a model card."""
    manifest, recipe = _json(folder / MANIFEST), _load_mapping(folder / CONFIG, from_yaml)
    parts = [
        f"# {text(folder.resolve().name)}",
        _summary_text(contract),
        _contract(contract),
        _usage_text(folder, contract),
        *(["## Measured", *map(_run, measured)] if measured else []),
        _training(manifest, recipe),
        _guide(manifest.get("guide") or {}),
        _parity_text(folder, contract),
        _limits(contract, measured),
    ]
    return f"---\n{_header(folder, contract, recipe, measured)}\n---\n\n" + "\n\n".join(filter(None, parts)) + "\n"


def text(value: object) -> str:
    """Return a text as one line of Markdown with escaped markup, except `|`, which `table` escapes."""
    flat = re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", CONTROL.sub(" ", str(value))).strip()
    return re.sub(r"([\\`*_\[\]~#])", r"\\\1", html.escape(flat, quote=False))


def _header(folder: Path, contract: ScoringContract, recipe: dict[str, Any], measured: Sequence[Measured]) -> str:
    classifies = contract.kind in CLASSIFIERS
    results = [
        EvalResult(
            task_type="text-classification",
            dataset_type=measurement.run.suite.name,
            dataset_name=measurement.run.suite.name,
            metric_type="accuracy",
            metric_name="accuracy",
            metric_value=measurement.row["overall"][0],
        )
        for measurement in measured
        if _finite(measurement.row["overall"][0]) and not part_of(measurement.run.summary["notes"])
    ]
    data = ModelCardData(
        model_name=folder.resolve().name,
        library_name="transformers" if classifies or contract.kind == "autoregressive" else "rewardlab",
        pipeline_tag="text-classification" if classifies else None,
        base_model=_hub_id(folder, recipe),
        tags=["reward-model", "rewardlab", contract.kind],
        eval_results=results or None,
    )
    return data.to_yaml()


def _hub_id(folder: Path, recipe: dict[str, Any]) -> str | None:
    """Return the Hub id of the base model. None if the base model is a local path."""
    name = _json(folder / ADAPTER).get("base_model_name_or_path") or recipe.get("model")
    is_id = isinstance(name, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not Path(name).exists()
    return name if is_id else None


def _summary_text(contract: ScoringContract) -> str:
    names = ", ".join(map(text, contract.objectives))
    many = f"{len(contract.objectives)} numbers: {names}" if len(contract.objectives) > 1 else f"one number: {names}"
    return f"A reward model of kind {text(contract.kind)}. It reads a conversation with a response and returns {many}."


def _contract(contract: ScoringContract) -> str:
    cut = "nothing is cut"
    if contract.max_length is not None:
        side = "end" if contract.truncation == "right" else "beginning"
        cut = f"beyond {contract.max_length} tokens, the {side} is truncated"
    facts = {
        "hash": f"`{contract.hash()}`",
        "reads": cut,
        "template": f"`{contract.template}`" if contract.template else "none",
        "BOS, EOS": f"{contract.bos or '–'}, {contract.eos or '–'} (template: as rendered; once: added where absent)",
        "pooling": contract.pooling or "–",
        "precision": contract.dtype,
    }
    lines = [f"- {name}: {value}" for name, value in (facts | contract.facts()).items()]
    return "\n".join(["## Scoring contract", "", "Settings that determine a score, from `scoring.json`.", "", *lines])


def _usage_text(folder: Path, contract: ScoringContract) -> str:
    plain = contract.kind in CLASSIFIERS and not (folder / ADAPTER).exists()
    also = (
        "\n\nPlain Transformers loads it too: `AutoModelForSequenceClassification.from_pretrained(...)`."
        if plain
        else ""
    )
    return (
        "## Use\n\n```python\nfrom rewardlab.rm.load import load_reward_model\n"
        "from rewardlab.rm.types import Example, user_turn\n"
        f"print(load_reward_model({json.dumps(folder.resolve().name)})"
        '.rate([Example(user_turn("A question?"), "An answer.")]))\n```' + also
    )


def _run(measurement: Measured) -> str:
    """Render the results of one run: the model beside the baselines, calibration and length."""
    summary, row = measurement.run.summary, measurement.row
    rows = [row, *(other for other in summary["rows"] if other["role"] == "baseline")]
    lines = [[text(r["scorer"]), r["role"], *map(_interval, (r[OVERALL], *r["sections"].values()))] for r in rows]
    facts = [
        f"{summary['cases']} cases of {text(summary['suite'])} (version {text(summary['version'])}) over "
        f"{summary['clusters']} prompts; accuracy in per cent with its 95 % interval. "
        f"{row['scored']} scored, {row['ties']} ties, {row['unscored']} unscored, {row.get('truncated', 0)} truncated."
    ]
    part = part_of(summary["notes"])
    data = _json(measurement.run.folder / MANIFEST).get("data") or {}
    facts += [f"Data: {_source_text(name, digest)}." for name, digest in data.items()]
    if (error := _calibration(measurement)) is not None:
        facts.append(f"Expected calibration error of σ(margin): {error:.3f}.")
    slope = row["style"].get("length_slope")
    if _finite(slope):
        facts.append(f"The score changes by {slope:+.2f} standard deviations per doubling of a response's length.")
    against = [f"- {_difference(name, areas_of)}" for name, areas_of in row.get("minus_baseline", {}).items()]
    return "\n\n".join(
        [f"### {text(summary['suite'])}{' (a part of it)' if part else ''}"]
        + ([f"**{text(part)}**"] if part else [])
        + [" ".join(facts), table(["scorer", "role", OVERALL, *row["sections"]], lines), "\n".join(against)]
    )


def _interval(interval: Sequence[Any]) -> str:
    return str(Interval(*interval)) if all(map(_finite, interval)) else "–"


def _difference(baseline: str, areas: Mapping[str, Sequence[Any]]) -> str:
    against = f"against the baseline {text(baseline)}"
    value, low, high = areas[OVERALL]
    if not all(map(_finite, (value, low, high))):
        return f"{against}: not comparable"
    real = "significantly better" if low > 0 else "significantly worse" if high < 0 else "no significant difference"
    return f"{against}: {100 * value:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], {real}"


def _calibration(measurement: Measured) -> float | None:
    run = measurement.run
    judged = run.judgments[measurement.row["scorer"]]
    margins = [run.suite.margin(case, scores) for case in run.cases if (scores := judged[case.id].scores)]
    return reliability(np.array(margins, float))[1] if margins and run.suite.compares else None


def _training(manifest: dict[str, Any], recipe: dict[str, Any]) -> str:
    if not manifest.get("data"):
        return ""
    held_out = {  # `NAME=FILE` is in the manifest as the file
        source if source in manifest["data"] else source.partition("=")[2] for source in recipe.get("eval_data") or []
    }
    lines = [
        f"- {'evaluation' if name in held_out else 'training'} data: {_source_text(name, digest)}"
        for name, digest in manifest["data"].items()
    ]
    for name, what in (("rows", "training"), ("eval_rows", "evaluation")):
        if (rows := manifest.get(name) or {}).get("read"):
            why = "".join(f", {text(reason)} {number}" for reason, number in (rows.get("reasons") or {}).items())
            lines.append(f"- {rows['read']} rows of {what} data read, {rows['dropped']} dropped{why}")
    counts = manifest.get("encoding") or {}
    counters = ("kept", "over_length", "identical", "unlabelled", "omitted")
    lines += [f"- pairs {text(name.replace('_', ' '))}: {counts[name]}" for name in counters if name in counts]
    settings = {
        name: recipe[name]
        for name in ("model", "loss", "lora", "learning_rate", "num_train_epochs")
        if recipe.get(name)
    }
    lines += [f"- {text(name.replace('_', ' '))}: {text(value)}" for name, value in settings.items()]
    return "\n".join(["## Training", "", *lines])


def _guide(measured: Mapping[str, Any]) -> str:
    """Render the diagnostics of a guide (an autoregressive reward model for decoding) at the end of its training."""
    if not measured:
        return ""
    columns = ("context_sensitivity", "entropy", "length_correlation", "accuracy", "accuracy_without_length")
    lines = [[text(name), *(_number(at.get(key)) for key in columns)] for name, at in measured["objectives"].items()]
    collapsed = ", ".join(map(text, measured["collapsed"]))
    verdict = (
        f"**The guide has collapsed at {collapsed}**: it nearly ignores its context there."
        if collapsed
        else "The guide reads its context at every objective."
    )
    return (
        f"## Guide diagnostics\n\nMeasured on {measured['pairs']} pairs, with all weight on one objective. The base "
        f"model's context sensitivity is {_number(measured['base_context_sensitivity'])}. {verdict}\n\n"
        + table(["objective", *(column.replace("_", " ") for column in columns)], lines)
    )


def _source_text(name: str, digest: str | None) -> str:
    return f"`{_code(name)}`" + (f", SHA-256 `{_code(digest)}`" if digest else "")


def _code(value: object) -> str:
    return re.sub(r"[\s`\x00-\x1f]+", " ", str(value)).strip()


def _parity_text(folder: Path, contract: ScoringContract) -> str:
    """Render the results of `rewardlab parity --output FOLDER/parity.md`. Empty without such a file."""
    if not (folder / PARITY).exists():
        return ""
    results = _json(folder / PARITY)
    if results.get("contract") != contract.hash():
        raise DataError(
            f"{folder / PARITY}: results of contract {results.get('contract')}, not {contract.hash()}; run parity again"
        )
    lines = [
        [text(row["way"]), _number(row["largest"]), _number(row["tolerance"]), text(row["verdict"])]
        for row in results["ways"]
    ]
    return "## Parity\n\nLargest difference of a score between implementations, in units of the reward.\n\n" + table(
        ["way", "largest", "allowed", ""], lines
    )


def _limits(contract: ScoringContract, measured: Sequence[Measured]) -> str:
    lines = []
    if contract.max_length is not None:
        lines.append(f"It does not read beyond {contract.max_length} tokens.")
    if contract.kind == "implicit":
        lines.append("Rewards for the same prompt can be compared; rewards for different prompts cannot.")
    for measurement in measured:
        name = re.compile(rf"(?<!\w){re.escape(measurement.row['scorer'])}(?!\w)")
        lines += [text(finding) for finding in measurement.run.summary["findings"] if name.search(finding)]
    if not measured:
        lines.append("This card was written without an evaluation, so the model's accuracy is not known.")
    lines.append(
        "A score has no unit: only differences between responses have a meaning, for texts like the training data."
    )
    return "\n".join(["## Limits", "", *(f"- {line}" for line in lines)])


def _number(value: Any) -> str:
    return f"{value:.2g}" if _finite(value) else "not finite"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _json(path: Path) -> dict[str, Any]:
    return _load_mapping(path, from_json)


def _load_mapping(path: Path, parse: Any) -> dict[str, Any]:
    """Load a mapping from a JSON or YAML file. Empty if the file does not exist."""
    if not path.exists():
        return {}
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}); restore or delete the file") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: damaged (not a mapping); restore or delete the file")
    return values
