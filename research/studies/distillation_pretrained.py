"""Study of distillation on human preferences: an ensemble of five small encoders against students of a member's size.

Plan, written before the first run. Pairs of arguments (UKPConvArg1, 8,449 pairs of 23 debate sides, labelled by five
people each); 5 of the 23 sides are held out. Reward models are the first two layers of MiniLM with a new head, at most
128 tokens. Each of five members learns from 320 labelled pairs of its own (40 steps of 16 pairs). Students learn for
100 steps of 16 pairs from 1,600 other pairs: by the soft labels of the ensemble, by the squared error of centred
rewards, or from the labels of these pairs alone, without a teacher. Learning rate 1e-4 for all, not tuned. Three seeds,
which choose sides, pairs and heads. The longest of the two arguments is the baseline.

Measured on 600 pairs of the held-out sides: the share that is ordered as by the ensemble (agreement), the share that is
ordered as labelled (accuracy), CPU-seconds for 1,000 pairs, and CPU-seconds of the training (of an ensemble that of all
members; the rewards of a student's teacher are named beside the table). Means over seeds with Student's 95 % intervals,
differences are paired by seed. No claim is made beforehand; three seeds show large differences only.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...examples.fetch_models import fetched
from ...rm.data.conversation_split import first_turn
from ...rm.data.pairs import load_pairs
from ...rm.kinds.ensemble.model import EnsembleRewardModel
from ...rm.kinds.scalar.distillation import timed_gaps
from ...rm.kinds.scalar.model import ScalarRewardModel, load_scalar
from ...rm.kinds.scalar.training import ScalarTask, encode_pairs
from ...rm.losses._pair_batch import PairLoss
from ...rm.losses._pair_losses import with_other_gaps
from ...rm.losses.bradley_terry import bradley_terry
from ...rm.losses.centred_mse import centred_mse
from ...rm.losses.soft_labels import soft_labels
from ...rm.types import OVERALL, PreferencePair
from ...tests.stand_ins.small_training import Fit, fit
from ..statistics.estimates import t_interval
from ._runs.job_cache import Arrays, Job, run_jobs
from ._study import Log, Study
from .distillation import ENSEMBLE, MEASURES, MEMBER, MEMBERS, MSE, SOFT, agreement_table

FILE = "data2/ukp_convarg1/pairs.jsonl.gz"
LABELS, LENGTH = "labels of the same pairs", "longest"
ARMS = (ENSEMBLE, MEMBER, SOFT, MSE, LABELS)
SEEDS, HELD_OUT_SIDES, LAYERS, BATCH = 3, 5, 2, 16


@dataclass(frozen=True)
class DistilledEncoder(Job):
    """An ensemble and its students; agreement, accuracy and CPU-seconds of every arm, and the baseline's accuracy."""

    source: str
    encoder: str
    seed: int
    taught: int = 320
    member_steps: int = 40
    unlabelled: int = 1600
    steps: int = 100
    held_out: int = 600
    learning_rate: float = 1e-4

    libraries: ClassVar = ("torch", "transformers")

    def __str__(self) -> str:
        return f"ensemble and students, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return agreement, accuracy and CPU-seconds [arms], and the accuracy of the longest response."""
        pool, test = split_pairs(self.source, self.seed, self.held_out)
        taught, others = pool[: MEMBERS * self.taught], pool[MEMBERS * self.taught :][: self.unlabelled]
        training = dict.fromkeys(ARMS, 0.0)
        members = []
        for index in range(MEMBERS):
            seed = MEMBERS * self.seed + index
            part = taught[index * self.taught :][: self.taught]
            member, training[MEMBER] = self._trained(part, bradley_terry(), seed, self.member_steps)
            members.append(member)
            training[ENSEMBLE] += training[MEMBER]
        ensemble = EnsembleRewardModel(members, [str(cache / "unsaved")] * MEMBERS)
        started = time.process_time()
        soft = with_other_gaps(replace(soft_labels(), other=ENSEMBLE), others, ensemble)
        teaching = time.process_time() - started
        models = {ENSEMBLE: ensemble, MEMBER: members[0]}
        arms = ((SOFT, soft_labels(), soft), (MSE, centred_mse(), soft), (LABELS, bradley_terry(), others))
        for arm, loss, pairs in arms:
            models[arm], training[arm] = self._trained(pairs, loss, 1000 + self.seed, self.steps)
        readings = [timed_gaps(models[arm], test, arm) for arm in ARMS]
        longest = [np.sign(len(pair.texts[0]) - len(pair.texts[1])) for pair in test]
        return {
            "agreement": np.array([np.mean(np.sign(own.gaps) == np.sign(readings[0].gaps)) for own in readings]),
            "accuracy": np.array([np.mean(own.gaps > 0) for own in readings]),
            "seconds": np.array([1000 * own.seconds / len(test) for own in readings]),
            "training": np.array([training[arm] for arm in ARMS]),
            "teaching": np.array(teaching),
            LENGTH: np.array((1 + np.mean(longest)) / 2),
        }

    def _trained(
        self, pairs: Sequence[PreferencePair], loss: PairLoss, seed: int, steps: int
    ) -> tuple[ScalarRewardModel, float]:
        """Return a trained model, and the CPU-seconds of its training."""
        started = time.process_time()
        model = load_scalar(self.encoder, fresh=True, max_length=128, chat_template="plain", seed=seed)
        model.model.base_model.encoder.layer = model.model.base_model.encoder.layer[:LAYERS]  # type: ignore[index]
        rows = encode_pairs(model.encoder, pairs, OVERALL).rows
        fit(model, ScalarTask(loss), rows, Fit(steps, self.learning_rate, BATCH, seed))
        return model, time.process_time() - started


