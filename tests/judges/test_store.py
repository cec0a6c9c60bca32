"""judges/store.py: what was answered once is not asked again, whatever happened in between."""

import json
import os
import signal
import subprocess
import time

import pytest
from rewardlab.judges.backends.chat import Ask, Reply, failed_reply
from rewardlab.judges.backends.cost import Prices
from rewardlab.judges.backends.openai_endpoint import Endpoint
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.run import REPLIES, stored_replies
from rewardlab.judges.store import FILE, Store, StoredReplies, keys, read_replies
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import user_turn
from rewardlab.tests.stand_ins.chat_server import FAULTS, ChatServer, identity

from tests.conftest import PATIENCE

SIZES = [100, pytest.param(2000, marks=pytest.mark.long)]
QUICK = {"concurrency": 64, "first_wait": 0.01, "timeout": 60.0, "retries": 12}


def asks(number, **options):
    return [Ask(user_turn(f"Case {place}: which answer is better?"), **options) for place in range(number)]


def echo(ask):
    return f"on {ask.messages[0]['content']}"


def lines(folder):
    return (folder / FILE).read_text().splitlines()


def test_what_was_answered_is_not_asked_again_but_errors_and_further_samples_are(tmp_path):
    chat, arrived = scripted(echo), []
    with Store(tmp_path) as store:
        first = StoredReplies(chat, store).ask(asks(3))
    with Store(tmp_path) as store:
        again = StoredReplies(chat, store).ask(asks(5), lambda place, reply: arrived.append(place))
    assert again[:3] == first and again[4].text == "on Case 4: which answer is better?"
    assert len(chat.asked) == 5 and arrived == [0, 1, 2, 3, 4]
    chat = StoredReplies(scripted([failed_reply("busy"), "A"]), tmp_path / "errors")
    assert chat.ask(asks(1))[0].error == "busy"
    assert chat.ask(asks(1))[0].text == "A" and len(lines(tmp_path / "errors")) == 1
    chat = scripted(["first", "second", "third"])
    kept = StoredReplies(chat, tmp_path / "samples")
    assert [reply.text for reply in kept.ask(asks(1) * 2)] == ["first", "second"]
    assert [reply.text for reply in kept.ask(asks(1) * 3)] == ["first", "second", "third"]


def test_everything_that_is_asked_and_the_chats_name_are_part_of_the_key(tmp_path):
    (one,) = asks(1)
    others = {"temperature": 0.5, "seed": 1, "max_tokens": 5, "schema": {"type": "object"}, "messages": ()}
    for name, value in others.items():
        assert keys("judge", [one]) != keys("judge", [one._replace(**{name: value})]), name
    with Store(tmp_path) as store:
        for name in ("one", "two"):
            assert StoredReplies(scripted([name], name=name), store).ask([one])[0].text == name
        assert len(store.replies) == 2


def test_what_a_reply_without_text_has_cost_is_counted_once_in_each_process_and_it_is_asked_again(tmp_path):
    prices, paid = Prices(prompt=1.0), failed_reply("no text", requests=1, prompt_tokens=2_000_000)
    chat = scripted([paid, failed_reply("busy"), paid, Reply("A", "stop", prompt_tokens=3_000_000)])
    with Store(tmp_path) as store:
        assert StoredReplies(chat, store, prices=prices).ask(asks(2))[0].error == "no text" and store.spent == 2.0
    with Store(tmp_path) as store:
        assert store.spent == 2.0 and not store.replies
        kept = StoredReplies(chat, store, prices=prices)
        assert [kept.ask(asks(1))[0].text for _ in range(2)] == ["", "A"]
    replies, unanswered, spent = read_replies(tmp_path / FILE)
    assert [reply.text for reply in replies.values()] == ["A"] and (spent, len(lines(tmp_path))) == (7.0, 3)
    assert replies[keys("scripted", asks(1))[0]][2:4] == (7_000_000, 0) and not unanswered
    with Store(tmp_path) as store:
        (again,) = StoredReplies(chat, store, prices=prices).ask(asks(1))
    assert (again.text, again.prompt_tokens, again.requests) == ("A", 7_000_000, 3)
    # Without prices too. Two empty replies of a run that was cut off are counted with the third request, and no
    # more when a second judge makes the same request.
    other = tmp_path / "other"
    empty = failed_reply("no text", requests=1, prompt_tokens=5)
    with Store(other) as store:
        assert StoredReplies(scripted([empty, empty]), store).ask(asks(1) * 2)[1].requests == 1
    with Store(other) as store:
        kept = StoredReplies(scripted([empty, Reply("A", "stop", 5, 1)]), store)
        assert [kept.ask(asks(1))[0].requests for _ in range(3)] == [2, 1, 1]
    assert [reply.requests for reply in read_replies(other / FILE).replies.values()] == [3]


def test_a_run_without_a_reply_keeps_what_was_billed_even_where_no_price_is_known(tmp_path):
    paid, free = failed_reply("no text", requests=1, prompt_tokens=5), failed_reply("busy")
    for name, reply, kept in (("paid", paid, True), ("free", free, False)):
        with stored_replies({"m": scripted([reply])}, {"m": None}, tmp_path / name, "abstain") as chats:
            chats["m"].ask(asks(1))
        assert (tmp_path / name / REPLIES).exists() == kept
    assert [*read_replies(tmp_path / "paid" / REPLIES / FILE).unanswered.values()] == [[paid]]


