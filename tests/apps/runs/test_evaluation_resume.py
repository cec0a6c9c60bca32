"""Stored judgments of a scorer, and its progress where stderr is no terminal."""

from rewardlab.apps.runs.evaluation_resume import Progress, ResumableScorer
from rewardlab.apps.runs.processes import Process
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def test_stored_judgments_keep_their_scores_beside_what_was_cut_or_omitted(tmp_path):
    cases = [Case(str(index), user_turn("q"), ("a", "b"), (0,)) for index in range(4)]
    judgments = [
        Judgment("0", scores=(1.0, 2.0)),
        Judgment("1", scores=(3.0, 4.0), truncated=True),
        Judgment("2", abstained="no reply", omitted="a tool call"),
        Judgment("3", abstained="no reply"),
    ]
    calls = []

    class Scorer:
        name, role, contract = "rm", "model", ""

        def __call__(self, chunk):
            calls.append(len(chunk))
            return judgments

    for _ in range(2):
        assert ResumableScorer(Scorer(), tmp_path / "rm", Process(0, 1, ""))(cases) == judgments
    assert calls == [4]


def test_progress_is_logged_with_an_estimate_but_not_often_and_not_at_the_end(capsys):
    now = [0.0]
    progress = Progress("rm", 1000, clock=lambda: now[0])
    for second in (10, 20, 30, 100):
        now[0] = second
        progress.update(250)
    assert capsys.readouterr().err.splitlines() == ["rm: 500 of 1000 cases, about 00:20 remaining"]
