"""Every kernel that a GPU would start, compiled without one, in a process that does not interpret."""

import json
import os
import subprocess
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[4] / "research/results"
SIZES = """
import json
import torch
from rewardlab.research.speed.kernels.aot import signature
from rewardlab.kernels.guided_sampler.triton import fused
from rewardlab.kernels.triton_common.launch import recorded
from rewardlab.kernels.guided_sampler import example

found = {}
for vocabulary in (128256, 151936):
    for rows in (1, 2, 16, 17):
        for truncated in ({}, {"truncated": True}):
            with recorded(90) as launches:
                fused(**example({"N": rows, "G": 1, "V": vocabulary} | truncated, torch.bfloat16, "meta"))
            for one in launches:
                cut = one.arguments.get("CUT", False)
                found.setdefault(f"{one.kernel.__name__} {cut}", set()).add(repr(signature(one)))
print(json.dumps({name: len(kinds) for name, kinds in found.items()}))
"""


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


@pytest.mark.slow
def test_no_number_of_rows_and_no_vocabulary_of_a_class_is_compiled_anew(compiler, script):
    done = compiler(script(SIZES))
    assert done.returncode == 0, done.stderr
    assert {*json.loads(done.stdout).values()} == {1}
