"""Study of rounds of sampling and DPO beside GRPO, at equal numbers of generated tokens.

Plan, written before a policy was trained. In the garden, with its gold reward as the reward of every arm. A round
samples 8 completions of each of 64 training prompts, pairs the best with the worst, and trains the policy for 12 steps
of 32 pairs by DPO (β = 0.1) against the policy of the round's start; three rounds. GRPO (KL coefficient 0.1 to the
start policy) trains on 8 completions of each of 8 prompts a step until it has generated as many tokens. The control is
the same three rounds with pairs at random, in random order. Learning rates are 5e-4 for both, not tuned. Added after
three seeds of these arms, in which DPO left the start policy far behind: both arms of DPO at 1e-4, and two more seeds.

Measured on unseen prompts: mean gold, and the KL to the start policy in nats. Means over seeds with Student's 95 %
intervals, differences are paired by seed. No claim is made beforehand; the sign is reported as it is.
"""

from pathlib import Path
from typing import Any

from ...worlds.guides import Base
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .report import figure, text
from .runs import Grpo, Rounds

DPO, GRPO = "DPO", "GRPO"
ARMS: dict[str, dict[str, Any]] = {
    DPO: {},
    "DPO, random pairs": {"at_random": True},
    "DPO at 1e-4": {"learning_rate": 1e-4},
    "DPO at 1e-4, random pairs": {"at_random": True, "learning_rate": 1e-4},
}
SEEDS = 5
SMALL = {"prompts": 8, "steps": 2, "measured": 16}


def iterated_dpo(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies by rounds of sampling and DPO, and by GRPO, and report gold and KL.

    Results of finished jobs are read from `cache`. `rows` makes it a dry run with two seeds.
    """
    sizes = SMALL if rows else {}
    seeds = range(seed, seed + (2 if rows else SEEDS))
    bases = [Base(number, steps=1, texts=64) if rows else Base.part(number, 0.5) for number in seeds]
    rounds = {name: [Rounds(base, **arm, **sizes) for base in bases] for name, arm in ARMS.items()}
    grpo = [Grpo(run) for run in rounds[DPO]]
    for stage in (bases, [job for jobs in rounds.values() for job in jobs], grpo):
        run_jobs(stage, cache, workers, log)
    results = {name: [job.result(cache) for job in jobs] for name, jobs in (rounds | {GRPO: grpo}).items()}
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    facts = {"seeds": [*seeds], "sizes": sizes}
    return Study(text(plan, results, GRPO), [], {"curves": figure(results)}, {}, facts)
