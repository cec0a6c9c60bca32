"""`python -m tests.inventory --output FILE`: write the inventory of the package as JSON.

With `--artefacts FILE.zip` of `tests.inventory.artefacts` it has the formats of files too. The baseline was written by
these scripts with a checkout of commit 1820637 as `rewardlab`.
"""

import argparse
import tempfile
from pathlib import Path

from tests.inventory.artefacts import unpack
from tests.inventory.comparison import written
from tests.inventory.formats import formats
from tests.inventory.surface import surface

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--artefacts", type=Path)
    arguments = parser.parse_args()
    inventory = surface()
    if arguments.artefacts:
        with tempfile.TemporaryDirectory() as folder:
            unpack(arguments.artefacts, Path(folder))
            inventory |= formats(Path(folder))
    arguments.output.write_text(written(inventory) + "\n", encoding="utf-8")
