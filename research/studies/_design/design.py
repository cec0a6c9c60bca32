"""Design of a study: pilot, smallest effects of interest, number of seeds, looks and budget."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....benchmarks.report import table
from ....rm.errors import UsageError, did_you_mean
from ...statistics.power import detectable_effect, look_levels, paired_sd, sd_upper_limit, seeds_needed
from .claims import Claim

COMPLETIONS = 4096
"""Minimum number of completions on which an arm is evaluated at each seed."""
BUDGET = 4 * 3600.0
"""CPU-seconds of a study."""


class Pilot(NamedTuple):
    """Paired standard deviation of a claim's differences, and the number of pilot seeds behind it."""

    sd: float
    seeds: int

    @property
    def upper(self) -> float:
        """Upper 80 % limit of the standard deviation."""
        return sd_upper_limit(self.sd, self.seeds)


@dataclass(frozen=True)
class Design:
    """What is fixed before the runs of a study.

    Seeds of the pilot are never counted: UsageError if a study has one of them.
    """

    claims: tuple[Claim, ...]
    pilot: Mapping[str, Pilot]
    """By the name of the claim; a claim without a pilot has no say in the number of seeds."""
    pilot_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    completions: int
    """Number of completions on which an arm is evaluated at each seed."""
    seconds_per_seed: float
    """CPU-seconds of all arms at one seed, measured in the pilot."""
    budget: float = BUDGET
    """CPU-seconds."""
    alpha: float = 0.05
    power: float = 0.8
    looks: tuple[float, ...] = (1.0,)
    """Fractions of the seeds at which the claims are tested; the last is 1."""
    planned_seeds: int | None = None
    """Number of seeds of the whole study; None for those of `seeds`."""

    def __post_init__(self) -> None:
        look_levels(self.looks, self.alpha)  # raises for looks that are no fractions
        names = [claim.name for claim in self.claims]
        for name in self.pilot.keys() - {*names}:
            raise UsageError(f"the pilot has differences of '{name}', which is no claim; {did_you_mean(name, names)}")
        if shared := sorted({*self.seeds} & {*self.pilot_seeds}):
            raise UsageError(f"seeds {shared} are seeds of the pilot, which are never counted; take others")
        if len({*self.seeds}) < len(self.seeds):
            raise UsageError(f"seeds {self.seeds} repeat one; each is counted once")

    def first(self, number: int | None) -> "Design":
        """Return the design of a part of the study: its first seeds, or all for None."""
        return replace(self, seeds=self.seeds[:number], planned_seeds=len(self.seeds))

    @property
    def look_seeds(self) -> tuple[int, ...]:
        """Number of seeds at each look."""
        return tuple(max(2, int(np.ceil(round(look * len(self.seeds), 9)))) for look in self.looks)

    def level(self, claim: Claim, look: int = -1) -> float:
        """Return the level of a look's test divided by the number of claims in the family, Holm's first step."""
        family = sum(other.family == claim.family for other in self.claims)
        return look_levels(self.looks, self.alpha)[look] / family

    def needed(self, claim: Claim, sd: float | None = None) -> int:
        """Return the number of seeds that show the smallest effect of interest at the last look."""
        sd = self.pilot[claim.name].sd if sd is None else sd
        return seeds_needed(claim.smallest_effect, sd, self.level(claim), self.power)

    def detectable(self, claim: Claim) -> float:
        """Return the smallest effect that the study's seeds show at the last look, by the pilot's deviation."""
        return detectable_effect(self.pilot[claim.name].sd, len(self.seeds), self.level(claim), self.power)

    def facts(self) -> dict[str, Any]:
        """Return the design in JSON types, for a manifest; its claims by name."""
        return asdict(self) | {"claims": [claim.name for claim in self.claims]}


