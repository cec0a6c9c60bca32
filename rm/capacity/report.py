"""A plan as a Markdown page, and a figure of the memory by phase."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..io.markdown import table

if TYPE_CHECKING:
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


def markdown(facts: Mapping[str, Any], config: Mapping[str, Any], unit: str) -> str:
    """Render the verdict, memory by phase, time and assumptions."""
    parts = list(dict.fromkeys(name for phase in facts["phases"] for name in phase["gigabytes"]))
    memory = table(
        ["GB on each GPU", *(phase["name"] for phase in facts["phases"])],
        [[part, *(_cell(phase["gigabytes"].get(part)) for phase in facts["phases"])] for part in parts]
        + [["**total**", *(f"**{sum(phase['gigabytes'].values()):.1f}**" for phase in facts["phases"])]],
    )
    times = table(
        ["on each GPU", "TFLOP", "seconds", "bound by"],
        [[p["name"], f"{p['teraflops']:,.1f}", f"{p['seconds']:.2f}", p["bound"]] for p in facts["phases"]],
        right=("TFLOP", "seconds"),
    )
    batch = {"train": "pairs", "rl": "completions", "decode": "completions", "score": "conversations"}[facts["job"]]
    epochs = "" if config["epochs"] == 1 else f", {config['epochs']:g} times"
    return "\n\n".join(
        [
            f"# {facts['model']}: {facts['job']} on {facts['gpus']} × {facts['gpu']}",
            verdict(facts, batch),
            f"{facts['parameters']:,} parameters"
            + (f", {facts['adapter_parameters']:,} of them in an adapter." if facts["adapter_parameters"] else "."),
            memory,
            times,
            f"**Time**: {facts['seconds_per_round']:.2f} s a round, {facts['rounds']:,} rounds for "
            f"{config['examples']:,} {unit}{epochs}: {facts['hours']:.1f} hours, "
            f"{facts['gpu_hours']:.1f} GPU-hours.",
            _assumptions_text(facts, config),
        ]
    )


def verdict(facts: Mapping[str, Any], batch: str) -> str:
    """Return the sentences on whether the job fits, and on the largest batch that fits."""
    needs = f"{facts['gigabytes']:.1f} GB of {facts['room_gigabytes']:.1f} GB on each GPU ({facts['widest']})"
    most = facts["largest_batch"]
    largest = f"The largest batch that fits is {most} {batch} on each GPU." if most else "No batch fits."
    host = f" It also needs {facts['host_gigabytes']:.1f} GB of host memory." if facts["host_gigabytes"] else ""
    return f"**{'Fits' if facts['fits'] else 'Does not fit'}**: {needs}, for {facts['batch']} {batch}. {largest}{host}"


def _assumptions_text(facts: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    assumed = facts["assumed"]
    lines = [
        f"{assumed['mfu']:.0%} of the GPU's published peak operations are reached (--mfu) and, in decoding, "
        f"{assumed['mbu']:.0%} of its published bandwidth (--mbu).",
        f"{assumed['reserve']:.0%} of the memory is reserved for CUDA, communication and fragmentation (--reserve).",
        "Rows have equal length, and attention is computed for every pair of positions.",
        "Communication between GPUs, reading data and writing checkpoints take no time.",
    ]
    if facts["job"] in ("rl", "decode"):
        lines.append("Operations or bandwidth limit decoding; small models are slower, limited by Python's overhead.")
    if facts["job"] == "rl":
        lines.append(
            f"Every GPU has full reward models in {config['reward_dtype']} and generates the policy's completions."
        )
    return "\n".join(["**Assumed**", "", *(f"- {line}" for line in lines)])


def _cell(size: float | None) -> str:
    """Return a number of gigabytes as the text of a table cell; empty for None."""
    return "" if size is None else f"{size:.1f}" if size >= 0.05 else "< 0.1"


def figure(facts: Mapping[str, Any]) -> "Figure":
    """Draw a stacked bar of memory for each phase, and the memory of the GPU."""
    from matplotlib.figure import Figure  # which a page without a figure does not need

    drawing = Figure(figsize=(2.5 + 1.6 * len(facts["phases"]), 4.5), layout="constrained")
    axes = drawing.subplots()
    labels: set[str] = set()
    for index, phase in enumerate(facts["phases"]):
        below = 0.0
        for part, size in phase["gigabytes"].items():
            label = None if part in labels else part
            axes.bar(index, size, bottom=below, width=0.6, color=COLOURS.get(part, OTHER), label=label)
            labels.add(part)
            below += size
        axes.text(index, below, f"{below:.1f}", ha="center", va="bottom", fontsize=9)
    axes.axhline(facts["room_gigabytes"], color="#222222", linestyle="--", linewidth=1, label="room on a GPU")
    axes.set_xticks(range(len(facts["phases"])), [phase["name"].replace(" of ", "\nof ") for phase in facts["phases"]])
    axes.set_ylabel("GB on each GPU")
    axes.set_title(f"{facts['model']}, {facts['job']}, batch {facts['batch']}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing
