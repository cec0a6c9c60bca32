import os
import subprocess
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[4] / "research/results"


@pytest.fixture
def compiler(triton):
    """Runs a command where kernels are compiled."""

    def run(command):
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "0"})

    return run


@pytest.mark.slow
def test_no_kernel_spills_more_or_reads_narrower_than_in_the_table(compiler, script, triton):
    table = RESULTS / f"kernels-triton-{triton.__version__.rpartition('.')[0]}.json"
    code = "import sys; from rewardlab.research.speed.kernels import main; sys.exit(main(sys.argv[1:]))"
    done = compiler(script(code, "--compile", "--check", table))
    assert done.returncode == 0, done.stderr
