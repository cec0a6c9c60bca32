"""Paired comparison of two scorers: areas, their p-values, and what the verdict follows from."""

import json
import math

from rewardlab.apps.runs.run_folder import plain
from rewardlab.benchmarks.compare import Comparison, compare, markdown
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def compared(wrong: dict[str, int], silent: str = "", size: int = 30, samples: int = 1000) -> Comparison:
    """Compare a scorer that is right everywhere with one that has `wrong` cases in each subset, or abstains."""
    names = [(subset, i) for subset in wrong for i in range(size)]
    cases = [Case(f"{s}/{i}", user_turn(f"{s} {i}"), ("good", "bad"), (0,), s, f"{s} {i}") for s, i in names]
    before = [Judgment(case.id, scores=(1.0, 0.0)) for case in cases]
    after = [
        Judgment(case.id, abstained="too long")
        if subset == silent
        else Judgment(case.id, scores=(0.0, 1.0) if i < wrong[subset] else (1.0, 0.0))
        for case, (subset, i) in zip(cases, names, strict=True)
    ]
    return compare(pairs(), cases, ("before", before), ("after", after), samples=samples)


def test_a_subset_without_a_common_case_has_no_p_and_does_not_count_for_the_adjustment():
    # 12 of 30 lost: hardly any of 1000 samples is without a loss, so p is 2/1001 among the subsets that are compared
    found = compared({"a": 12, "b": 0, "c": 0}, silent="c")
    silent = found.subsets["c"]
    assert all(map(math.isnan, (silent.first, silent.second, silent.p, *silent.difference, *silent.adjusted)))
    assert not silent.significant and found.subsets["a"].significant
    assert found.subsets["a"].p == 2 * 2 / 1001 and found.subsets["b"].p == 1
    assert "| c | – | – | – | – |" in markdown(found) and "nan" not in markdown(found)
    assert plain(silent.__dict__)["p"] is None and json.dumps(plain(silent.__dict__), allow_nan=False)
