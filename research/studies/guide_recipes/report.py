"""Report of the study of one recipe for guides."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ....benchmarks.report import table
from ....rm.kinds.autoregressive.diagnostics import COLLAPSED, GuideDiagnostics, collapsed_objectives
from ...statistics.estimates import t_interval
from ...statistics.fronts import Measured
from ...statistics.pareto import hypervolume, mean_inner_product, paired_bootstrap
from ...worlds.guides import MONITORED, Arrays
from ...worlds.meadow import OBJECTIVES as MEADOW
from ...worlds.meadow import conflicts
from ...worlds.policies import LONGEST
from .plan import CHANGES, GROUPS, PLANTED, TEXTS, UNIARM, Plan

FIRST = "UniARM, α"


class Health(NamedTuple):
    """How a guide's training ended: diagnostics by objective, the base's, and the step of a collapse (0: never)."""

    objectives: Mapping[str, GuideDiagnostics]
    base: float
    alarm: int

    @property
    def collapsed(self) -> bool:
        """Whether the trained guide is collapsed at any objective."""
        return bool(collapsed_objectives(self.objectives, self.base, COLLAPSED))


def health(stored: Arrays, objectives: Sequence[str]) -> Health:
    """Return the health of a guide from the arrays of its monitor, judged by today's limits."""
    history = [(int(step), _measures(stored, objectives, "", time)) for time, step in enumerate(stored["steps"])]
    base = float(stored["base"])
    alarms = (step for step, measured in history if collapsed_objectives(measured, base, COLLAPSED))
    return Health(_measures(stored, objectives, "final "), base, next(alarms, 0))


def _measures(stored: Arrays, objectives: Sequence[str], prefix: str, *time: int) -> dict[str, GuideDiagnostics]:
    """Return the measures by objective, from arrays [T, K] at a time, or [K]."""
    return {
        name: GuideDiagnostics(*(stored[f"{prefix}{field}"][*time, index].item() for field in GuideDiagnostics._fields))
        for index, name in enumerate(objectives)
    }


class Results(NamedTuple):
    """What the report is computed from, by group and method."""

    plan: Plan
    measured: Mapping[str, Mapping[str, Measured]]
    health: Mapping[str, Mapping[str, list[Health]]]
    planted: list[Health]

    def facts(self) -> dict[str, Any]:
        """Return the figures of every seed, for a manifest."""
        return {
            "fronts": {
                group: {name: method.as_json() for name, method in methods.items()}
                for group, methods in self.measured.items()
            },
            "collapsed": {
                group: {name: [guide.collapsed for guide in guides] for name, guides in methods.items()}
                for group, methods in self.health.items()
            },
            "alarms of planted collapses": [guide.alarm for guide in self.planted],
        }


def figure_name(kind: str, group: str) -> str:
    """Return the file name of a group's figure, without its ending."""
    return f"{kind}_{group.replace(', ', '_').replace(' ', '_')}"


def text(results: Results) -> str:
    """Return the report in Markdown."""
    parts = [*_head(results.plan), *_collapses(results)]
    for group in GROUPS:
        parts += [*_fronts(results, group), *_differences(results, group), *_diagnostics(results, group)]
    return "\n".join([*parts, *_limits(results.plan)])


def _head(plan: Plan) -> list[str]:
    changes = ", ".join(f"`{name}` {value}" for name, value in CHANGES.items())
    rows = zip(MEADOW, conflicts(), strict=True)
    conflict_lines = [[name, *(f"{value:+.2f}" for value in row)] for name, row in rows]
    texts = "; ".join(f"{name}: '{words}'" for name, words in TEXTS.items())
    return [
        "# One recipe for guides",
        "",
        "Two toy worlds on the same texts: in the garden the third objective falls when overdone, so that weaker "
        "guides (a larger β) stand beside; in the meadow all are linear in word counts. "
        f"{plan.pairs} pairs, {plan.prompts} prompts, answers of up to {LONGEST} tokens at "
        f"weight 1, up to {plan.seeds} seeds from {plan.seed} on, which no setting was chosen on. Every method has "
        f"{plan.steps} steps of {UNIARM.batch} pairs in total: GenARM's guides share them.",
        "",
        f"The recipe changes the earlier setting (the defaults of `Recipe`) in: {changes}. The reward of a completion "
        "is Σ (log π - E log π), with the expectation over the base model's next token, so that neither length nor a "
        "state in which the guide is surer counts, only the choice of tokens; A learns at a fifth of the rate; weights "
        "are averaged over the last three quarters; ties are left out. `semantic vectors` is the paper's construction, "
        f"embedded descriptions ({texts}) in coordinates of their span; `α` reads the preference itself. Settings "
        "were tried on seeds 300 and 301 only.",
        "",
        "Correlations of the meadow's rewards over 2,000 supervised completions:",
        "",
        table(["", *MEADOW], conflict_lines),
        "",
    ]


