"""Over-optimisation: the true reward of a policy as a function of the proxy reward that it is trained on.

Runs are given as records, one for every measured step: `arm`, `seed`, `step`, `kl` from the start policy (nats per
completion), and the mean `gold` and `proxy` reward. The record of step 0, the start policy itself, also has `gold_std`
and `proxy_std` over its completions. All gains are relative to step 0 in units of these standard deviations, so that
proxies of any scale can be compared with gold and with each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from ...benchmarks.report import table
from ...benchmarks.statistics.cluster_bootstrap import Estimate, t_interval
from ...rm.errors import DataError
from .best_of_n import best_of_n, best_of_n_kl
from .fronts import COLOURS, CONTROL
from .gold_peaks import peak_columns

Record = Mapping[str, Any]
BEST_OF_N = "best of n"
REWARDS = ("gold", "proxy")
NAMED, MEASURED, SPREADS = ("arm", "seed", "step"), ("kl", *REWARDS), ("gold_std", "proxy_std")
UNITS = "standard deviations of the start policy's answers"


# ---- runs ----


class Curve(NamedTuple):
    """One run: KL and gains at every step [T], in order."""

    step: np.ndarray
    kl: np.ndarray
    gold: np.ndarray
    proxy: np.ndarray


def curves(records: Iterable[Record]) -> dict[str, dict[int, Curve]]:
    """Return every arm's runs by seed."""
    runs: dict[str, dict[int, dict[int, Record]]] = {}
    for record in records:
        _check_has(record, NAMED + MEASURED)
        runs.setdefault(record["arm"], {}).setdefault(record["seed"], {})[record["step"]] = record
    return {arm: {seed: _curve(arm, seed, steps) for seed, steps in by_seed.items()} for arm, by_seed in runs.items()}


def _curve(arm: str, seed: int, steps: Mapping[int, Record]) -> Curve:
    if 0 not in steps:
        raise DataError(f"arm '{arm}', seed {seed} has no record of step 0; measure the start policy before training")
    start, ordered = steps[0], sorted(steps)
    _check_has(start, SPREADS)
    kl, gold, proxy = (np.array([steps[step][name] for step in ordered], float) for name in MEASURED)
    return Curve(
        np.array(ordered),
        kl,
        (gold - start["gold"]) / start["gold_std"],
        (proxy - start["proxy"]) / start["proxy_std"],
    )


def _check_has(record: Record, names: Sequence[str]) -> None:
    absent = [name for name in names if name not in record]
    if absent:
        named_fields = ", ".join(f"{name} {record[name]}" for name in NAMED if name in record)
        raise DataError(f"the record of {named_fields or dict(record)} lacks {', '.join(absent)}; measure it there too")


def best_of_n_records(seed: int, proxy: np.ndarray, gold: np.ndarray) -> list[dict[str, Any]]:
    """Return records of an arm without training: the best of n completions by the proxy, n = 1, 2, 4 ... as steps.

    `proxy` and `gold` [P, M] are rewards of the start policy's M completions of each of P prompts. The KL is the bound
    of `best_of_n_kl`.
    """
    ns = [2**power for power in range(proxy.shape[1].bit_length())]
    of_proxy, of_gold = torch.from_numpy(proxy), torch.from_numpy(gold)
    chosen = {name: best_of_n(of_proxy, values, ns) for name, values in (("proxy", of_proxy), ("gold", of_gold))}
    spreads = {"gold_std": float(gold.std(ddof=1)), "proxy_std": float(proxy.std(ddof=1))}
    return [
        {"arm": BEST_OF_N, "seed": seed, "step": index, "n": n, "kl": best_of_n_kl(n)}
        | {name: values[index].item() for name, values in chosen.items()}
        | (spreads if n == 1 else {})
        for index, n in enumerate(ns)
    ]


# ---- estimates ----


class Matched(NamedTuple):
    """An arm's gains at G distances from the start policy, over the seeds that reached them."""

    gold: list[Estimate]
    proxy: list[Estimate]
    seeds: np.ndarray
    """Number of seeds that reached each distance, [G]."""


def at_matched_kl(records: Iterable[Record], grid: np.ndarray) -> dict[str, Matched]:
    """Return every arm's gains where its runs first reach each KL of the grid [G], since arms differ in speed."""
    matched = {}
    for arm, (gold, proxy) in gains_at_kl(records, grid).items():
        estimates = ([t_interval(values) for values in rewards.T] for rewards in (gold, proxy))
        matched[arm] = Matched(*estimates, seeds=(~np.isnan(gold)).sum(0))
    return matched


class Gains(NamedTuple):
    """An arm's gains by seed and KL [S, G]; NaN where a seed's run ended before."""

    gold: np.ndarray
    proxy: np.ndarray


def gains_at_kl(records: Iterable[Record], grid: np.ndarray) -> dict[str, Gains]:
    """Return every arm's gains at the KLs of the grid [G], its seeds in ascending order."""
    return {
        arm: Gains(
            *(np.stack([at_kl(runs[s].kl, getattr(runs[s], name), grid) for s in sorted(runs)]) for name in REWARDS)
        )
        for arm, runs in curves(records).items()
    }


