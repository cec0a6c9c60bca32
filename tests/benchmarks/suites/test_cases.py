"""benchmarks/suites/pairs.py: rows with several answers, and pairs with the models that wrote them."""

import pytest
from rewardlab.benchmarks.suites.pairs import CaseFile, pairs
from rewardlab.judges.case_rows import parse_case
from rewardlab.rm.errors import DataError

from tests.apps.judging import write


def test_a_case_keeps_its_reference_and_cluster():
    row = {"prompt": "q", "answers": ["a", "b"], "best": [1], "reference": "good", "subset": "s"}
    found = parse_case(row)
    assert (found.reference, found.cluster, found.subset, found.best) == ("good", "q", "s", (1,))
    assert CaseFile().name == "pairs"


def test_authors_are_read_beside_the_answers_and_beside_a_pair(tmp_path):
    case = {"prompt": "q", "answers": ["a", "b", "c"], "best": 1, "authors": ["x", "y", "x"]}
    pair = {"prompt": "q", "chosen": "good", "rejected": "bad", "chosen_model": "x", "rejected_model": "z"}
    turned = pair | {"chosen": "worse", "id": "t", "wins": {"overall": 0.1}}
    half = {"prompt": "q", "chosen": "one", "rejected": "two", "chosen_model": "x"}
    cases, _ = CaseFile().cases([write(tmp_path / "cases.jsonl", [case, pair, turned, half])])
    assert [one.authors for one in cases] == [("x", "y", "x"), ("x", "z"), ("x", "z"), ()] and cases[2].best == (1,)


def test_a_repeated_id_is_refused_for_judges_as_for_reward_models(tmp_path):
    pair = {"id": 1, "prompt": "q", "chosen": "good", "rejected": "bad"}
    data = write(tmp_path / "pairs.jsonl", [pair, pair | {"prompt": "another"}])
    for suite in (CaseFile(), pairs()):
        with pytest.raises(DataError, match=r"pairs.jsonl:2: duplicate id: '1' is the id of line 1 too"):
            suite.cases([data])
