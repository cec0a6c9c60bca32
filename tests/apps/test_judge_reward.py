"""`--reward 'judge(...)'`: judges as rewards of a policy, and as labellers for R2M."""

import json
import math

import pytest
from rewardlab.apps.judge_kinds import Materials, open_judge
from rewardlab.apps.judge_rewards import ALONE, Asked, JudgeReward, Once, OpenJudge, by_judge, win_share
from rewardlab.apps.rewards.judge import labels
from rewardlab.apps.specs import build
from rewardlab.benchmarks.worlds.chat_server import ChatServer
from rewardlab.judges.chat import Ask, failed
from rewardlab.judges.cost import Prices
from rewardlab.judges.scripted import scripted
from rewardlab.judges.wording import Sampling
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import steps_of
from tests.apps.judging import longer, shown

QUESTION, OTHER = user_turn("question"), user_turn("another")


def reward(answer, kind="pointwise", given: Materials | None = None, prices: Prices | None = None) -> JudgeReward:
    chat = Asked(scripted(answer), prices or Prices())
    judge = open_judge(kind, Once(chat), given or Materials(), name="it")
    return JudgeReward(OpenJudge(judge, chat, kind.partition("(")[0] not in ALONE))


def answers(*texts, prompt=QUESTION) -> list[Example]:
    return [Example(prompt, text) for text in texts]


def test_a_pointwise_judge_scores_every_answer_alone_and_asks_once_about_a_text():
    one = reward(longer)
    assert one([*answers("abc", "abcdef", "abc"), *answers("abc", prompt=OTHER)]) == [3.0, 6.0, 3.0, 3.0]
    assert one.asked.calls == 3


def test_an_answer_without_a_verdict_has_no_reward_and_the_others_keep_theirs(capsys):
    one = reward(lambda ask: "I cannot say." if shown(ask, "answer") == "odd" else longer(ask), prices=Prices(1, 10))
    assert one(answers("abc", "odd", "abcd")) == [3.0, None, 4.0]
    done = one.asked.account()
    assert done["cost"] == pytest.approx((done["prompt_tokens"] + 10 * done["completion_tokens"]) / 1e6)
    assert "it: 3 answers, 1 without a verdict; 3 requests" in capsys.readouterr().err


def test_samples_of_one_answer_are_draws_of_their_own():
    one = reward(longer, "pointwise(samples=3)", Materials(sampling=Sampling(temperature=1.0, seed=5)))
    assert one(answers("abc", "abcd")) == [3.0, 4.0] and one.asked.calls == 6


def test_a_pairwise_judge_plays_a_tournament_within_the_answers_to_a_prompt():
    """Of three the middle one wins one of its two comparisons; the other prompt's two are by themselves."""
    one = reward(longer, "pairwise")
    found = one([*answers("a", "aaa", "aa"), *answers("aaaaaaa", "aaaaaa", prompt=OTHER)])
    assert found == [0.0, 1.0, 0.5, 1.0, 0.0] and one.asked.calls == 2 * (3 + 1)


def test_the_same_text_twice_is_a_tie_that_nobody_is_asked_about():
    one = reward(longer, "pairwise")
    assert one(answers("aa", "aa", "a")) == [0.75, 0.75, 0.0] and one.asked.calls == 2
    assert one(answers("aa", "aa")) == [0.5, 0.5] and one(answers("alone")) == [None]


def test_a_missing_comparison_is_missing_for_its_two_answers_alone():
    def shy(ask):
        texts = {shown(ask, "answer_a"), shown(ask, "answer_b")}
        return "Both have merits." if texts == {"a", "aa"} else longer(ask)

    assert reward(shy, "pairwise")(answers("a", "aa", "aaa")) == [None, None, 1.0]
    assert win_share([1.0, None]) is None and win_share([1.0, 0.5]) == 0.75


def test_a_verdict_that_follows_the_order_is_a_tie_or_missing():
    def first(ask):
        return '{"winner": "A"}'

    assert reward(first, "pairwise")(answers("a", "b")) == [0.5, 0.5]
    assert reward(first, "pairwise(flip=abstain)")(answers("a", "b")) == [None, None]


def test_a_judge_that_is_gone_is_a_fault_and_no_missing_reward():
    one = reward(lambda ask: failed("connection refused"))
    with pytest.raises(DataError, match="it: none of the judge's requests has a reply: connection refused"):
        one(answers("a", "b"))


