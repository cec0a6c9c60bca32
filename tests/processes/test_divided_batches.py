"""Loss and gradient of a step do not depend on how its batch is divided into micro-batches and processes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rewardlab
import torch
from rewardlab.rm.errors import UsageError
from rewardlab.rm.losses._pair_batch import PairBatch
from rewardlab.rm.training.distributed import refuse_divided_batches

from tests.conftest import PATIENCE
from tests.processes.divided_batches import CASES, LOSSES, PADDING_FREE, ROWS, Step, scalar, step

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
_STEPS: dict[str, Step] = {}
SCALARS = [f"ScalarTask, {name}" for name in ("bradley_terry", "length_controlled", f"bradley_terry{PADDING_FREE}")]
"""One loss that learns nothing, one that does, and a batch without padding."""


def undivided(name: str, folder: Path) -> Step:
    """Return the step of a batch that is neither divided nor computed without its padding."""
    name = name.removesuffix(PADDING_FREE)
    if name not in _STEPS:
        _STEPS[name] = step(name, ROWS, 1, folder)
    return _STEPS[name]


def check_same(divided: Step, expected: Step) -> None:
    assert divided.loss == pytest.approx(expected.loss, rel=2e-6)
    largest = max(np.abs(values).max() for values in expected.gradients.values())
    assert largest > 1e-3
    for name, values in expected.gradients.items():
        np.testing.assert_allclose(divided.gradients[name], values, rtol=0, atol=5e-6 * largest, err_msg=name)


def test_every_task_and_trainer_has_a_case():
    source = Path(rewardlab.__file__).parent
    text = "\n".join(path.read_text() for path in sorted((source / "rm/kinds").rglob("*.py")))
    tasks = set(re.findall(r"^class (\w+Task)\b", text, re.MULTILINE))
    assert {name.partition(",")[0] for name in CASES} == {*tasks, "SFTTrainer", "WeakDrivenTrainer"}


UNEVEN = [(name, 3, 3) for name in CASES if not name.startswith("ScalarTask") or name in SCALARS]


@pytest.mark.parametrize(("name", "rows", "micro_batches"), [*UNEVEN, ("ObjectivesTask", 1, 8), ("LatentTask", 4, 2)])
def test_micro_batches_have_the_loss_and_gradient_of_the_batch(name, rows, micro_batches, tmp_path):
    """Three rows in three micro-batches: the last has two. A loss that weighs pairs alone is tested below."""
    check_same(step(name, rows, micro_batches, tmp_path), undivided(name, tmp_path))


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> dict[str, Step]:
    """Steps of every case by two processes with two micro-batches of two rows each."""
    file = tmp_path_factory.mktemp("divided") / "steps.json"
    command = [*LAUNCH, str(HERE / "divided_batches.py"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: Step(*values) for name, values in json.loads(file.read_text()).items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_loss_and_gradient_of_the_batch(name, two_processes, tmp_path):
    check_same(two_processes[name], undivided(name, tmp_path))


def test_a_loss_declares_whether_it_compares_the_pairs_of_a_batch():
    for name in LOSSES:
        chosen, rejected, wins, margin, other = torch.rand(5, ROWS, generator=torch.Generator().manual_seed(0))
        pairs = PairBatch(chosen, rejected, wins, margin, 10 * (chosen - margin), other)
        alone = [
            LOSSES[name](PairBatch(*(column[row : row + 1] for column in vars(pairs).values()))) for row in range(ROWS)
        ]
        assert torch.allclose(torch.cat(alone), LOSSES[name](pairs)) != LOSSES[name].depends_on_batch


def test_a_loss_that_compares_pairs_is_refused_where_a_batch_is_divided(tmp_path):
    for name in [name for name, loss in LOSSES.items() if loss.depends_on_batch]:
        arguments = {"output_dir": str(tmp_path), "use_cpu": True, "gradient_accumulation_steps": 2}
        with pytest.raises(
            UsageError, match=f"^{name} compares the pairs of a batch .* --gradient_accumulation_steps 1"
        ):
            scalar(name, arguments)
        with pytest.raises(UsageError, match=r"--processes 1 \(now 2\)"):
            refuse_divided_batches(name, SimpleNamespace(gradient_accumulation_steps=1, world_size=2))
