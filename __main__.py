"""`python -m rewardlab VERB`: the command line."""

import sys

from .apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