def test_equal_requests_of_a_call_are_asked_once():
    chat = Asked(scripted(["one", "two"]))
    asks = [Ask(QUESTION), Ask(OTHER), Ask(QUESTION)]
    arrived = []
    replies = Once(chat).ask(asks, lambda place, reply: arrived.append((place, reply.text)))
    assert [reply.text for reply in replies] == ["one", "two", "one"] and chat.calls == 2
    assert arrived == [(0, "one"), (1, "two"), (2, "one")]


# ---- labels ----


def test_a_label_is_a_verdict_that_both_orders_share():
    label = by_judge(open_judge("pairwise(flip=abstain)", scripted(longer), Materials(), name="it"))
    assert [label(QUESTION, pair) for pair in (("aa", "a"), ("a", "aa"), ("a", "a"))] == [1.0, 0.0, 0.5]
    tie = by_judge(open_judge("pairwise", scripted(lambda ask: '{"winner": "tie"}'), Materials(), name="it"))
    assert tie(QUESTION, ("a", "b")) == 0.5


def test_a_label_that_follows_the_order_is_an_abstention():
    with ChatServer(answer=lambda asked: '{"winner": "A"}') as world:
        asked = f"endpoint={world.url}, model=qwen"
        label = build("policy", f"{labels.__module__}:labels({asked})")
        assert math.isnan(label(QUESTION, ("a", "b")))
        assert build("policy", f"{labels.__module__}:labels({asked}, flip=tie)")(QUESTION, ("a", "b")) == 0.5


# ---- in a run ----


@pytest.fixture(scope="module")
def server():
    with ChatServer(answer=longer) as world:
        yield world


def test_a_judge_is_a_reward_of_a_run_and_its_cost_is_told(rl, server, tmp_path):
    spec = f"judge(endpoint={server.url}, model=qwen, prompt_price=1, replies={tmp_path / 'kept'})"
    code, facts, err, folder = rl("--reward", spec, "--max_steps", 1)
    assert code == 0, err
    assert facts["rewards"].keys() == {"judge"} and "qwen pointwise: 16 answers" in err and "cost 0." in err
    assert steps_of(folder)[0]["rewards/judge/mean"] > 0
    lines = (tmp_path / "kept" / "replies.jsonl").read_text().splitlines()
    assert 0 < len(lines) <= 16 and all(json.loads(line)["text"] for line in lines)


def test_a_tournament_is_watched_beside_it(rl, server):
    specs = [f"{name}=judge(kind={kind}, endpoint={server.url}, model=qwen)" for name, kind in
             (("points", "pointwise"), ("duels", "pairwise"))]  # fmt: skip
    code, _, err, folder = rl("--reward", specs[0], "--watch", specs[1], "--max_steps", 1)
    assert code == 0 and steps_of(folder)[0]["rewards/duels/mean"] == pytest.approx(0.5), err  # one wins, one loses


def test_a_judge_labels_pairs_for_r2m(rl, rl_world, server):
    labelled = f"labels=judge(endpoint={server.url}, model=qwen, max_tokens=64), groups=2"
    spec = f"r2m(model={rl_world / 'rm'}, floor=0.3, learning_rate=1e-2, alpha=0, {labelled})"
    before = len(server.requests)
    code, _, err, folder = rl("--reward", spec, "--max_steps", 1)
    assert code == 0, err
    assert [row["r2m/calls"] for row in steps_of(folder)] == [2] and len(server.requests) - before <= 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("judge(kind=pointwise)", "a judge as a reward asks one model, got 0"),
        ("judge(endpoint=http://127.0.0.1:9/v1)", "asks one model, got 0"),
        ("judge(model=a)", "--model a stands behind a server"),
        ("judge(model=a, endpoint=http://127.0.0.1:9/v1, flop=1)", "no argument 'flop'"),
        ("judge(kind=rubric, model=a, endpoint=http://127.0.0.1:9/v1)", "needs a file; give it with --rubric"),
        ("judge(kind=pointwize, model=a, endpoint=http://127.0.0.1:9/v1)", "did you mean 'pointwise'"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(spec, message):
    from rewardlab.apps.run_facts import RunFacts

    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        build("apps.rewards", spec, run=RunFacts(None, 1, 0, {}))  # type: ignore[arg-type]
