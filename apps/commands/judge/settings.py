"""The settings of `rewardlab judge`."""

from dataclasses import dataclass
from typing import Any, Literal

from ....judges.rubrics.scoring import DEFAULT_SCORE, SCORES
from ....rm.registry.settings import AT_LEAST_0, AT_LEAST_1, SEED, SHARE_ABOVE_0, Rule, declarations, setting
from ....rm.types import OVERALL
from ...publishing.hub_upload import DataHubSettings
from ...runs.trackers import report_to_setting

READ_LATER = ("score", "chance", "bootstrap_samples", "calibrate", "width")
"""Settings that do not affect a judge's replies. A resumed run may change them."""


@dataclass
class JudgeConfig(DataHubSettings):
    """Settings of a judge run: kinds of judges, cases and audit."""

    required = ("kind",)
    rules = (
        Rule(lambda config: not (config.output or config.dry_run), "--output is missing"),
        Rule(
            lambda config: len(config.fit_route) not in (0, 2),
            "--fit_route takes two runs, the cheap judge's and the strong judge's, got {fit_route}",
        ),
        Rule(
            lambda config: config.report_to != "none" and (config.audit or config.dry_run or config.fit_route),
            "--report_to logs the figures of an evaluation; with --audit, --dry_run or --fit_route, leave it out",
        ),
        Rule(
            lambda config: config.calibrate and (config.audit or config.dry_run or config.fit_route),
            "--calibrate corrects the figures of an evaluation; leave --audit, --dry_run and --fit_route out",
        ),
        Rule(
            lambda config: config.push_to_hub and (config.dry_run or config.audit or config.fit_route),
            "--push_to_hub uploads judgments; leave --dry_run, --audit and --fit_route out",
        ),
    )
    benchmark: str = setting(
        "pairs",
        "Benchmark, as in eval; pairs also accepts rows of prompt, answers and best.",
        group="Cases",
        registry="benchmarks.suites",
    )
    data: list[str] = setting(
        [],
        "Preference files, or rows with prompt, answers and best (indices of the correct responses); "
        "by default the benchmark's data on the Hub.",
    )
    kind: list[str] = setting(
        ["pairwise"],
        "KIND or NAME=KIND, with arguments as in 'pairwise(flip=abstain)'; each is run with "
        "each model. 'reward_model(model=runs/rm)' calls no language model.",
        group="Judges",
        registry="judges.kinds",
    )
    together: str | None = setting(
        None,
        "Combine all judges into one: 'panel(how=majority)' or consistent; for a cheap and a strong judge, "
        "'cascade(gap=0.5)' or 'route(rule=guideline, threshold=0.5)', which selects the judge before any request. A "
        "rule is guideline or the folder of a fitted rule; budget=0.3 in place of a threshold sends that share of the "
        "cases to the strong judge, and reward_model=FOLDER gives the rule the margin of a reward model.",
    )
    rubric: str | None = setting(
        None,
        "Rubric for the kinds of judge that use one: a .toml or .json file, a name from judges/rubrics, a .jsonl "
        "with a rubric per case (for rubrics of HealthBench add --score signed_points), or retrieved.",
    )
    score: str = setting(DEFAULT_SCORE, "Score of rubric marks.", choices=[*SCORES])
    levels: str | None = setting(
        None,
        "For the kind pointwise: a description of each score level, with the keys of BiGGen Bench's score_rubric; a "
        ".toml or .json file, or a .jsonl with one for each case.",
    )
    checklist: str | None = setting(None, "For the kind checklist: a TOML file of [[questions]].")
    output: str = setting("", "Run folder.", group="Run")
    objective: str = setting(OVERALL, "Label of the pairs.")
    limit: int | None = setting(
        None, "Judge a random sample of this many cases, drawn with the seed.", range=AT_LEAST_1
    )
    max_tokens: int = setting(1024, "Maximum length of a reply in tokens.", range=AT_LEAST_1)
    temperature: float = setting(0.0, "Sampling temperature; 0 decodes greedily.", range=AT_LEAST_0)
    tokenizer: str = setting(
        "", "Tokenizer for the estimate of token counts: folder or Hub id; by default characters / 4.", advanced=True
    )
    dry_run: bool = setting(False, "Report the number of calls, tokens and cost, and send no request.")
    audit: bool = setting(
        False, "Measure the position, length, style and other biases of the judge, not its accuracy.", group="Audit"
    )
    names: list[str] = setting(
        [],
        "For the audit: MODEL=AUTHOR or JUDGE=AUTHOR, the judge's own author; measures "
        "self-preference, also on responses whose row has authors (or chosen_model, rejected_model).",
        requires="audit",
    )
    other_author: str = setting(
        "",
        "For the audit: the author to compare --names with; by default the most frequent other author in the data.",
        requires="names",
        advanced=True,
    )
    chance: str | None = setting(
        None,
        "For the audit: how scores are converted to probabilities, to measure calibration.",
        choices=("bradley_terry", "shares"),
        requires="audit",
        advanced=True,
    )
    calibrate: str = setting(
        "",
        "Human labels of some cases, to correct the figures: annotations of the inspector, preference pairs, or rows "
        "with case and one of best, verdict, scores. A finished run is not judged again.",
        group="Correction",
    )
    width: float = setting(
        0.1,
        "Target width of a corrected interval; the report says how many more labels would reach this width.",
        range=SHARE_ABOVE_0,
        requires="calibrate",
        advanced=True,
    )
    fit_route: list[str] = setting(
        [],
        "Instead of judging, fit a routing probe to two runs (RUN or RUN:JUDGE) on the same cases, the cheap judge's "
        "first. Use the probe with --together 'route(rule=OUTPUT)'.",
        group="Routing",
    )
    encoder: str = setting(
        "",
        "Frozen encoder (folder or Hub id) whose hidden states of the prompt are features of the probe, beside the "
        "metadata.",
        requires="fit_route",
        advanced=True,
    )
    fit_reward_model: str = setting(
        "",
        "Reward model whose margin is a feature of the probe; for an ensemble, the spread is another feature.",
        requires="fit_route",
        advanced=True,
    )
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.", group="Run")
    on_fault: Literal["stop", "abstain"] = setting("stop", "A request without a reply: stop (resumable), or abstain.")
    bootstrap_samples: int = setting(1000, "Number of bootstrap samples.", range=AT_LEAST_1)
    seed: int = setting(0, "Seed of sampling, bootstrap, random baseline and cross-validation.", range=SEED)
    report_to: str = report_to_setting()
    resume: bool = setting(False, "Continue a run that was cut off; stored replies are not requested again.")
    overwrite: bool = setting(False, "Replace the run folder.")

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the replies. A resumed run must have the same settings."""
        free = ("resume", "overwrite", "dry_run", "on_fault", "output", "report_to", "tokenizer", *READ_LATER)
        free = (*free, *declarations(DataHubSettings))
        return {name: value for name, value in vars(self).items() if name not in free}