def split_pairs(source: str, seed: int, held_out: int) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Return the pairs of the training sides, and `held_out` of those of the other sides, in random order."""
    loaded, _ = load_pairs([source], on_bad_row="skip")
    pairs = [replace(pair, wins={OVERALL: 1.0}) for pair in loaded]
    sides = [*dict.fromkeys(first_turn(pair.prompt) for pair in pairs)]
    rng = np.random.default_rng(seed)
    tested = {sides[index] for index in rng.permutation(len(sides))[:HELD_OUT_SIDES]}
    shuffled = [pairs[index] for index in rng.permutation(len(pairs))]
    test = [pair for pair in shuffled if first_turn(pair.prompt) in tested]
    return [pair for pair in shuffled if first_turn(pair.prompt) not in tested], test[:held_out]


def distillation_pretrained(
    data: Path,
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    encoder: str = "minilm",
    log: Log = print,
) -> Study:
    """Train ensembles and students on pairs of arguments, and report how they agree.

    `data` holds the folder `data2`; results of finished jobs are read from `cache`. `rows` is a dry run with as many
    pairs and two seeds; `encoder` may be the folder of another model.
    """
    seeds = range(seed, seed + (2 if rows else SEEDS))
    sizes = {"taught": rows, "unlabelled": rows, "held_out": rows, "member_steps": 2, "steps": 2} if rows else {}
    folder = encoder if Path(encoder).is_dir() else fetched(encoder)
    jobs = [DistilledEncoder(str(data / FILE), folder, number, **sizes) for number in seeds]
    run_jobs(jobs, cache, workers, log)
    results = [job.result(cache) for job in jobs]
    values = {name: np.stack([run[name] for run in results]) for name in (*MEASURES, "training")}
    longest, teaching = (np.stack([run[name] for run in results]) for name in (LENGTH, "teaching"))
    note = (
        f"The longest response is the chosen one in {t_interval(longest).formatted('.1f', 100)} % of the pairs. The "
        f"training of a student with a teacher takes {teaching.mean():.0f} CPU-seconds more for the teacher's rewards."
    )
    parts = ["# Distillation on human preferences", (__doc__ or "").split("\n\n", 1)[1].strip()]
    parts += [agreement_table(ARMS, values), note, LIMITS]
    return Study("\n\n".join(parts) + "\n", [str(data / FILE)], {}, {}, {"seeds": [*seeds], "sizes": sizes})


LIMITS = """## Limits

- Two layers of a small encoder on short arguments; the student has the size of a member.
- CPU-seconds are from a machine that other work shared.
- Members are five fifths of one set of labels: what an ensemble of other models gains is not measured."""