def plan_seeds(
    claims: Sequence[Claim],
    pilot_differences: Mapping[str, np.ndarray],
    *,
    pilot_seeds: Sequence[int],
    seconds_per_seed: float,
    completions: int = COMPLETIONS,
    first_seed: int = 0,
    at_least: int = 2,
    budget: float = BUDGET,
    alpha: float = 0.05,
    power: float = 0.8,
    looks: Sequence[float] = (1.0,),
    family: str | None = None,
) -> Design:
    """Return the design whose seeds show every claim's smallest effect with the given power, as far as the budget goes.

    `pilot_differences` are arm minus control at the pilot seeds, by claim (`paired_differences`). Claims that have none
    are tested but do not count in the number of seeds, nor do those outside `family`, where one is named. Raises
    UsageError for fewer than `COMPLETIONS` completions and for a budget of less than two seeds.
    """
    if completions < COMPLETIONS:
        raise UsageError(f"{completions} completions; evaluate each arm on at least {COMPLETIONS:,} at every seed")
    affordable = int(budget / seconds_per_seed)
    if affordable < 2:
        raise UsageError(f"the budget of {budget:g} CPU-seconds pays {affordable} seeds of {seconds_per_seed:g}")
    pilot = {
        name: Pilot(paired_sd(differences), int((~np.isnan(differences)).sum()))
        for name, differences in pilot_differences.items()
        if family is None or name in {claim.name for claim in claims if claim.family == family}
    }
    draft = Design(
        tuple(claims), pilot, tuple(pilot_seeds), (), completions, seconds_per_seed, budget, alpha, power, tuple(looks)
    )
    needed = [draft.needed(claim) for claim in claims if claim.name in pilot]
    number = min(max([at_least, *needed]), affordable)
    return replace(draft, seeds=tuple(range(first_seed, first_seed + number)))


# ---- report ----


def design_markdown(design: Design) -> str:
    """Return the head of a report: pilot, smallest effects, seeds for the power and seeds run, looks and budget."""
    number, decided = len(design.seeds), sorted({claim.decided.isoformat() for claim in design.claims})
    hours = number * design.seconds_per_seed / 3600
    text = (
        f"Claims decided before the runs, on {', '.join(decided)}. Pilot: {len(design.pilot_seeds)} seeds, which are "
        f"not counted. Each of {number} seeds pairs all arms, evaluated on {design.completions:,} completions each, "
        f"and takes {design.seconds_per_seed:,.0f} CPU-seconds by the pilot: {hours:.2g} of the budget's "
        f"{design.budget / 3600:.2g} CPU-hours. Tests are two-sided paired t-tests, {100 * design.alpha:g} % in each "
        f"family of claims (Holm); power is exact, at the strictest step of Holm's method.{_looks(design)}"
    )
    header = ["claim", "metric", "direction", "smallest effect of interest", "pilot SD (upper limit)"]
    header += [f"seeds for {_power(design)} (at the upper limit)", "seeds run", "smallest effect that these show"]
    listed = table(header, [_cells(design, claim) for claim in design.claims], right={*header[3:]})
    return "\n\n".join(["## Design", text, listed, *_shortfalls(design)])


def _power(design: Design) -> str:
    return f"{100 * design.power:g} % power"


def _cells(design: Design, claim: Claim) -> list[str]:
    cells = [f"`{claim.name}`: {claim.claim}", claim.metric, claim.direction, f"{claim.smallest_effect:g}"]
    number = str(len(design.seeds))
    if claim.name not in design.pilot:
        return [*cells, "–", "–", number, "–"]
    sd, upper = design.pilot[claim.name].sd, design.pilot[claim.name].upper
    needed = f"{design.needed(claim)} ({design.needed(claim, upper)})"
    return [*cells, f"{sd:.3g} ({upper:.3g})", needed, number, f"{design.detectable(claim):.3g}"]


def _looks(design: Design) -> str:
    """Return the sentence on sequential looks, or an empty string if there is one look only."""
    if len(design.looks) == 1:
        return ""
    levels = zip(design.look_seeds, look_levels(design.looks, design.alpha), strict=True)
    looks = ", ".join(f"after {seeds} seeds at {100 * level:.2g} %" for seeds, level in levels)
    return f" Looks: {looks} (O'Brien-Fleming spending, {100 * design.alpha:g} % in all)."


def _shortfalls(design: Design) -> list[str]:
    """Return what the seeds that were run are too few to show, and whether they are a part or a dry run."""
    dry_run = f"**A dry run: fewer than {COMPLETIONS:,} completions.**"
    number, planned = len(design.seeds), design.planned_seeds or 0
    part = f"**A part of the study: {number} of {planned} planned seeds were run.**"
    short = [
        f"- `{claim.name}`: {_power(design)} would need {design.needed(claim)} seeds; {len(design.seeds)} were run, "
        f"which show an effect of {design.detectable(claim):.3g}."
        for claim in design.claims
        if claim.name in design.pilot and design.needed(claim) > len(design.seeds)
    ]
    states = [part] * (number < planned) + [dry_run] * (design.completions < COMPLETIONS)
    return [*states, "\n".join(short)] if short else states
