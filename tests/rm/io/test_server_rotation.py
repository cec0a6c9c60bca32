import pytest
from hypothesis import given
from hypothesis import strategies as st
from rewardlab.rm.errors import UsageError
from rewardlab.rm.io.server_rotation import Rotation, addresses, check_address


def test_servers_take_turns_but_for_one_that_asks_to_be_left_alone():
    turns = Rotation(3)
    assert [turns.choose(0.0) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0] and turns.wait(0.0) == 0.0
    turns = Rotation(2, first=1.0)
    turns.failed(0, 0.0, pause=30.0, since=0.0)
    assert [turns.choose(now) for now in (0.0, 29.9, 30.0)] == [1, 1, 0]


def test_rests_double_up_to_the_longest_and_failures_together_count_once():
    turns, now, seen = Rotation(2, first=1.0, longest=5.0), 10.0, []
    for _ in range(5):
        turns.failed(0, now, since=now)
        seen.append(turns.states[0].until - now)
        now = turns.states[0].until
    assert seen == [1.0, 2.0, 4.0, 5.0, 5.0]
    turns.succeeded(0)
    turns.failed(0, now, since=now)
    assert turns.states[0].until == now + 1.0, "after a success it begins anew"
    # Four were sent at 0 s and lost at 3 s; the one that was sent at 4 s is the second failure
    turns = Rotation(2, first=1.0)
    for _ in range(4):
        turns.failed(0, 3.0, since=0.0)
    assert turns.states[0].until == 4.0
    turns.failed(0, 4.5, since=4.0)
    assert turns.states[0].until == 6.5


def test_those_that_rest_least_and_were_not_tried_are_chosen():
    turns = Rotation(3, first=2.0)
    for place, now in enumerate((0.0, 0.5, 0.25)):
        turns.failed(place, now, since=now)
    turns.failed(0, 2.0, since=2.0)  # until 6 s
    assert turns.available(2.1) == [] and turns.choose(2.1) == 2 and turns.wait(2.0) == 0.25
    turns = Rotation(3, first=1.0)
    turns.failed(2, 0.0, since=0.0)
    assert (
        turns.available(0.0, but=[0]) == [1]
        and turns.choose(0.0, but=[0]) == 1
        and turns.available(0.0, but=[0, 1]) == []
    )
    assert turns.choose(0.0, but=[0, 1]) == 2, "one that rests before one that was tried"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_whoever_is_up_is_asked_within_one_round(events):
    turns, now = Rotation(4, first=0.5, longest=8.0), 0.0
    for place, good in events:
        now += 0.25
        turns.succeeded(place) if good else turns.failed(place, now, since=now)
        up = turns.available(now)
        assert sorted(turns.choose(now) for _ in up) == sorted(up)
        assert all(rest.until <= now + 8.0 for rest in turns.states)


def test_addresses_stand_alone_or_in_a_list():
    for text, found in [
        ("http://a:1", ("http://a:1",)),
        ("http://a:1 http://b:2", ("http://a:1", "http://b:2")),
        ("['http://a:1', 'http://b:2']", ("http://a:1", "http://b:2")),
        (["http://[::1]:1/v1"], ("http://[::1]:1/v1",)),
        ("http://[::1]:1", ("http://[::1]:1",)),
    ]:
        assert addresses(text) == found


def test_what_is_no_address_is_told_and_a_secret_is_not_repeated():
    for text in ["", "a:1", "ftp://a", "http://", "http://[", "http://a:99999"]:
        with pytest.raises(UsageError, match="--servers must be an address such as http://127.0.0.1:8000, got"):
            check_address(text, "--servers")
    with pytest.raises(UsageError, match="variable KEY instead") as error:
        check_address("http://me:pass@host", key="KEY")
    assert "pass@" not in str(error.value)
    with pytest.raises(UsageError, match="no server is set"):
        Rotation(0)
    with pytest.raises(UsageError, match="--servers names http://a twice"):
        addresses(["http://a", "http://b", "http://a"], "--servers")
