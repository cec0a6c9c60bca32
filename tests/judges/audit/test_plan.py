"""judges/audit/plan.py: names of authors."""

import pytest
from rewardlab.judges.audit.plan import Names, names_of
from rewardlab.judges.judge import Judging
from rewardlab.judges.types import Case
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn


def test_a_name_is_for_a_model_in_all_its_judges_or_for_one_judge():
    wrote = [("gpt", "llama"), ("llama", "qwen"), ("gpt", "llama")]
    cases = [Case(str(n), user_turn("q"), ("a", "b"), authors=by) for n, by in enumerate(wrote)]
    names = ("big pairwise", "big pointwise", "small pairwise", "panel")
    judges = [Judging(name, {}, lambda cases: []) for name in names]

    def named(*texts, other=""):
        return names_of(texts, judges, cases, other_author=other, short_names={"org/big": "big"})

    assert named() == {}
    assert named("org/big=gpt") == dict.fromkeys(["big pairwise", "big pointwise"], Names("gpt", "llama"))
    assert named("big pairwise=llama", "panel=qwen") == {
        "big pairwise": Names("llama", "gpt"), "panel": Names("qwen", "llama"),
    }  # fmt: skip
    assert named("small=gpt", other="claude") == {"small pairwise": Names("gpt", "claude")}
    with pytest.raises(UsageError, match="none of the answers is by 'gtp'; did you mean 'gpt'"):
        named("big=gtp")
