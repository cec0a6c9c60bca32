"""What the tests share: the package under its name, and what a machine may lack."""

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

ROOT = Path(__file__).resolve().parent.parent
SMALL_RUN = {
    "use_cpu": True,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_completion_length": 16,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "seed": 5,
}
"""Settings of a policy's training on a CPU, which learns from 4 answers to each of 4 prompts a step."""
PATIENCE = 600
"""Seconds that a test waits for what takes a moment: a bound for a machine that does other work, not a measure."""

if importlib.util.find_spec("rewardlab") is None:  # a plain checkout: the folder is the package
    spec = importlib.util.spec_from_file_location("rewardlab", ROOT / "__init__.py")
    assert spec and spec.loader
    sys.modules["rewardlab"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["rewardlab"])

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before the Hub's library, which would try a name five times and wait
if not torch.cuda.is_available():  # before anything imports Triton, which looks once
    os.environ.setdefault("TRITON_INTERPRET", "1")

if importlib.util.find_spec("hypothesis"):  # an environment for the kernels alone has none
    from hypothesis import settings

    settings.register_profile("no deadline", deadline=None)  # a machine may do other work
    settings.load_profile("no deadline")

BEARTYPE = importlib.util.find_spec("beartype") is not None  # an image with a GPU may lack it

# Not `rm.backbones.tokenization`: a function within `encode_completion` would be compiled anew for every completion,
# six times the work of encoding it; the functions that give `right_padded` its tensors are checked.
install_import_hook(
    [
        "rewardlab.kernels.dispatch",
        "rewardlab.kernels.philox",
        "rewardlab.kernels.discounted_scan",
        "rewardlab.kernels.guided_sampler",
        "rewardlab.kernels.linear_logprob",
        "rewardlab.kernels.lora_film",
        "rewardlab.kernels.policy_loss",
        "rewardlab.kernels.r2m_attention",
        "rewardlab.judges.retrieval.encoder",
        "rewardlab.judges.retrieval.pooling",
        "rewardlab.policy.advantages",
        "rewardlab.policy.aggregations",
        "rewardlab.policy.step.algorithm",
        "rewardlab.policy.schedulers._bandit",
        "rewardlab.policy.training.critic",
        "rewardlab.policy.curricula",
        "rewardlab.policy.training.prompts",
        "rewardlab.policy.step.forward",
        "rewardlab.policy.rewards.reference_probability",
        "rewardlab.policy.replays",
        "rewardlab.policy.schedulers",
        "rewardlab.policy.step.metrics",
        "rewardlab.policy.transforms",
        "rewardlab.rm.losses",
        "rewardlab.rm.backbones.loading",
        "rewardlab.rm.backbones.logprobs",
        "rewardlab.rm.backbones.packing",
        "rewardlab.rm.backbones.sequence_scores",
    ],
    "beartype.beartype" if BEARTYPE else None,
)


def pytest_report_header() -> str | None:
    """Say where annotated shapes are not checked."""
    return None if BEARTYPE else "beartype is not installed: shapes and dtypes of arguments are not checked"


class TritonSources(MetaPathFinder):
    """Import modules of Triton kernels as they are: Triton reads their source and knows no type checker."""

    def find_spec(self, fullname, path=None, target=None):
        kernels = fullname.startswith("rewardlab.kernels.") and fullname.rpartition(".")[2].startswith("triton")
        return PathFinder.find_spec(fullname, path) if kernels else None


sys.meta_path.insert(0, TritonSources())


LONG_FILES = ("test_docs.py", "test_processes.py", "test_offline.py")
"""Files with tests of a minute and more."""


def pytest_collection_modifyitems(items):
    """Long files go first, so that no process is left alone with one; a file stays in one process with its fixtures.

    Tests of the inspector go last: their browser's event loop runs until the session ends, and no other can run then.
    """
    items.sort(key=lambda item: (item.path.name not in LONG_FILES) + ("inspector" in item.path.parts))


def pytest_collection_finish():
    """Leave what was imported out of garbage collections: a Trainer collects each time it starts, in half a second."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """Let the interpreter end as usual: bindings that find their objects alive report a leak."""
    gc.unfreeze()


def pytest_runtest_setup(item):
    """Tests marked `gpu` need one; those marked `long` need to be asked for. (`make test` deselects `slow` by -m.)"""
    if item.get_closest_marker("long") and os.environ.get("REWARDLAB_LONG") != "1":
        pytest.skip("takes minutes; runs where REWARDLAB_LONG=1")
    if item.get_closest_marker("gpu"):
        need("gpu", torch.cuda.is_available(), "there is no CUDA device")


AS_PACKAGE = f"""
import importlib.util, sys
if "rewardlab" not in sys.modules:
    spec = importlib.util.spec_from_file_location("rewardlab", {str(ROOT / "__init__.py")!r})
    sys.modules["rewardlab"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["rewardlab"])
"""


def needs_bfloat16_attention() -> None:
    """Skip where PyTorch's bfloat16 attention fails by itself.

    With `ATEN_CPU_CAPABILITY` below what the processor has, PyTorch 2.13 chooses an attention by the processor and a
    packing by the variable, which do not fit; on a processor without AVX-512 neither is chosen.
    """
    query = torch.zeros(1, 1, 64, 8, dtype=torch.bfloat16)
    try:
        torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    except RuntimeError as error:
        pytest.skip(f"PyTorch's bfloat16 attention fails under ATEN_CPU_CAPABILITY: {error}")


@pytest.fixture(scope="session")
def script():
    """The command that runs Python text in a new process, with this checkout as `rewardlab`."""
    return lambda text, *arguments: [sys.executable, "-c", AS_PACKAGE + text, *map(str, arguments)]


def wait_until(holds: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """Wait until a condition holds; a process that has to bring it about must not have ended."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert process is None or process.poll() is None, "the process ended before the condition held"
        assert time.monotonic() < end, "the condition does not hold"
        time.sleep(0.002)


def need(name: str, found: bool, reason: str) -> None:
    """Skip with a reason where a machine lacks something, or fail where REWARDLAB_REQUIRE names it."""
    if found:
        return
    if name in os.environ.get("REWARDLAB_REQUIRE", "").split(","):
        pytest.fail(f"REWARDLAB_REQUIRE names '{name}', but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public preference data and benchmarks, which are not part of the project."""
    folder = Path(os.environ.get("REWARDLAB_DATA", ROOT.parent / "shared" / "data"))
    need("data", folder.is_dir(), f"there is no data folder {folder}; name one with REWARDLAB_DATA")
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium for tests of pages."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    need("browser", path is not None, "there is no chromium on the path")
    need("browser", importlib.util.find_spec("playwright") is not None, "playwright is not installed")
    return str(path)


@pytest.fixture(scope="session")
def triton():
    """Triton, for kernels in its interpreter."""
    need("triton", importlib.util.find_spec("triton") is not None, "triton is not installed")
    return importlib.import_module("triton")
