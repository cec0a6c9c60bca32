"""Results of evaluation runs in the formats of other tools: the Hub's `.eval_results` and Every Eval Ever."""

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from ...benchmarks.evaluate import OVERALL
from ...benchmarks.types import part_of
from ...rm.io.checked_files import from_json
from ...rm.io.hub_names import is_local
from ...rm.types import content_hash
from ..runs.finished import Finished
from ..runs.run_folder import MANIFEST

SCHEMA = "0.2.1"
"""Version of Every Eval Ever's `eval.schema.json`."""


class DataSource(NamedTuple):
    """The data set of a run on the Hub, and the commit that was read."""

    name: str
    commit: str | None


def manifest_of(run: Finished) -> dict[str, Any]:
    """Return the manifest of a run; empty if there is none."""
    path = run.folder / MANIFEST
    return from_json(path.read_text(encoding="utf-8")) if path.exists() else {}


def data_source(manifest: Mapping[str, Any]) -> DataSource | None:
    """Return the only data set of a run if it is on the Hub; None for files.

    >>> data_source({"data": {"allenai/reward-bench@v1:filtered": None}, "hub": {}})
    DataSource(name='allenai/reward-bench', commit=None)
    """
    names = [name for name in manifest.get("data") or {} if not is_local(name)]
    if len(names) != 1 or len(manifest["data"]) != 1:
        return None
    return DataSource(names[0].partition(":")[0].partition("@")[0], (manifest.get("hub") or {}).get(names[0]))


def hub_results(run: Finished, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a model's `.eval_results/NAME.yaml`. Empty for a part of a benchmark or local data.

    The format is https://huggingface.co/docs/hub/eval-results. The value is the overall accuracy, in [0, 1].
    """
    manifest = manifest_of(run)
    source, (value, low, high) = data_source(manifest), row[OVERALL]
    if source is None or None in (value, low, high) or part_of(run.summary["notes"]):
        return []
    library = (manifest.get("versions") or {}).get("rewardlab", "unknown")
    interval = f"accuracy, 95 % interval [{low:.4f}, {high:.4f}]"
    entry = EvalResultEntry(
        dataset_id=source.name,
        task_id="default",
        value=value,
        dataset_revision=source.commit,
        date=manifest.get("started"),
        notes=f"{interval}; scoring contract {row['contract']}; rewardlab {library}",
    )
    return eval_result_entries_to_yaml([entry])


def every_eval_ever(run: Finished, row: Mapping[str, Any], organization: str, relationship: str) -> dict[str, Any]:
    """Return a scorer's results as a record of Every Eval Ever (https://github.com/evaleval/every_eval_ever).

    It has the accuracy with its 95 % interval, overall and of every section; sections without a value are left out.
    `organization` evaluated the model; `relationship` states how it is related to the model's developer.
    """
    manifest, created, scorer = manifest_of(run), f"{time.time():.3f}", str(row["scorer"])
    developer, _, name = scorer.rpartition("/")
    areas = {OVERALL: row[OVERALL]} | row["sections"]
    source = data_source(manifest)
    data = {"dataset_name": run.suite.name, "source_type": "hf_dataset" if source else "other"}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{run.suite.name}/{scorer}/{created}",
        "retrieved_timestamp": created,
        **({"evaluation_timestamp": manifest["started"]} if "started" in manifest else {}),
        "source_metadata": {
            "source_name": "rewardlab",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": relationship,
        },
        "eval_library": {"name": "rewardlab", "version": (manifest.get("versions") or {}).get("rewardlab", "unknown")},
        "model_info": {
            "name": name,
            "id": scorer,
            **({"developer": developer} if developer else {}),
            "additional_details": {"scoring_contract": str(row["contract"])},
        },
        "evaluation_results": [
            _result(run, area, interval, data | ({"hf_repo": source.name} if source else {}))
            for area, interval in areas.items()
            if None not in interval
        ],
    }


def _result(run: Finished, area: str, interval: list[float], data: Mapping[str, str]) -> dict[str, Any]:
    value, low, high = interval
    part, method = part_of(run.summary["notes"]), run.summary["interval"]
    warning = f" {part}" if part else ""
    return {
        "evaluation_name": run.suite.name if area == OVERALL else f"{run.suite.name} {area}",
        "source_data": dict(data),
        "metric_config": {
            "evaluation_description": f"Accuracy on {area} of {run.suite.name}, version {run.suite.version}.{warning}",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": value,
            "uncertainty": {
                "confidence_interval": {"lower": low, "upper": high, "confidence_level": 0.95, "method": method},
                **({"num_samples": run.summary["cases"]} if area == OVERALL else {}),
            },
        },
    }


def record_path(record: Mapping[str, Any], run: Finished) -> str:
    """Return the path of a record: `data/BENCHMARK/DEVELOPER/MODEL/UUID.json`, the same for every export of a run."""
    model = record["model_info"]
    folders = map(file_name, (run.suite.name, model.get("developer", "unknown"), model["name"]))
    return f"data/{'/'.join(folders)}/{uuid5(NAMESPACE_OID, content_hash(record['evaluation_results']))}.json"


def file_name(text: str) -> str:
    """Convert a text to a valid name of a file or folder.

    >>> file_name("../rm bench(n=2)")
    'rm_bench_n_2_'
    """
    return re.sub(r"[^\w.@+-]+", "_", text).lstrip("._") or "unnamed"