def at_kl(kl: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Interpolate values of a run [T] at the KLs of a grid [G]: linear between the steps that exceed all earlier KLs.

    NaN beyond the largest KL. Later values at a KL that was passed before are ignored.
    """
    furthest = np.concatenate([[True], kl[1:] > np.maximum.accumulate(kl)[:-1]])
    return np.interp(grid, kl[furthest], values[furthest], right=np.nan)


def gain(records: Iterable[Record]) -> dict[str, Estimate]:
    """Return every arm's gold gain at the last steps of its runs."""
    return {arm: t_interval(np.array([run.gold[-1] for run in runs.values()])) for arm, runs in curves(records).items()}


class Hump(NamedTuple):
    """Changes of an arm's rewards after the peak of gold."""

    fall: Estimate
    """Gold at the peak minus gold at the end."""
    rise: Estimate
    """Proxy at the end minus proxy at the peak."""

    @property
    def over_optimised(self) -> bool:
        """Whether gold falls significantly while the proxy rises significantly."""
        return self.fall.low > 0 and self.rise.low > 0


def hump(records: Iterable[Record]) -> dict[str, Hump]:
    """Return every arm's fall after its peak, at the steps that all of its seeds have.

    A seed's peak is where the mean of the *other* seeds is highest: the highest of many noisy values would lie above
    the last one even without over-optimisation. A single seed uses its own peak and has no interval.
    """
    humps_by_arm = {}
    for arm, runs in curves(records).items():
        steps = reduce(np.intersect1d, [run.step for run in runs.values()])
        gold, proxy = (
            np.stack([getattr(run, name)[np.isin(run.step, steps)] for run in runs.values()]) for name in REWARDS
        )
        seeds, peaks = np.arange(len(gold)), peak_columns(gold)
        fall, rise = gold[seeds, peaks] - gold[:, -1], proxy[:, -1] - proxy[seeds, peaks]
        humps_by_arm[arm] = Hump(t_interval(fall), t_interval(rise))
    return humps_by_arm


# ---- tables and figure ----


def matched_table(records: Sequence[Record], grid: np.ndarray) -> str:
    """Return a table of gold and proxy at the KLs of the grid; intervals, and seed counts where some are missing."""
    lines = []
    total = {arm: len(runs) for arm, runs in curves(records).items()}
    for arm, matched in at_matched_kl(records, grid).items():
        for name, estimates in (("gold", matched.gold), ("proxy", matched.proxy)):
            cells = [
                estimate.formatted() + (f" ({seeds} seeds)" if 0 < seeds < total[arm] else "")
                for estimate, seeds in zip(estimates, matched.seeds, strict=True)
            ]
            lines.append([arm, name, *cells])
    return table(["arm", "reward", *(f"KL {kl:g}" for kl in grid)], lines)


def hump_table(records: Sequence[Record]) -> str:
    """Return a table of every arm's final KL and gains, and of the change of gold after its peak."""
    humps, gains = hump(records), gain(records)
    lines = []
    for arm, runs in curves(records).items():
        end = t_interval(np.array([run.kl[-1] for run in runs.values()]))
        hump_ = humps[arm]
        cells = [f"{end.value:.1f}", gains[arm].formatted(), hump_.fall.formatted(), hump_.rise.formatted()]
        lines.append([arm, str(len(runs)), *cells, "yes" if hump_.over_optimised else "not shown"])
    header = ["arm", "seeds", "KL at the end", "gold at the end", "gold lost since its peak", "proxy gained meanwhile"]
    return table([*header, "over-optimised"], lines)


def percent_range(shares: Sequence[float]) -> str:
    """Return the smallest and the largest share, such as `63 to 70 %`."""
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"


def figure(records: Sequence[Record], points: int = 80) -> Figure:
    """Plot gold and proxy against √KL as far as all seeds of an arm reach; bands are intervals, best-of-n dashed.

    The distance √KL is that of Gao et al. 2023, arXiv:2210.10760; tick labels are KL.
    """
    drawing = Figure(figsize=(8.4, 3.8), layout="constrained")
    panels = dict(zip(REWARDS, drawing.subplots(1, 2), strict=True))
    longest = max(min(run.kl.max() for run in runs.values()) for runs in curves(records).values())
    grid, colours = np.linspace(0, np.sqrt(longest), points) ** 2, iter(COLOURS)
    for arm, matched in at_matched_kl(records, grid).items():
        colour, dash = (CONTROL, "--") if arm == BEST_OF_N else (next(colours), "-")
        all_seeds = matched.seeds == matched.seeds.max()
        for name, panel in panels.items():
            mean, low, high = np.array(getattr(matched, name))[all_seeds].T
            panel.plot(grid[all_seeds], mean, color=colour, linestyle=dash, linewidth=1.2, label=arm)
            panel.fill_between(grid[all_seeds], low, high, color=colour, alpha=0.15, linewidth=0)
    for name, panel in panels.items():
        panel.set_xlim(0, longest)
        panel.set_xscale("function", functions=(np.sqrt, np.square))
        panel.set_title(name, fontsize=9)
        panel.axhline(0, color="#444444", linewidth=0.6)
        panel.tick_params(labelsize=8)
    drawing.supxlabel("KL from the start policy, nats an answer", fontsize=8)
    drawing.supylabel(f"gain, {UNITS}", fontsize=8)
    panels["gold"].legend(fontsize=7, frameon=False)
    return drawing
