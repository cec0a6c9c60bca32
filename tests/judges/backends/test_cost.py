"""judges/backends/cost.py and judges/backends/scripted.py: what asking costs, and what it would."""

import pytest
from rewardlab.benchmarks.garden import models
from rewardlab.judges.backends.chat import Ask, Reply, failed_reply
from rewardlab.judges.backends.cost import (
    FREE,
    LETTERS,
    Bill,
    Budget,
    Prices,
    counter,
    estimate,
    most_completion_tokens,
    most_prompt_tokens,
    most_tokens,
    read_prices,
)
from rewardlab.judges.backends.scripted import dry_run_chat, scripted
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import user_turn

PRICES = Prices(prompt=2.0, completion=8.0)


def test_a_bill_counts_requests_and_tokens_and_a_limit_below_a_single_request_is_told_before_the_first():
    assert PRICES.of(Reply("A", "stop", 1000, 500)) == pytest.approx(0.006)  # 1000 · 2e-6 + 500 · 8e-6
    assert PRICES.of(failed_reply("no text", prompt_tokens=1000, completion_tokens=500)) == pytest.approx(0.006)
    budget = Budget(limit=0.02)
    first, second = Bill(PRICES, budget), Bill(Prices(completion=4.0), budget)
    first.add(Reply("A", "stop", 1000, 500, requests=2))
    second.add(failed_reply("no text", requests=1, prompt_tokens=1000, completion_tokens=1000))
    assert (first.requests, first.prompt_tokens, first.completion_tokens) == (2, 1000, 500)
    assert budget.spent == pytest.approx(0.006 + 0.004)
    ask = Ask(user_turn("A" * 872), max_tokens=100)
    refusal = "--max_cost 0.002 is too low: a single request may cost up to 0.0028 "
    with pytest.raises(UsageError, match=f"{refusal}.at most 1,000 tokens of the prompt"):
        Bill(PRICES, Budget(0.002)).check([ask, ask._replace(max_tokens=200)])
    Bill(PRICES, Budget(0.002, spent=0.001)).check([ask])  # a run that goes on stops with what it has
    Bill(PRICES, Budget(0.003)).check([ask._replace(max_tokens=2000), ask])


def test_a_budget_holds_what_requests_in_flight_cost_which_is_at_most_the_bytes_of_their_texts_and_max_tokens():
    """Of a limit of 10, 4 are spent and 3 reserved: another 3 are allowed, and no more until something is released."""
    budget = Budget(10.0, spent=4.0)
    assert budget.reserve(3.0) and not budget.reserve(3.5) and budget.reserve(3.0) and not budget.reserve(0.1)
    budget.release(3.0)
    budget.spend(1.0)
    assert budget.holds(2.0) and not budget.holds(2.5) and Budget().reserve(1e9)
    assert all(Budget(0.3, spent=0.1 + 0.1).reserve(cost) for cost in (0.1, 0.1 + 1e-17))  # rounding is no overrun
    # `Grün?` has 6 bytes, and a template adds at most 64 tokens to a message and 64 to the conversation.
    ask = Ask(user_turn("Grün?"), max_tokens=100)
    assert most_prompt_tokens(ask) == 6 + 2 * 64
    assert Bill(PRICES).most(ask) == pytest.approx((134 * 2.0 + 100 * 8.0) / 1e6)
    assert most_prompt_tokens(ask._replace(schema={"a": 1})) == 6 + len('{"a": 1}') + 2 * 64
    assert most_completion_tokens(ask, "Grün", "stop") == 5 + 1
    for reply in (("", "stop"), ("A", "length"), ("A" * 200, "stop")):
        assert most_completion_tokens(ask, *reply) == 100, reply
    tokenizer = models.tokenizer()
    for text in ("roses and bees", "Grün", "薔薇", "🌹"):
        assert len(tokenizer(text).input_ids) <= most_tokens(text) + 2  # BOS and EOS, which a template counts


def test_prices_come_from_a_file_and_those_that_make_no_sense_are_refused(tmp_path):
    for make, message in [
        (lambda: Prices(prompt=-1.0), "the price of a million prompt tokens must be a number >= 0, got -1.0"),
        (lambda: Prices(completion=float("nan")), "completion tokens must be a number >= 0, got nan"),
        (lambda: Budget(0.0), "the cost limit must be > 0, got 0.0"),
        (lambda: Bill(None, Budget(1.0)), r"a cost limit \(1.0\) needs prices"),
    ]:
        with pytest.raises(UsageError, match=message):
            make()
    file = tmp_path / "prices.toml"
    file.write_text('["small"]\nprompt = 2\ncompletion = 8.0\n["odd"]\nprompt = "much"\n["half"]\nprompt = 2\n')
    assert read_prices(file, "small") == PRICES
    with pytest.raises(UsageError, match="no prices for 'smal'; did you mean 'small'"):
        read_prices(file, "smal")
    for name in ("odd", "half"):
        with pytest.raises(DataError, match=f"'{name}' needs the numbers 'prompt' and 'completion'"):
            read_prices(file, name)
    with pytest.raises(DataError, match="not a readable TOML file of prices"):
        read_prices(tmp_path / "absent.toml", "small")


def test_an_estimate_counts_every_ask_with_a_tokenizer_where_there_is_one(tmp_path):
    asks = [Ask(user_turn("x" * 400), max_tokens=50), Ask(user_turn("y" * 10), max_tokens=100)]
    found = estimate(asks, PRICES)
    assert found[:3] == (2, 103, 150)  # 400 / 4 + 10 / 4 rounded up
    assert found.least == pytest.approx(103 * 2e-6) and found.most == pytest.approx(103 * 2e-6 + 150 * 8e-6)
    assert str(found).startswith(
        "2 calls, about 103 prompt tokens (letters / 4) and at most 150 of replies: 0.000206 to"
    )
    found = estimate([Ask(user_turn("x" * 400), max_tokens=50)], None)
    assert found.least is found.most is None
    assert str(found).endswith("at most 50 of replies: no cost without prices")
    assert estimate([Ask(user_turn("x"))], FREE).most == 0
    models.tokenizer().save_pretrained(tmp_path)
    by = counter(str(tmp_path))
    assert estimate([Ask(user_turn("roses and bees"))], by=by).prompt_tokens == 3
    assert by.how == f"the tokenizer of {tmp_path}"
    absent = counter(str(tmp_path / "absent"))
    assert absent.count is LETTERS.count and absent.how.startswith("letters / 4, for ") and "absent" in absent.how
    assert counter() == LETTERS


def test_scripted_replies_arrive_in_order_and_end_with_the_script():
    arrived = []
    chat = scripted(["A", failed_reply("busy")])
    replies = chat.ask([Ask(user_turn("one")), Ask(user_turn("two"))], lambda *one: arrived.append(one))
    assert arrived == [*enumerate(replies)] and replies == [Reply("A", "stop", 1, 1), failed_reply("busy")]
    with pytest.raises(UsageError, match="the script has only 2 replies"):
        chat.ask([Ask(user_turn("three"))])
    chat = scripted(lambda ask: ask.messages[0]["content"].upper(), name="shout")
    assert [reply.text for reply in chat.ask([Ask(user_turn("a")), Ask(user_turn("b"))])] == ["A", "B"]
    assert chat.name == "shout"
    chat = dry_run_chat()
    (reply,) = chat.ask([Ask(user_turn("which?"))])
    assert reply.error and not reply.text and PRICES.of(reply) == 0
    assert chat.asked == [Ask(user_turn("which?"))]
