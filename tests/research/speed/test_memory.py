import subprocess

import pytest
import torch
from rewardlab.research.speed._memory import Traffic

HOLD = """
import torch
from rewardlab.research.speed._memory import peak_of

def hold():
    held = [torch.ones(2**22) for _ in range(4)]  # 16 MiB each
    held.clear()
    torch.ones(2**22)

print(peak_of(hold, "cpu"))
"""


def test_an_operation_reads_its_inputs_and_writes_its_output_once():
    x, y = torch.ones(10), torch.ones(10)
    with Traffic() as traffic:
        (x + y)[:5].mul_(2)  # 40 + 40 read, 40 written; a view; 20 read, 20 written
    assert traffic.bytes == 160
    with Traffic() as traffic:
        torch.zeros(10) * 1  # 40 written; 40 read, 40 written
        torch.empty(10)
    assert traffic.bytes == 120


@pytest.mark.slow
def test_the_peak_is_what_was_resident_at_once(script):
    """In a process of its own: what another test freed may still be resident, and would be taken again."""
    done = subprocess.run(script(HOLD), capture_output=True, text=True, check=True)
    assert 60e6 < int(done.stdout) < 90e6
