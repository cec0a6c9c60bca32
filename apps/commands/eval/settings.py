"""The settings of `rewardlab eval`."""

from dataclasses import dataclass
from typing import Literal

from ....benchmarks.types import BASELINES
from ....rm.contract.loading_settings import bos_setting, eos_setting
from ....rm.contract.scoring_contract import Edge
from ....rm.registry.settings import AT_LEAST_1, SEED, Rule, Settings, setting
from ...runs.trackers import report_to_setting


@dataclass
class EvalConfig(Settings):
    """Settings of an evaluation: models, benchmark suite and data."""

    required = ("output",)
    rules = (
        Rule(lambda settings: not (settings.model or settings.scores), "--model is missing"),
        Rule(
            lambda settings: settings.reference_policy and settings.read_as != "implicit",
            "--reference_policy needs --read_as implicit; add --read_as implicit, or remove --reference_policy",
        ),
        Rule(
            lambda settings: len(settings.baselines) > 1 and {"all", "none"} & {*settings.baselines},
            "--baselines all or none cannot be combined with other names; give one of them, or names of baselines",
        ),
    )
    benchmark: str = setting(
        "pairs",
        "Benchmark; pairs is for your own preference data.",
        group="Benchmark",
        registry="benchmarks.suites",
    )
    model: list[str] = setting(
        [],
        "Model folders, Hub ids, package.module:factory, or served(urls=[http://a:8000, http://b:8000]).",
        group="Models",
    )
    read_as: str | None = setting(None, "Load the models as this kind, such as autoregressive or implicit.")
    preference: str | None = setting(
        None, "Preference vector of autoregressive models, such as helpful=0.7,harmless=0.3."
    )
    reference_policy: str | None = setting(None, "Reference policy of an implicit reward: path or Hub id.")
    scores: list[str] = setting([], "Files of stored scores by case id; each is evaluated like a model.")
    reference: list[str] = setting([], "Models to evaluate as references for the other models, such as a gold reward.")
    data: list[str] = setting(
        [],
        "Data: files, or hub-id[@revision][:[configuration/]split]; by default the benchmark's data on the Hub.",
        group="Data and output",
    )
    limit: int | None = setting(
        None,
        "Maximum number of cases, sampled in proportion to the subsets, the same cases in each run. By default all.",
        range=AT_LEAST_1,
    )
    output: str = setting("", "Run folder.")
    baselines: list[str] = setting(
        ["all"], "Baselines to evaluate beside the models; tfidf takes most of the time.", choices=BASELINES
    )
    objective: str | None = setting(
        None,
        "Label of the pairs, and objective of models with several objectives; by default their mean. For a "
        "classifier without a scoring contract (scoring.json): the output that is the reward.",
    )
    on_long: Literal["truncate", "refuse"] = setting(
        "truncate", "What to do with a case beyond a model's max_length; truncated cases are counted in the report."
    )
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse",
        "What to do with a row that cannot be used; skip also makes a case an abstention if its right and wrong "
        "responses differ only in text that a model's chat template leaves out.",
    )
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    bootstrap_samples: int = setting(1000, "Number of bootstrap samples.", range=AT_LEAST_1)
    seed: int = setting(0, "Seed of the bootstrap, the random baseline and the cross-validation.", range=SEED)
    report_to: str = report_to_setting()
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
    processes: int = setting(
        1, "Number of processes started by torchrun; the cases are sharded over them.", range=AT_LEAST_1
    )
    resume: bool = setting(False, "Continue a run that was cut off.")
    overwrite: bool = setting(False, "Replace the run folder.")
