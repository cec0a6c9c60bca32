"""Study of distillation: an ensemble of five reward models against a student of a fifth of its size.

Plan, written before a model was trained. In the garden, reward models of 100,000 weights that start from the start
policy's trunk. Each of five members learns from 1,000 pairs of its own with noisy labels (70 steps of 32 pairs). The
ensemble's reward is the mean of theirs. Students learn for 200 steps from 3,000 other pairs without labels: by soft
labels, by the squared error of centred rewards, and, as the control of what the soft label adds, by the sign of the
ensemble's gap. Beside them stand a single member, and one model that learns from all 5,000 labels of the members for
200 steps. Learning rate 1e-3 for all, not tuned. Five seeds.

Measured on 2,000 held-out pairs: the share that is ordered as by the ensemble (agreement), accuracy by gold, and
CPU-seconds for 1,000 pairs. Means over seeds with Student's 95 % intervals, differences are paired by seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from ...benchmarks import garden
from ...benchmarks.report import table
from ...rm.kinds.ensemble.model import EnsembleRewardModel
from ...rm.kinds.scalar.distillation import timed_gaps
from ...rm.kinds.scalar.model import ScalarRewardModel
from ...rm.kinds.scalar.training import ScalarTask, encode_pairs
from ...rm.losses._pair_batch import PairLoss
from ...rm.losses._pair_losses import with_other_gaps
from ...rm.losses.bradley_terry import bradley_terry
from ...rm.losses.centred_mse import centred_mse
from ...rm.losses.soft_labels import soft_labels
from ...rm.types import OVERALL, PreferencePair
from ...tests.stand_ins.small_training import Fit, fit
from ..statistics.estimates import t_interval
from ..worlds.guides import Base
from ..worlds.policies import Teaching, order_accuracy, proxy, untaught
from ._runs.job_cache import Arrays, Job, run_jobs
from ._study import Log, Study

ENSEMBLE, MEMBER, LABELS = "ensemble of five", "one member", "all labels of the members"
SOFT, MSE, HARD = "soft labels", "centred MSE", "signs of the ensemble"
ARMS = (ENSEMBLE, MEMBER, LABELS, SOFT, MSE, HARD)
MEASURES = ("agreement", "accuracy", "seconds")
MEMBERS, SEEDS = 5, 5


@dataclass(frozen=True)
class Distilled(Job):
    """An ensemble and its students; agreement, accuracy and CPU-seconds for 1,000 pairs of every arm."""

    base: Base
    taught: int = 1000
    member_steps: int = 70
    unlabelled: int = 3000
    steps: int = 200
    held_out: int = 2000
    learning_rate: float = 1e-3

    def __str__(self) -> str:
        return f"ensemble and students, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return agreement, accuracy and CPU-seconds [arms]."""
        start, seed = self.base.load(cache), self.base.seed
        seeds = [1000 * (seed + 1) + member for member in range(MEMBERS)]
        teaching = Teaching(self.taught, self.member_steps, self.learning_rate)
        members = [proxy(start, teaching, number) for number in seeds]
        ensemble = EnsembleRewardModel(members, [str(cache / "unsaved")] * MEMBERS)
        named = replace(soft_labels(), other=ENSEMBLE)
        pairs = with_other_gaps(named, garden.pairs(self.unlabelled, 500 + seed), ensemble)
        signs = [replace(pair, wins={OVERALL: float(pair.gaps["other"] > 0)}) for pair in pairs]
        labelled = [pair for number in seeds for pair in garden.pairs(self.taught, number)]
        models = {ENSEMBLE: ensemble, MEMBER: members[0]}
        models[LABELS] = self._student(start, bradley_terry(), labelled)
        models[SOFT] = self._student(start, soft_labels(), pairs)
        models[MSE] = self._student(start, centred_mse(), pairs)
        models[HARD] = self._student(start, bradley_terry(), signs)
        test = garden.pairs(self.held_out, seed, "test")
        truth = timed_gaps(garden.gold(), test, "gold").gaps
        readings = [timed_gaps(models[arm], test, arm) for arm in ARMS]
        return {
            "agreement": np.array([np.mean(np.sign(own.gaps) == np.sign(readings[0].gaps)) for own in readings]),
            "accuracy": np.array([order_accuracy(own.gaps, truth) for own in readings]),
            "seconds": np.array([1000 * own.seconds / len(test) for own in readings]),
        }

    def _student(self, start: PreTrainedModel, loss: PairLoss, pairs: Sequence[PreferencePair]) -> ScalarRewardModel:
        model = untaught(start, self.base.seed)
        rows = encode_pairs(model.encoder, pairs, OVERALL).rows
        fit(model, ScalarTask(loss), rows, Fit(self.steps, self.learning_rate, 32, self.base.seed))
        return model


def distillation(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train ensembles and students, and report how they agree. `rows` is a dry run with as many pairs and two seeds."""
    seeds = range(seed, seed + (2 if rows else SEEDS))
    bases = [Base(number, steps=1, texts=64) if rows else Base.part(number, 0.5) for number in seeds]
    sizes = {"taught": rows, "unlabelled": rows, "held_out": rows, "member_steps": 2, "steps": 2} if rows else {}
    jobs = [Distilled(base, **sizes) for base in bases]
    for stage in (bases, jobs):
        run_jobs(stage, cache, workers, log)
    results = [job.result(cache) for job in jobs]
    values = {name: np.stack([run[name] for run in results]) for name in MEASURES}
    parts = ["# Distillation of an ensemble", (__doc__ or "").split("\n\n", 1)[1].strip()]
    parts += [agreement_table(ARMS, values), LIMITS]
    return Study("\n\n".join(parts) + "\n", [], {}, {}, {"seeds": [*seeds], "sizes": sizes})


def agreement_table(arms: Sequence[str], values: Mapping[str, np.ndarray]) -> str:
    """Return the measures [seeds, arms] as a table; `training`, the CPU-seconds of the training, may be absent."""
    header = ["model", "agreement, %", "accuracy, %", "accuracy minus the ensemble's", "minus one member's"]
    header.append("CPU-seconds for 1,000 pairs")
    header += ["CPU-seconds of the training"] * ("training" in values)
    accuracy, cells = values["accuracy"], []
    for index, arm in enumerate(arms):
        differences = [accuracy[:, index] - accuracy[:, arms.index(other)] for other in (ENSEMBLE, MEMBER)]
        shares = [t_interval(values[name][:, index]).formatted(".1f", 100) for name in ("agreement", "accuracy")]
        gains = [t_interval(some).formatted("+.1f", 100) if some.any() else "–" for some in differences]
        cells.append([arm, *shares, *gains, t_interval(values["seconds"][:, index]).formatted(".2f")])
        cells[-1] += [f"{seconds[:, index].mean():.0f}" for name, seconds in values.items() if name == "training"]
    return table(header, cells, right={*header[1:]})


LIMITS = """## Limits

- A toy: word-level text of at most 24 words, models of 100,000 weights; the student has the size of a member.
- Students see 3,000 pairs, members 1,000 each: a part of their gain over a member may come from more text."""
