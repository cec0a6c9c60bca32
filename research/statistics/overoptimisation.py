"""Over-optimisation: the true reward of a policy as a function of the proxy reward that it is trained on.

Runs are given as records, one for every measured step: `arm`, `seed`, `step`, `kl` from the start policy (nats per
completion), and the mean `gold` and `proxy` reward. The record of step 0, the start policy itself, also has `gold_std`
and `proxy_std` over its completions. All gains are relative to step 0 in units of these standard deviations, so that
proxies of any scale can be compared with gold and with each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ...policy.decoding.best_of_n import best_of_n_kl, expected_best_of_n
from ...rm.errors import DataError
from .estimates import Estimate, t_interval

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
    tables = {"proxy": of_proxy, "gold": of_gold}
    chosen = {name: expected_best_of_n(of_proxy, values, ns).mean(0) for name, values in tables.items()}
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


def percent_range(shares: Sequence[float]) -> str:
    """Return the smallest and the largest share, such as `63 to 70 %`."""
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"
