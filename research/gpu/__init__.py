"""Two short runs at a GPU: what they measure, in which order, how long: `python -m rewardlab.research.gpu.plan`.

    python3 -m rewardlab.research.gpu.prepare --output runs/wheels          before, with a network
    python3 -m rewardlab.research.gpu.run1 --wheels runs/wheels --output $OUT
    python3 -m rewardlab.research.gpu.run2 --wheels runs/wheels --output $OUT --first run1.json

Nothing is installed: a link named `rewardlab` to the checkout, in a folder on PYTHONPATH, is the package. A run is a
list of steps, each a process of its own that is stopped when its time is over; every row is written at once, so that a
step that is stopped loses one row. The plan is printed without a GPU; `--rehearsal` adds what
both runs wrote on a CPU (`run1 --device cpu`, with tiny sizes) to it.
"""
