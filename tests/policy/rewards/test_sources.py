import asyncio
import math

import numpy as np
import pytest
import torch
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step.metrics import correlation, statistics
from rewardlab.policy.types import Rewards
from rewardlab.rm.contract.readings import Rated, Reading
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import CheckFailed, DataError, UsageError
from rewardlab.rm.types import Example, user_turn

NAN = math.nan
EXAMPLES = [Example(user_turn("why?"), answer) for answer in ("because", "", "it is so")]


def lengths(examples):
    return [len(example.completion) for example in examples]


class TwoHeads:
    """Words and letters."""

    contract = ScoringContract(kind="linear", objectives=("words", "letters"))

    def rate(self, examples):
        return np.array([[len(one.completion.split()), len(one.completion)] for one in examples], dtype=float)


class Members(TwoHeads):
    contract = ScoringContract(kind="ensemble", objectives=("overall",))

    def rate(self, examples):
        return self.spread(examples).mean(0)

    def spread(self, examples):
        return np.stack([np.array([[float(len(one.completion))] for one in examples]) + shift for shift in (-1, 1)])


def test_models_functions_and_ensembles_stand_side_by_side():
    rewards, faults = RewardSources({"heads": TwoHeads(), "length": lengths})(EXAMPLES)
    assert rewards.names == ("heads.words", "heads.letters", "length") and faults == []
    assert rewards.values.tolist() == [[1, 7, 7], [0, 0, 0], [3, 8, 8]] and rewards.members is None
    sources = RewardSources({"length": lengths, "rm": Members()})
    rewards, _ = sources(EXAMPLES)
    assert sources.ensembles == ["rm"] and rewards["rm"].tolist() == [7, 0, 8]
    assert rewards.members[0, 1].tolist() == [6, 8] and rewards.members[:, 0].isnan().all()


LENGTHS = [7.0, 0.0, 8.0]
RETURNED = {
    "a tensor of a column": torch.tensor(LENGTHS, dtype=torch.bfloat16, requires_grad=True)[:, None],
    "a list of scalar tensors": [torch.tensor(value) for value in LENGTHS],
    "an array of integers": np.array([7, 0, 8]),
    "numbers of NumPy": [np.float32(7), np.bool_(False), np.int64(8)],
    "a generator": (value for value in LENGTHS),
}


def test_rewards_are_read_from_every_form_of_numbers_and_none_and_nan_are_missing():
    for form, returned in RETURNED.items():
        rewards, faults = RewardSources({"x": lambda examples, values=returned: values})(EXAMPLES)
        assert rewards["x"].tolist() == LENGTHS and faults == [], form
    for returned in ([1.0, None, NAN], torch.tensor([1.0, NAN, NAN])):
        rewards, faults = RewardSources({"some": lambda examples, values=returned: values})(EXAMPLES)
        assert rewards["some"].isnan().tolist() == [False, True, True] and faults == []


def test_coroutine_functions_are_awaited_beside_each_other_and_beside_functions():
    arrived = asyncio.Event()

    async def waits(examples):
        await arrived.wait()  # would never end if the rewards were awaited in turn
        return lengths(examples)

    async def sets(examples):
        arrived.set()
        return torch.tensor([1.0, NAN, 2.0])

    rewards, faults = RewardSources({"slow": waits, "length": lengths, "fast": sets})(EXAMPLES)
    assert rewards.names == ("slow", "length", "fast") and faults == []
    assert rewards["slow"].tolist() == rewards["length"].tolist() == LENGTHS
    assert rewards["fast"].isnan().tolist() == [False, True, False]


def test_a_coroutine_that_fails_is_a_fault_and_a_failed_check_ends_the_run():
    async def fails(examples):
        raise TimeoutError("sandbox timed out")

    async def check_failed(examples):
        raise CheckFailed("another contract")

    _, faults = RewardSources({"x": fails, "length": lengths}, skip=True)(EXAMPLES)
    assert [str(fault) for fault in faults] == ["reward 'x' raised TimeoutError: sandbox timed out"]
    with pytest.raises(CheckFailed, match="another contract"):
        RewardSources({"x": check_failed}, skip=True)(EXAMPLES)


class Failing(Members):
    """An ensemble that fails as a whole, or whose members do."""

    def __init__(self, fails: str):
        self.fails = fails

    def rate(self, examples):
        if self.fails == "rate":
            raise RuntimeError("no server")
        return np.array([[math.inf if self.fails == "inf" and not one.completion else 1.0] for one in examples])

    def spread(self, examples):
        if self.fails in ("rate", "spread"):
            raise RuntimeError("no server")
        return super().spread(examples)[:, : 2 if self.fails == "shape" else None]


FAILS = {
    "rate": "raised RuntimeError: no server",
    "spread": "raised RuntimeError: no server",
    "shape": "returned member scores of shape (2, 2, 1) for 3 completions",
}


def test_an_ensemble_that_fails_is_one_fault_and_its_answers_are_missing():
    for fails, reason in FAILS.items():
        rewards, faults = RewardSources({"rm": Failing(fails), "length": lengths}, skip=True)(EXAMPLES)
        assert [str(fault) for fault in faults] == [f"reward 'rm' {reason}"]
        assert rewards["rm"].isnan().all() and rewards["length"].tolist() == [7, 0, 8]
        assert rewards.members.isnan().all() and len(rewards.members) == 3
        with pytest.raises(DataError, match="reward 'rm'"):
            RewardSources({"rm": Failing(fails)})(EXAMPLES)
    rewards, faults = RewardSources({"rm": Failing("inf")}, skip=True)(EXAMPLES)
    assert [fault.row for fault in faults] == [1]
    assert rewards.members[:, 0].isnan().any(1).tolist() == [False, True, False]


