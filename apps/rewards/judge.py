"""A language model as a judge of completions, and as a labeller of pairs for online reward models."""

from typing import Any

from ...judges.judge import RubricSource
from ...judges.kinds.checklist import read_checklist
from ...judges.open import Materials
from ...judges.prompts import Sampling
from ...judges.rubrics.dropout import with_dropout
from ...judges.rubrics.files import open_levels, open_rubric, rubric_of_row, rubrics_by_prompt
from ...rm.data.pairs import column
from ...rm.errors import UsageError
from ...rm.registry.specs import typed_values
from ...rm.types import Labeller
from ..assembly.judge_reward import JudgeReward, OpenJudge, judge_labeller, open_reward_judge
from ._open import RunFacts

DATA = "data"
"""Value of the argument `rubric` that selects the rubric in each prompt's row."""


def judge(
    *, run: RunFacts | None, kind: str = "pointwise", reference: str = "", replies: str = "", **settings: Any
) -> JudgeReward:
    """Reward by a judge: a score of each completion, or a tournament of the completions of a prompt.

    `kind` is one of judges/kinds. The model is `endpoint=URL, model=NAME` or `local=FOLDER`. Further settings are those
    of `ChatConfig` (concurrency, prompt_price, max_cost ...), those of the judge's prompt (`rubric`, `score`, `levels`,
    `checklist`, `max_tokens`, `temperature`, as for `rewardlab judge`), or arguments of the kind. `rubric=data` selects
    the rubric in each prompt's row (column rubric, or HealthBench's rubrics). `dropout` leaves out this share of the
    rewarded criteria in each step (`judges/rubrics/dropout.py`). `reference` is a column with a reference
    answer for the judge. An abstention is a missing reward. With a folder `replies`, which several judges may share, a
    resumed run does not repeat requests; the cost of stored replies counts towards max_cost.
    """
    if reference and run is None:
        raise UsageError("reference names a column of a run's prompts, but there is no run; leave reference out")
    references = run.one_by_prompt(lambda row: str(column(row, reference))) if reference and run else {}
    replies = replies or (run.replies if run else "")
    settings = typed_values("judge", settings, open_judge_of_run)
    return JudgeReward(open_judge_of_run(run, kind, replies, **settings), references)


def labels(*, run: RunFacts | None = None, kind: str = "pairwise", replies: str = "", **settings: Any) -> Labeller:
    """Return a labeller that uses a judge. It returns P(first is better), or NaN for an abstention.

    The settings are those of `judge`. By default, a pairwise judge abstains if its verdicts in the two orders of the
    responses disagree; see `flip`.
    """
    settings = ({"flip": "abstain"} if kind == "pairwise" else {}) | settings
    settings = typed_values("judge", settings, open_judge_of_run)
    return judge_labeller(open_judge_of_run(run, kind, replies, **settings).judge)


def open_judge_of_run(
    run: RunFacts | None,
    kind: str,
    replies: str,
    *,
    rubric: str | RubricSource = "",
    dropout: float = 0.0,
    score: str = "gated",
    levels: str = "",
    checklist: str = "",
    max_tokens: int = 1024,
    temperature: float = 0.0,
    **settings: Any,
) -> OpenJudge:
    """Open the judge of a reward; `rubric` is a file, `data`, or a source of rubrics."""
    criteria: Any = _rubrics(run) if rubric == DATA else rubric or None
    criteria = open_rubric(criteria) if isinstance(criteria, str) else criteria
    if dropout and criteria is None:
        raise UsageError("dropout leaves out criteria of a rubric; give rubric=FILE or rubric=data")
    materials = Materials(
        rubric=with_dropout(criteria, dropout, seed=run.seed if run else 0) if dropout and criteria else criteria,
        score=score,
        levels=open_levels(str(levels)) if levels else None,
        questions=read_checklist(str(checklist)) if checklist else (),
        sampling=Sampling(max_tokens, temperature, run.seed if run else 0),
    )
    return open_reward_judge(kind, materials, replies, {**(run.loading if run else {}), **settings})


def _rubrics(run: RunFacts | None) -> RubricSource:
    if run is None:
        raise UsageError("rubric=data reads the prompts of a run, but there is no run; name a file")
    return rubrics_by_prompt(run.one_by_prompt(rubric_of_row))