def _collapses(results: Results) -> list[str]:
    lines = []
    for group, methods in results.health.items():
        for name, guides in methods.items():
            odd = _of_odd_seeds(guides, len(results.measured[group][name].fronts))
            count = sum(guide.collapsed for guide in guides)
            counts = [len(guides), count, _alarmed(guides), f"{_alarmed(odd)} of {len(odd)}"]
            lines.append([group, name, *map(str, counts), _share(count, len(guides))])
    early = [0 < guide.alarm <= 100 for guide in results.planted]
    header = ["", "method", "guides", "collapsed at the end", "alarms in training", "alarms, odd seeds", "rate, 95 %"]
    return [
        "## Collapses",
        "",
        table(header, lines),
        "",
        "A guide counts as collapsed where, at any vertex, its context sensitivity is below "
        f"{COLLAPSED:.2f} of the base model's and its accuracy without length is within two standard errors of chance, "
        f"on {MONITORED} held-out pairs; an alarm is the first such measurement, one every 50 steps. The limit was "
        "fixed on even seeds with two and three objectives of the garden and is checked on the odd ones. An objective "
        "that is length itself (`brief`) looks collapsed by this measure.",
        "",
        f"Planted: at a learning rate of {PLANTED.learning_rate:g} with the earlier setting the alarm came by step 100 "
        f"in {sum(early)} of {len(early)} trainings ({sum(early[1::2])} of {len(early[1::2])} with odd seeds), and "
        f"{sum(guide.collapsed for guide in results.planted)} were collapsed at the end.",
        "",
    ]


def _of_odd_seeds(guides: Sequence[Health], seeds: int) -> list[Health]:
    """Return every second seed's guides, of guides in the order of an even first seed and those that follow."""
    each = len(guides) // seeds
    return [guide for index, guide in enumerate(guides) if index // each % 2]


def _alarmed(guides: Sequence[Health]) -> int:
    return sum(guide.alarm > 0 for guide in guides)


def _share(count: int, total: int) -> str:
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return f"{count / total:.2f} [{low:.2f}, {high:.2f}]"


def _statistics(method: Measured, group: str) -> tuple[Any, Any]:
    volume = partial(hypervolume, reference=GROUPS[group].reference)
    return volume, partial(mean_inner_product, method.preferences)


def _fronts(results: Results, group: str) -> list[str]:
    objectives, lines = GROUPS[group].objectives, []
    for name, method in results.measured[group].items():
        volume, product = _statistics(method, group)
        by_seed = [t_interval(statistic(method.fronts)).formatted(".2f") for statistic in (volume, product)]
        control = [f"{value:.2f}" for value in method.control()]
        ends = [f"{value:.2f}" for value in method.ends()]
        lines.append([name, *by_seed, *control, *ends, f"{method.means['length']:.1f}"])
    seeds = len(results.measured[group][FIRST].fronts)
    header = ["method", "HV", "MIP", *(f"Spearman {name}" for name in objectives)]
    header += [*(f"{name} at its vertex" for name in objectives), "tokens"]
    return [
        f"## {group.capitalize()}",
        "",
        table(header, lines),
        "",
        f"Means over {seeds} seeds with Student's 95 % interval. "
        f"HV above the constant {GROUPS[group].reference.tolist()}.",
        "",
        f"![Control]({figure_name('control', group)}.png)",
        "",
    ]


def _differences(results: Results, group: str) -> list[str]:
    methods = results.measured[group]
    lines = []
    for name, method in methods.items():
        if name == FIRST:
            continue
        both = [
            paired_bootstrap(
                methods[FIRST].rewards, method.rewards, statistic, random=np.random.default_rng(results.plan.seed)
            )
            for statistic in _statistics(method, group)
        ]
        lines.append(
            [name, both[0].relative.formatted("+.1f", scale=100, unit=" %"), both[1].difference.formatted("+.3f")]
        )
    return [
        table([f"{FIRST} against", "HV", "MIP"], lines),
        "",
        "Paired by seed and prompt; 95 % intervals by a bootstrap of both, not corrected for their number.",
        "",
    ]


def _diagnostics(results: Results, group: str) -> list[str]:
    lines = []
    for name, guides in results.health[group].items():
        for objective in GROUPS[group].objectives:
            at = [guide.objectives[objective] for guide in guides if objective in guide.objectives]
            ratios = [
                guide.objectives[objective].context_sensitivity / guide.base
                for guide in guides
                if objective in guide.objectives
            ]
            means = [np.mean([getattr(each, field) for each in at]) for field in SHOWN]
            lines.append([name, objective, f"{np.mean(ratios):.2f}", *(f"{mean:.2f}" for mean in means)])
    header = ["method", "vertex", "context sensitivity / base", *(field.replace("_", " ") for field in SHOWN)]
    return [table(header, lines), "", "Means over seeds, on held-out pairs at the end of the training.", ""]


SHOWN = ("entropy", "length_correlation", "accuracy", "accuracy_without_length")


def _limits(plan: Plan) -> list[str]:
    return [
        "## Limits",
        "",
        "- A toy: models of about 100,000 weights and labels without noise from the function that judges.",
        "- The recipe was chosen for UniARM and PARM's and GenARM's guides use it as it is; each of the three might "
        "have a better one.",
        "- In the study of the earlier setting GenARM had twice the steps.",
        "- The meadow has eight seeds with three objectives, and four with five; weaker guides have four.",
        "- Several methods and measures are compared without correction.",
    ]
