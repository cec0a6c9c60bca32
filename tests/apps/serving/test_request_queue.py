"""The queue: bounded, in batches of like length, and left by those who gave up."""

import numpy as np
import pytest
from rewardlab.apps.serving.refusals import Refused
from rewardlab.apps.serving.request_queue import RequestQueue, outcomes, similar_lengths
from rewardlab.apps.serving.requests import Item
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import Example, user_turn

from tests.apps.serving.conftest import EXAMPLES
from tests.conftest import PATIENCE


def item(answer: str, cost: int = 10) -> Item:
    return Item(Example(user_turn("a"), answer), cost)


@pytest.fixture
def queue(gated):
    queue = RequestQueue(gated, batch_tokens=40, limit=100)
    yield queue
    gated.gate.set()
    queue.close()


def occupied(queue, gated) -> None:
    """The scoring thread has one item in hand."""
    queue.enter([item("first")])
    assert gated.busy.wait(PATIENCE)


def test_a_batch_holds_the_longest_waiting_and_those_nearest_in_length():
    assert similar_lengths([100, 4000, 90, 110, 260], 330) == [0, 2, 3]
    assert similar_lengths([100, 101, 102, 103], 250) == [0, 1], "two rows of 101 are 202 tokens, three of 102 are 306"
    assert similar_lengths([100, 49, 201], 10_000) == [0], "less than half or more than twice"
    assert similar_lengths([100, 50, 200], 10_000) == [0, 1, 2]
    assert similar_lengths([1, 30, 7], 10_000) == [0, 2, 1], "short ones are alike"
    assert similar_lengths([5000], 100) == [0], "one row may be longer than a batch"
    assert similar_lengths([], 100) == []
    assert 0 in similar_lengths([500, 10, 10, 10, 10], 20), "the first is in the next batch, whatever else waits"


def test_what_waits_is_scored_together(queue, gated):
    occupied(queue, gated)
    futures = [queue.enter([item("a"), item("bb")]), queue.enter([item("ccc"), item("dddd"), item("eeeee")])]
    assert queue.depth == 5 and queue.tokens == 50
    gated.gate.set()
    assert [future.result(PATIENCE)[:, 0].tolist() for future in futures] == [[1, 2], [3, 4, 5]]
    assert gated.batches == [["first"], ["a", "bb", "ccc", "dddd"], ["eeeee"]], "40 tokens are four items of ten"


def test_a_full_line_says_when_to_come_again_by_the_speed_that_is_measured(queue, gated):
    occupied(queue, gated)
    queue.enter([item("a", 60)])
    large = queue.enter([item("large", 90)])
    with pytest.raises(Refused) as refused:
        queue.enter([item("small", 1)])
    assert refused.value.status == 429 and refused.value.retry_after == 1.0, "nothing is measured yet"
    queue._speed = 50.0
    with pytest.raises(Refused, match="150 tokens wait already") as refused:
        queue.enter([item("small", 1)])
    assert refused.value.retry_after == pytest.approx(150 / 50), "150 tokens wait at 50 tokens a second"
    gated.gate.set()
    large.result(PATIENCE)
    assert queue._speed > 50 and queue.wait_seconds() == 0.0, "90 tokens took less than a second"


def test_those_who_gave_up_leave_room_and_a_closed_line_answers_who_still_waits(queue, gated):
    occupied(queue, gated)
    gone = queue.enter([item("gone", 100)])
    gone.cancel()
    kept = queue.enter([item("kept", 100)])
    gated.gate.set()
    assert kept.result(PATIENCE).tolist() == [[4.0]]
    assert [one for batch in gated.batches for one in batch] == ["first", "kept"]


def test_a_closed_line_answers_who_still_waits(queue, gated):
    occupied(queue, gated)
    waiting = queue.enter([item("a")])
    queue.close()
    with pytest.raises(Refused, match="stopping"):
        waiting.result(PATIENCE)
    with pytest.raises(Refused, match="stopping"):
        queue.enter([item("b")])


def test_a_bad_item_takes_no_other_along_and_one_that_the_model_refuses_is_the_senders_fault(queue, gated):
    gated.gate.set()
    good, bad = queue.enter([item("fine"), item("as well")]), queue.enter([item("ba\nd")])
    assert good.result(PATIENCE)[:, 0].tolist() == [4.0, 7.0]
    with pytest.raises(Refused) as refused:
        bad.result(PATIENCE)
    assert refused.value.status == 500
    assert refused.value.sentence == "conversation 0: the model failed with RuntimeError"

    class Picky:
        def rate(self, examples):
            if any(example.completion == "x" for example in examples):
                raise DataError("no x")
            return np.ones((len(examples), 1))

    found = outcomes(Picky(), [item("a"), item("x"), item("b")])
    assert [isinstance(one, DataError) for one in found] == [False, True, False]


def test_conversations_and_token_ids_of_one_batch_keep_their_places(model):
    rows = [encoded.ids for encoded in model.encoder.encode_all(EXAMPLES[:4])]
    mixed = [Item(rows[0], 1), Item(EXAMPLES[1], 1), Item(rows[2], 1), Item(EXAMPLES[3], 1)]
    assert np.stack(outcomes(model, mixed)) == pytest.approx(model.rate(EXAMPLES[:4]), abs=1e-6)
