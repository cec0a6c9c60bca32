"""Run a speed script by its name, without an installation: `python -m rewardlab.research.speed NAME ARGUMENTS`."""

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module(f".{sys.argv[1]}", __package__).main(sys.argv[2:]))
