"""Figures of run folders."""

from pathlib import Path

from matplotlib.figure import Figure


def save_figure(drawing: Figure, path: Path) -> None:
    """Save a figure without software metadata, so that equal figures give equal bytes."""
    drawing.savefig(path, dpi=150, metadata={"Software": None})