FAULTS = {
    "raises": (lambda examples: 1 / 0, r"reward 'x' raised ZeroDivisionError: division by zero; fix"),
    "counts": (lambda examples: [1.0, 2.0], r"reward 'x' returned 2 values for 3 completions; fix"),
    "text": (
        lambda examples: [1.0, "good", 2.0],
        r"reward 'x' is 'good', which is no number, for completion 1, ''; fix",
    ),
    "inf": (
        lambda examples: [math.inf, 1.0, -math.inf],
        r"reward 'x' is inf for completion 0, 'because' \(and 1 more\); fix",
    ),
    "scalar": (lambda examples: 1.0, "raised TypeError"),
    "mapping": (lambda examples: {1: "a", 2: "b", 3: "c"}, "returned a dict; return a list with one value per"),
    "set": (lambda examples: {1.0, 2.0, 3.0}, "returned a set; return a list"),
    "digits": (lambda examples: "123", "returned a str; return a list"),
    "wide": (
        lambda examples: np.array([[1.0, 2.0]] * 3),
        r"reward 'x' returned a row of length 2 instead of 1 for completion 0, 'because' \(and 2 more\); fix",
    ),
}


def test_a_fault_is_told_with_its_place():
    for source, told in FAULTS.values():
        with pytest.raises(DataError, match=told):
            RewardSources({"x": source})(EXAMPLES)
    with pytest.raises(UsageError, match="no reward is set"):
        RewardSources({})


def test_skipped_faults_are_missing_rewards_and_kept_to_be_saved():
    for kind, kept in {"raises": 0, "counts": 0, "text": 2, "inf": 1, "scalar": 0}.items():
        rewards, faults = RewardSources({"x": FAULTS[kind][0], "length": lengths}, skip=True)(EXAMPLES)
        assert (~rewards["x"].isnan()).sum() == kept and rewards["length"].tolist() == [7, 0, 8], kind
        assert len(faults) == (1 if kept == 0 else 3 - kept), kind
        assert all(fault.example is None or fault.example == EXAMPLES[fault.row] for fault in faults), kind


def test_a_row_that_is_none_no_row_or_of_the_wrong_width_is_a_missing_reward():
    class Narrow(TwoHeads):
        def rate(self, examples):
            return np.array([[1.0]] * 3)

    class Listing(TwoHeads):
        def rate(self, examples):
            return [None, np.array([1.0, 2.0]), [3.0, 4.0]]

    sources = {"heads": Narrow(), "wide": FAULTS["wide"][0], "length": lengths}
    rewards, faults = RewardSources(sources, skip=True)(EXAMPLES)
    assert rewards.values[:, :3].isnan().all() and rewards["length"].tolist() == [7, 0, 8] and len(faults) == 6
    assert str(faults[0]) == "reward 'heads' returned a row of length 1 instead of 2 for completion 0, 'because'"
    rewards, faults = RewardSources({"heads": Listing()}, skip=True)(EXAMPLES)
    assert rewards.values[1].tolist() == [1.0, 2.0] and rewards.values[[0, 2]].isnan().all()
    no_number = f"reward 'heads' is [3.0, 4.0], which is no number, for completion 2, {EXAMPLES[2].completion!r}"
    assert [str(fault) for fault in faults] == [no_number]


def test_statistics_worked_out_by_hand():
    values = torch.tensor([[1.0, 2.0], [3.0, NAN], [5.0, 4.0], [5.0, 6.0]])
    found = dict(statistics(Rewards(values, ("a", "b")), torch.tensor([0, 0, 1, 1])))
    assert found["rewards/a/mean"] == 3.5 and found["rewards/a/std"] == pytest.approx(math.sqrt(11 / 3))
    assert found["rewards/a/missing"] == 0 and found["rewards/b/missing"] == 1
    assert found["rewards/a/frac_zero_std"] == 0.5  # the second group says 5 twice
    assert found["rewards/b/frac_zero_std"] == 0  # of the first group one row is left, which is no group
    # over (1, 2), (5, 4), (5, 6): deviations (-8/3, 4/3, 4/3) and (-2, 0, 2)
    assert found["rewards/correlation/a/b"] == pytest.approx(8 / math.sqrt((96 / 9) * 8))
    assert math.isnan(correlation(torch.tensor([1.0, NAN]), torch.tensor([1.0, 2.0])))
    assert math.isnan(correlation(torch.ones(3), torch.tensor([1.0, 2.0, 3.0])))


class Cut(TwoHeads):
    """A model that reads four letters, as it reports."""

    def rated(self, examples):
        return Rated(self.rate(examples), [Reading(len(example.completion) > 4) for example in examples])


def test_completions_that_a_model_reads_cut_are_counted_and_warned_of_once():
    sources = RewardSources({"heads": Cut(), "length": lengths})
    with pytest.warns(UserWarning, match="reward 'heads': 67% of the rated completions .* were truncated") as warned:
        sources(EXAMPLES)
        sources(EXAMPLES)
    assert sources.facts() == {"heads/truncated": pytest.approx(2 / 3)} and len(warned) == 1
    sources(EXAMPLES[1:2])
    assert sources.facts() == {}
