"""Evaluations and report of the study: first errors, best of n, and every model alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from ....benchmarks.baselines import baselines_for
from ....benchmarks.evaluate import Evaluation, evaluate
from ....benchmarks.report import markdown, table
from ....benchmarks.scorers import StoredScores
from ....benchmarks.statistics.first_error import best_threshold, first_error
from ....benchmarks.suites.best_of_16 import best_of_16
from ....benchmarks.suites.processbench import THRESHOLD, processbench
from ....judges.types import Case
from ....rm.types import Steps, user_turn
from .models import OUTCOME, PROCESS, SEPARATOR
from .texts import Texts, Trace

Scores = Sequence[np.ndarray]
"""Scores of the steps of each solution."""


# ---- first errors ----


def first_errors(texts: Texts, scores: Mapping[str, np.ndarray]) -> Evaluation:
    """Return the evaluation on all sets but the validation's, whose threshold of each arm becomes 1/2."""
    suite, cases = processbench(), [case for name in [*texts.traces][1:] for case in trace_cases(texts, name)]
    scorers = []
    for arm, values in scores.items():
        by_set = split_traces(texts, values)
        shift = THRESHOLD - threshold_of(texts, by_set)
        shifted = [some + shift for name in [*texts.traces][1:] for some in by_set[name]]
        stored = {case.id: tuple(map(float, some)) for case, some in zip(cases, shifted, strict=True)}
        scorers.append(StoredScores(arm, stored, role="model" if arm == PROCESS else "baseline"))
    return evaluate(suite, cases, [*scorers, *suite.baselines(cases)])


def split_traces(texts: Texts, values: np.ndarray) -> dict[str, Scores]:
    """Return the scores of the steps of each trace, by set."""
    traces = [(name, trace) for name, of_set in texts.traces.items() for trace in of_set]
    parts = np.split(values, np.cumsum([len(trace.steps) for _, trace in traces])[:-1])
    return {
        name: [part for part, (other, _) in zip(parts, traces, strict=True) if other == name] for name in texts.traces
    }


def threshold_of(texts: Texts, by_set: Mapping[str, Scores]) -> float:
    """Return the threshold of the highest F1 on the validation traces."""
    chosen = best_threshold([list(some) for some in by_set["validation"]], labels_of(texts.traces["validation"]))
    return chosen.value


def labels_of(traces: Sequence[Trace]) -> list[int]:
    """Return the first errors of traces."""
    return [trace.first_error for trace in traces]


def trace_cases(texts: Texts, name: str) -> list[Case]:
    """Return the traces of a set as cases of ProcessBench; solutions of one problem are one cluster."""
    kind = {True: "correct", False: "erroneous"}
    return [
        Case(
            f"{name}-{index}",
            user_turn(trace.problem),
            tuple(Steps(tuple(trace.steps[: end + 1]), SEPARATOR) for end in range(len(trace.steps))),
            best=tuple(range(len(trace.steps))) if trace.first_error < 0 else (trace.first_error,),
            subset=f"{name}/{kind[trace.first_error < 0]}",
            values=tuple(float(trace.first_error < 0 or end < trace.first_error) for end in range(len(trace.steps))),
            cluster=f"{name} {trace.problem}",
        )
        for index, trace in enumerate(texts.traces[name])
    ]


# ---- best of n ----


def best_of_n(texts: Texts, scores: Mapping[str, np.ndarray]) -> dict[str, Evaluation]:
    """Return the evaluation by set: rewards are the minimum over steps, or the last step's after labels of answers."""
    solutions = [
        (name, index, steps)
        for name, problems in texts.candidates.items()
        for index, problem in enumerate(problems)
        for steps in problem.solutions
    ]
    ends = np.cumsum([len(steps) for *_, steps in solutions])[:-1]
    evaluations = {}
    for name, problems in texts.candidates.items():
        cases = [
            Case(
                f"{name}-{index}",
                user_turn(problem.problem),
                tuple(SEPARATOR.join(steps) for steps in problem.solutions),
                best=tuple(np.flatnonzero(problem.right).tolist()),
                values=tuple(map(float, problem.right)),
            )
            for index, problem in enumerate(problems)
        ]
        votes = {
            case.id: tuple(float(problem.answers.count(answer)) for answer in problem.answers)
            for case, problem in zip(cases, problems, strict=True)
        }
        scorers = [StoredScores("majority vote", votes, role="baseline")]
        for arm, values in scores.items():
            rewards: dict[str, tuple[float, ...]] = {}
            for (other, index, _), some in zip(solutions, np.split(values, ends), strict=True):
                if other == name:
                    reward = some[-1] if arm == OUTCOME else some.min()
                    rewards[f"{name}-{index}"] = (*rewards.get(f"{name}-{index}", ()), float(reward))
            scorers.append(StoredScores(arm, rewards, role="model" if arm == PROCESS else "baseline"))
        evaluations[name] = evaluate(best_of_16(), cases, [*scorers, *baselines_for(cases)])
    return evaluations


# ---- text ----


def text(plan: str, texts: Texts, evaluations: Mapping[str, Evaluation], single: Mapping[str, np.ndarray]) -> str:
    """Return the report in Markdown; `single` has the scores of the traces of every model."""
    labels = {name: labels_of(traces) for name, traces in texts.traces.items()}
    sizes = [
        [
            name,
            str(len(some)),
            str(sum(label >= 0 for label in some)),
            str(len({t.problem for t in texts.traces[name]})),
        ]
        for name, some in labels.items()
    ]
    rows = [[name, *_located(texts, values)] for name, values in single.items()]
    names = [*texts.traces][1:]
    parts = [
        "# Labels of steps and of answers on MiniLM",
        plan,
        table(["set", "solutions", "with an error", "problems"], sizes),
        "## First errors",
        "`outcome` and `shuffled labels` stand among the baselines, so that the differences of `process` from them "
        "have paired intervals. Scores are shifted so that every arm's threshold is 1/2.",
        markdown(evaluations["first-errors"].report),
        "Single seeds, each with its own threshold: share of solutions of which the first error, or that there is "
        "none, is found.",
        table(["model", *names], rows),
        *(
            part
            for name in texts.candidates
            for part in (f"## Best of n, {name}", markdown(evaluations[f"best-of-n-{name}"].report))
        ),
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _located(texts: Texts, values: np.ndarray) -> list[str]:
    by_set = split_traces(texts, values)
    threshold = threshold_of(texts, by_set)
    shares = []
    for name in [*texts.traces][1:]:
        pairs = zip(by_set[name], labels_of(texts.traces[name]), strict=True)
        shares.append(np.mean([first_error(list(some), threshold) == label for some, label in pairs]))
    return [f"{share:.3f}" for share in shares]


LIMITS = """## Limits

- An encoder of 22.7 million parameters that never saw mathematics in particular; one seed, one choice of texts.
- Solutions of PRM800K end at their first wrong step; those of mr_gsm8k and big_bench_mistake go on.
- mr_gsm8k has wrong solutions only: its right ones are their steps before the error."""
