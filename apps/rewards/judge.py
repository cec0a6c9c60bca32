"""A language model as a judge of the policy's answers, and as the one who labels pairs for a reward that learns."""

from typing import Any

from ...judges.wording import Sampling
from ...rm.types import Labeller
from ..judge_kinds import Materials
from ..judge_rewards import JudgeReward, by_judge, open_one
from ..rubric_files import open_rubric, read_checklist
from ..run_facts import RunFacts


def judge(
    *,
    run: RunFacts,
    kind: str = "pointwise",
    rubric: str = "",
    score: str = "gated",
    checklist: str = "",
    max_tokens: int = 1024,
    temperature: float = 0.0,
    replies: str = "",
    **settings: Any,
) -> JudgeReward:
    """A kind of judges/kinds as a reward: a score of each answer alone, or a tournament within the answers to a prompt.

    The model is `endpoint=URL, model=NAME` or `local=FOLDER`; further settings are those of `ChatConfig`
    (concurrency, prompt_price, max_cost ...) or arguments of the kind. An abstention is a missing reward. With a folder
    `replies` a run that goes on asks nothing twice.
    """
    given = _materials(rubric, score, checklist, max_tokens, temperature, run.seed)
    return JudgeReward(open_one(kind, given, replies, {**run.loading, **settings}))


def labels(
    *,
    run: RunFacts | None = None,
    kind: str = "pairwise",
    rubric: str = "",
    score: str = "gated",
    checklist: str = "",
    max_tokens: int = 1024,
    temperature: float = 0.0,
    replies: str = "",
    **settings: Any,
) -> Labeller:
    """P(first better) of two answers by a judge, NaN where it abstains; the settings are those of `judge`.

    A pairwise judge whose two orders disagree abstains, unless `flip` says otherwise.
    """
    flip = {"flip": "abstain"} if kind == "pairwise" else {}
    given = _materials(rubric, score, checklist, max_tokens, temperature, run.seed if run else 0)
    return by_judge(open_one(kind, given, replies, {**(run.loading if run else {}), **flip, **settings}).judge)


def _materials(rubric: str, score: str, checklist: str, max_tokens: int, temperature: float, seed: int) -> Materials:
    return Materials(
        open_rubric(rubric) if rubric else None,
        score,
        read_checklist(checklist) if checklist else (),
        Sampling(max_tokens, temperature, seed),
    )
