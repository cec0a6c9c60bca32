"""Figures of evaluations."""

import pytest
from matplotlib.figure import Figure

SAVE = Figure.savefig
"""Draws and saves a figure, as outside these tests."""


@pytest.fixture(autouse=True, scope="module")
def figures_without_drawing():
    """Save empty figures, as drawing them takes more than half of an evaluation; `test_cli.py` looks at drawn ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, path, **settings: path.write_bytes(b""))
        yield