def test_replies_of_a_store_without_request_counts_are_one_request_each(tmp_path):
    StoredReplies(scripted(echo), tmp_path).ask(asks(1))
    values = json.loads(lines(tmp_path)[0])
    for name in ("reasoning", "requests", "estimated"):
        del values[name]
    (tmp_path / FILE).write_text(json.dumps(values) + "\n")
    (reply,) = read_replies(tmp_path / FILE).replies.values()
    assert (reply.requests, reply.estimated, reply.reasoning) == (1, 0, "")


def test_a_line_that_was_being_written_is_dropped_and_told_and_a_damaged_one_named(tmp_path):
    with Store(tmp_path) as store:
        StoredReplies(scripted(echo), store).ask(asks(3))
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-20])
    chat = scripted(echo)
    with pytest.warns(UserWarning, match=r"replies.jsonl: the last line was cut off \(\d+ bytes\) and is dropped"):
        store = Store(tmp_path)
    StoredReplies(chat, store).ask(asks(3))
    assert chat.asked == asks(3)[2:] and (tmp_path / FILE).read_bytes() == whole
    tmp_path = tmp_path / "damaged"
    StoredReplies(scripted(echo), tmp_path).ask(asks(2))
    whole = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(whole * 2)
    with pytest.raises(DataError, match="line 3: the reply '.*' occurs twice"):
        Store(tmp_path)
    for line in ("{", "{}", '{"key": "k", "text": "A"}', "[]", "\x00\x00", '{"key": 1, "text": 2}'):
        (tmp_path / FILE).write_text(f"{whole}{line}\n")
        for _ in range(2):  # the folder is let go
            with pytest.raises(DataError, match=r"replies.jsonl line 3: not a stored reply .*; delete the line"):
                Store(tmp_path)


def test_a_line_that_cannot_be_written_through_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    kept = StoredReplies(scripted(echo), tmp_path)
    kept.ask(asks(1))

    def full(_):
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            kept.ask(asks(2))
    assert len(lines(tmp_path)) == 1
    kept.ask(asks(2))
    assert len(read_replies(tmp_path / FILE)[0]) == 2


HOLD = """
from rewardlab.judges.store import Store
store = Store(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

JUDGE = """
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.openai_endpoint import Endpoint
from rewardlab.judges.store import StoredReplies
from rewardlab.rm.types import user_turn
url, folder, number = sys.argv[1:]
asks = [Ask(user_turn(f"Case {place}: which answer is better?")) for place in range(int(number))]
chat = Endpoint("judge", url, concurrency=64, first_wait=0.01, timeout=60.0, retries=12)
StoredReplies(chat, folder).ask(asks)
"""


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path, script):
    first = subprocess.Popen(script(HOLD, tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert first.stdout is not None and first.stdout.readline() == b"held\n"
    with pytest.raises(UsageError, match=f"process {first.pid} writes replies there; wait until it has ended"):
        Store(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with Store(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("number", SIZES)
def test_against_a_misbehaving_server_nothing_is_lost_and_nothing_is_kept_twice(tmp_path, number):
    with ChatServer(faults=0.25, kinds=FAULTS, hang=0.5, latency=0.01) as server:
        kept = StoredReplies(Endpoint("judge", server.url, **QUICK), tmp_path)
        replies = kept.ask(asks(number))
        assert not [reply.error for reply in replies if reply.error]
        assert {*server.faulty} == {*FAULTS} and server.most_in_flight in range(2, 65)
        asked = server.asked.total()
        assert kept.ask(asks(number)) == replies and server.asked.total() == asked
    named = [json.loads(line)["key"] for line in lines(tmp_path)]
    assert sorted(named) == sorted(keys(kept.name, asks(number))) and len({*named}) == number


@pytest.mark.parametrize("number", [pytest.param(200, marks=pytest.mark.slow), *SIZES[1:]])
def test_after_kill_9_no_committed_reply_is_asked_for_again(tmp_path, script, number):
    kinds = ("busy", "failing", "reset", "half", "garbled")
    with ChatServer(faults=0.2, kinds=kinds, latency=0.02) as server:
        running = subprocess.Popen(script(JUDGE, server.url, tmp_path, number))
        _until(lambda: (tmp_path / FILE).exists() and len(lines(tmp_path)) >= number // 3)
        running.kill()
        running.wait()
        time.sleep(0.2)  # what the dead process had sent has arrived by then
        _until(lambda: server.in_flight == 0)
        before = dict(server.asked)
        committed = (tmp_path / FILE).read_text().rpartition("\n")[0].splitlines()
        assert number // 3 <= len(committed) < number

        kept = StoredReplies(Endpoint("judge", server.url, **QUICK), tmp_path)
        stored = zip(keys(kept.name, asks(number)), asks(number), strict=True)
        safe = {identity(ask._asdict()) for key, ask in stored if key in kept.store.replies}
        replies = kept.ask(asks(number))
        again = {name for name, attempts in before.items() if server.asked[name] > attempts}
    assert len(safe) == len(committed) and not again & safe
    assert len(again) <= 64 and not any(reply.error for reply in replies)
    assert len(read_replies(tmp_path / FILE)[0]) == number


def _until(holds, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)
