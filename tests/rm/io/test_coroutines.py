import asyncio

import pytest
from rewardlab.rm.io.coroutines import gather_all, resolve


def test_coroutines_run_concurrently_and_their_results_are_in_order():
    arrived = asyncio.Event()

    async def waits():
        await arrived.wait()  # would never end if the next one did not run beside it
        return 1

    async def sets():
        arrived.set()
        return 2

    assert gather_all([waits(), sets()]) == [1, 2]


def test_an_error_stands_in_place_of_its_result_or_is_raised():
    async def fails():
        raise TimeoutError("no answer")

    async def succeeds():
        return 3

    error, result = gather_all([fails(), succeeds()])
    assert isinstance(error, TimeoutError) and result == 3
    with pytest.raises(TimeoutError, match="no answer"):
        resolve(fails())


def test_a_value_is_returned_and_a_coroutine_awaited_also_within_a_running_loop():
    async def result():
        return 4

    async def in_a_notebook():
        return resolve(result())

    assert resolve(4) == resolve(result()) == asyncio.run(in_a_notebook()) == 4
