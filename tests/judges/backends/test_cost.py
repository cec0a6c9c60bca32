"""judges/backends/cost.py and judges/backends/scripted.py: what asking costs, and what it would."""

import pytest
from rewardlab.benchmarks.worlds import models
from rewardlab.judges.backends.chat import Ask, Reply, failed
from rewardlab.judges.backends.cost import FREE, LETTERS, Bill, Prices, counter, estimate, read_prices
from rewardlab.judges.backends.scripted import dry_run_chat, scripted
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import user_turn

PRICES = Prices(prompt=2.0, completion=8.0)


def test_a_reply_costs_its_tokens_also_where_there_is_no_text():
    assert PRICES.of(Reply("A", "stop", 1000, 500)) == pytest.approx(0.006)  # 1000 · 2e-6 + 500 · 8e-6
    assert PRICES.of(failed("no text", prompt_tokens=1000, completion_tokens=500)) == pytest.approx(0.006)


def test_a_bill_refuses_once_its_limit_is_reached():
    bill = Bill(PRICES, limit=0.01)
    bill.add(Reply("A", "stop", 1000, 500))
    assert bill.refusal == ""
    bill.add(Reply("A", "stop", 1000, 500))
    assert bill.refusal == "the limit of cost 0.01 is reached: 0.012 spent on 2 replies"
    assert (bill.prompt_tokens, bill.completion_tokens, bill.money) == (2000, 1000, pytest.approx(0.012))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prices(prompt=-1.0), "the price of a million prompt tokens is a number >= 0, got -1.0"),
        (lambda: Prices(completion=float("nan")), "completion tokens is a number >= 0, got nan"),
        (lambda: Bill(PRICES, limit=0.0), "a limit of cost is a number > 0, got 0.0"),
        (lambda: Bill(FREE, limit=1.0), "needs prices"),
    ],
)
def test_prices_and_limits_that_make_no_sense_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_prices_come_from_a_file(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text('["small"]\nprompt = 2\ncompletion = 8.0\n["odd"]\nprompt = "much"\n')
    assert read_prices(file, "small") == PRICES
    with pytest.raises(UsageError, match="no prices for 'smal'; did you mean 'small'"):
        read_prices(file, "smal")
    with pytest.raises(DataError, match="'odd' needs the numbers prompt and completion"):
        read_prices(file, "odd")
    with pytest.raises(DataError, match="no readable TOML file of prices"):
        read_prices(tmp_path / "absent.toml", "small")


def test_an_estimate_counts_every_ask_and_says_how():
    asks = [Ask(user_turn("x" * 400), max_tokens=50), Ask(user_turn("y" * 10), max_tokens=100)]
    found = estimate(asks, PRICES)
    assert found[:3] == (2, 103, 150)  # 400 / 4 + 10 / 4 rounded up
    assert found.least == pytest.approx(103 * 2e-6) and found.most == pytest.approx(103 * 2e-6 + 150 * 8e-6)
    assert str(found) == (
        "2 calls, about 103 prompt tokens (letters / 4) and at most 150 of replies: 0.000206 to 0.001406"
    )


def test_tokens_are_counted_with_a_tokenizer_where_there_is_one(tmp_path):
    models.tokenizer().save_pretrained(tmp_path)
    by = counter(str(tmp_path))
    assert estimate([Ask(user_turn("roses and bees"))], by=by).prompt_tokens == 3
    assert by.how == f"the tokenizer of {tmp_path}"
    absent = counter(str(tmp_path / "absent"))
    assert absent.count is LETTERS.count and absent.how.startswith("letters / 4, for ") and "absent" in absent.how
    assert counter() == LETTERS


def test_a_dry_run_asks_nobody_and_remembers_the_questions():
    chat = dry_run_chat()
    (reply,) = chat.ask([Ask(user_turn("which?"))])
    assert reply.error and not reply.text and PRICES.of(reply) == 0
    assert chat.asked == [Ask(user_turn("which?"))]


def test_scripted_replies_arrive_in_order_and_end_with_the_script():
    arrived = []
    chat = scripted(["A", failed("busy")])
    replies = chat.ask([Ask(user_turn("one")), Ask(user_turn("two"))], lambda *one: arrived.append(one))
    assert arrived == [*enumerate(replies)] and replies == [Reply("A", "stop", 1, 1), failed("busy")]
    with pytest.raises(UsageError, match="the script has 2 replies and was asked once more"):
        chat.ask([Ask(user_turn("three"))])


def test_a_script_may_be_a_function_of_the_ask():
    chat = scripted(lambda ask: ask.messages[0]["content"].upper(), name="shout")
    assert [reply.text for reply in chat.ask([Ask(user_turn("a")), Ask(user_turn("b"))])] == ["A", "B"]
    assert chat.name == "shout"
