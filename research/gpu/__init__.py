"""Two short runs at a GPU: what they measure, in which order, and for how long: `rewardlab bench gpu`.

    python3 -m rewardlab.research.gpu.prepare --output runs/wheels          before, with a network
    python3 -m rewardlab.research.gpu.run1 --wheels runs/wheels --output $OUT
    python3 -m rewardlab.research.gpu.run2 --wheels runs/wheels --output $OUT --first run1.json

Nothing is installed: a link named `rewardlab` to the checkout, in a folder on PYTHONPATH, is the package. A run is a
list of steps, each a process of its own that is stopped when its time is over; every row is written at once, so that a
step that is stopped loses one row. This command prints the plan of both runs and needs no GPU; `--rehearsal` adds what
both runs wrote on a CPU (`run1 --device cpu`, with tiny sizes) to it.
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan."""
    from .plan import main as print_plan  # it needs Triton, the runs do not

    return print_plan(arguments)
