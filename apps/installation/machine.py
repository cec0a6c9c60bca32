"""Hardware, packages and checks of this machine, with remedies."""

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from packaging.requirements import InvalidRequirement, Requirement

from ...kernels.dispatch import backend
from ...rm.backbones.chat_templates import fault_of
from ...rm.io.cache_folder import cache_folder
from ...rm.io.escaping import redact
from ..runs.run_folder import installed_version, versions

PROJECT = "rewardlab"
GIGABYTE = 1e9
LITTLE, NONE = 10.0, 0.5
"""Thresholds of free disk space in gigabytes: below the first a warning, below the second a failure."""
OLDEST_PYTHON = (3, 11)
VARIABLES = (
    *("REWARDLAB_CACHE", "REWARDLAB_KERNELS", "REWARDLAB_TOKEN", "REWARDLAB_VLLM_PYTHON", "OPENAI_API_KEY"),
    *("VLLM_API_KEY", "HF_TOKEN"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET"),
    *("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PYTORCH_CUDA_ALLOC_CONF", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "GRADIO_ANALYTICS_ENABLED"),
)
SECRETS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")
ESCAPE = "{{ ''.__class__.__mro__ }}"


class Check(NamedTuple):
    """Result of one check."""

    name: str
    status: str
    """`ok`, `warn` or `fail`."""
    found: str
    way_out: str = ""


def machine_facts() -> dict[str, Any]:
    """Return versions, hardware, packages and folders of this machine, for checks and bug reports."""
    return {
        "versions": versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": devices() or ["cpu"],
        "threads": torch.get_num_threads(),
        "kernels": backend(),
        "extras": extras(),
        "environment": environment(os.environ),
        "cache": str(hub_cache_folder()),
        "disk": {name: round(free_gigabytes(path), 1) for name, path in folders().items()},
    }


def devices() -> list[str]:
    """Return all GPUs with memory in gigabytes and compute capability."""
    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [f"{gpu.name}, {gpu.total_memory / GIGABYTE:.0f} GB, capability {gpu.major}.{gpu.minor}" for gpu in gpus]


def extras() -> dict[str, dict[str, Any]]:
    """Return for every extra whether it is complete, the missing packages, and the command that installs it."""
    required: dict[str, list[str]] = defaultdict(list)
    for requirement in _requirements():
        for name in _extras_of(requirement):
            required[name].append(requirement.name)
    return {
        name: {
            "present": not (absent := sorted(package for package in packages if installed_version(package) is None)),
            "absent": absent,
            "install": f"pip install '{PROJECT}[{name}]'",
        }
        for name, packages in sorted(required.items())
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the relevant environment variables. The value of a secret is hidden."""
    return {
        name: "(set, not shown)" if name.endswith(SECRETS) else redact([variables[name]])[0]
        for name in VARIABLES
        if name in variables
    }


def hub_cache_folder() -> Path:
    """Return the cache folder of the Hugging Face Hub."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def folders() -> dict[str, Path]:
    """Return the folders to which rewardlab writes."""
    written = {"here": Path.cwd(), "temporary": Path(tempfile.gettempdir())}
    return written | {"cache": hub_cache_folder(), "rewardlab cache": cache_folder()}


def free_gigabytes(path: Path) -> float:
    """Return the free disk space in gigabytes for a folder, which need not exist yet."""
    return shutil.disk_usage(_existing_folder(path)).free / GIGABYTE


def _existing_folder(path: Path) -> Path:
    return next(ancestor for ancestor in (path, *path.absolute().parents) if ancestor.exists())


def _requirements() -> Iterator[Requirement]:
    try:
        lines = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or _extras_of(requirement) or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _extras_of(requirement: Requirement) -> list[str]:
    """Return the extras that a requirement belongs to on this platform."""
    marker = requirement.marker
    names = importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    if marker is None or marker.evaluate({"extra": ""}):
        return []
    return [name for name in names if marker.evaluate({"extra": name})]


# ---- checks ----


def checks(facts: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the results of all checks. A failure prevents all commands from running, a warning only some."""
    version = ".".join(map(str, sys.version_info[:2]))
    supported = sys.version_info[:2] >= OLDEST_PYTHON
    yield _check("python", supported, version, "install Python 3.11 or newer")
    yield from _check_packages()
    remedy = "unset REWARDLAB_KERNELS, or pip install triton"
    yield _check("kernels", not facts["kernels"].startswith("none"), facts["kernels"], remedy)
    yield _device(facts["devices"], facts["environment"])
    for name, extra in facts["extras"].items():
        absent = ", ".join(extra["absent"])
        result = absent and f"without {absent}"
        yield _check(f"extra {name}", extra["present"], result, extra["install"], bad="warn")
    for name, path in folders().items():
        yield disk(name, free_gigabytes(path))
    for name, variable in (("cache", "HF_HOME"), ("rewardlab cache", "REWARDLAB_CACHE")):
        path = folders()[name]
        writable = os.access(_existing_folder(path), os.W_OK)
        yield _check(name, writable, str(path), f"set {variable} to a writable folder")
    yield _check_safetensors()
    yield templates()


def _check(name: str, passed: bool, result: str, way_out: str, bad: str = "fail") -> Check:
    return Check(name, "ok" if passed else bad, result, way_out)


def _check_packages() -> Iterator[Check]:
    """Check that every required package is installed in a supported version."""
    needed = [requirement for requirement in _requirements() if not _extras_of(requirement)]
    if not needed:
        yield Check(PROJECT, "warn", "run from a checkout that is not installed", "pip install --editable .")
    for package in needed:
        version = installed_version(package.name)
        fits = version is not None and package.specifier.contains(version, prereleases=True)
        remedy = f"pip install '{package.name}{package.specifier}'"
        yield _check(package.name, fits, version or "not installed", remedy)


def _device(names: list[str], variables: Mapping[str, str]) -> Check:
    if names == ["cpu"]:
        return Check("device", "warn", "no GPU: large models are slow here", "see rewardlab plan for what they need")
    if variables.get("TRITON_INTERPRET") == "1":
        return Check("device", "warn", "TRITON_INTERPRET=1 slows the kernels of this GPU", "unset TRITON_INTERPRET")
    return Check("device", "ok", "; ".join(names))


def disk(name: str, free: float) -> Check:
    """Check the free disk space, in gigabytes, for checkpoints and models."""
    status = "fail" if free < NONE else "warn" if free < LITTLE else "ok"
    return Check(
        f"disk {name}",
        status,
        f"{free:.1f} GB free",
        "free disk space, or set another folder with --output, HF_HOME or REWARDLAB_CACHE",
    )


def _check_safetensors() -> Check:
    """Check that safetensors, the only format for weights, saves and loads a tensor."""
    from safetensors.torch import load, save

    values = torch.arange(3.0)
    same = torch.equal(load(save({"a": values}))["a"], values)
    return _check("safetensors", same, "the only format of weights", "pip install --force-reinstall safetensors")


def templates() -> Check:
    """Check that the sandbox of chat templates refuses access to Python objects."""
    refused = "__class__" in fault_of(ESCAPE)
    version = installed_version("jinja2") or "none"
    return _check("chat templates", refused, f"sandboxed, Jinja {version}", "pip install 'jinja2>=3.1.6'")


# ---- text ----


def table(facts: Mapping[str, Any], results: list[Check]) -> str:
    """Render facts and checks as text, with the remedy of each check that is not ok."""
    lines = [f"{name:>16}  {_flat(value)}" for name, value in facts.items() if name != "extras"]
    lines += ["", *(_line(check) for check in results)]
    count = sum(check.status == "fail" for check in results)
    return "\n".join(
        [*lines, "", f"{count} of {len(results)} checks failed" if count else "Everything that is needed works."]
    )


def _line(check: Check) -> str:
    way_out = f"; {check.way_out}" if check.status != "ok" and check.way_out else ""
    return f"{check.status:>16}  {check.name}: {check.found or 'complete'}{way_out}"


def _flat(value: Any) -> str:
    """Return a value as text on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
