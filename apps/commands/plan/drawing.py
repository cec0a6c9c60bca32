"""The figure of a plan: memory by phase."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

COLOURS = {
    "weights": "#1f5fa8",
    "optimizer": "#4aa3a8",
    "gradients": "#3a8f5c",
    "activations": "#c8553d",
    "head and logits": "#c79a2b",
    "KV cache": "#8a5fb0",
    "reward models": "#7a4b2a",
    "reference": "#6d8fc4",
    "buckets": "#9fc7ab",
    "sharding": "#d9a5c0",
    "critic": "#2b2b6b",
    "R2M head": "#b5483f",
    "states": "#d8cfa8",
    "workspace": "#9a9a9a",
}
OTHER = "#5b5b5b"


def figure(facts: Mapping[str, Any]) -> Figure:
    """Draw a stacked bar of memory for each phase, and the memory of the GPU."""
    drawing = Figure(figsize=(2.5 + 1.6 * len(facts["phases"]), 4.5), layout="constrained")
    axes = drawing.subplots()
    named: set[str] = set()
    for index, phase in enumerate(facts["phases"]):
        below = 0.0
        for part, size in phase["gigabytes"].items():
            label = None if part in named else part
            axes.bar(index, size, bottom=below, width=0.6, color=COLOURS.get(part, OTHER), label=label)
            named.add(part)
            below += size
        axes.text(index, below, f"{below:.1f}", ha="center", va="bottom", fontsize=9)
    axes.axhline(facts["room_gigabytes"], color="#222222", linestyle="--", linewidth=1, label="room on a GPU")
    axes.set_xticks(range(len(facts["phases"])), [phase["name"].replace(" of ", "\nof ") for phase in facts["phases"]])
    axes.set_ylabel("GB on each GPU")
    axes.set_title(f"{facts['model']}, {facts['job']}, batch {facts['batch']}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing
