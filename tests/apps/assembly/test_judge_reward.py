"""`--reward 'judge(...)'`: judges as rewards of a policy, and as labellers for R2M."""

import json
import math

import pytest
from rewardlab.apps.assembly.judge_reward import (
    DistinctRequests,
    JudgeReward,
    OpenJudge,
    judge_labeller,
    open_reward_judge,
    win_share,
)
from rewardlab.apps.assembly.policy_training.run import hints_by_prompt, hints_of
from rewardlab.apps.rewards._open import RunFacts
from rewardlab.apps.rewards.judge import judge, labels
from rewardlab.benchmarks import garden
from rewardlab.judges.backends.chat import Ask, failed_reply
from rewardlab.judges.backends.cost import Prices
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.backends.settings import ChatConfig
from rewardlab.judges.judge import POINTWISE_KINDS
from rewardlab.judges.open import Materials, open_judge
from rewardlab.judges.prompts import Sampling
from rewardlab.judges.rubrics.rubric import Principle, Rubric, Rule
from rewardlab.judges.run import CountedChat
from rewardlab.policy.scaffolds._scaffold import Hints
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.registry.specs import build
from rewardlab.rm.types import Example, prompt_text, user_turn
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.conftest import rollouts_of, steps_of
from tests.apps.judging import longer, shown, write

QUESTION, OTHER = user_turn("question"), user_turn("another")
SHORT = ("--max_completion_length", 1)
"""A word, for which the judge has other scores than the most."""


def reward(answer, kind="pointwise", given: Materials | None = None, prices: Prices | None = None) -> JudgeReward:
    chat = CountedChat(scripted(answer), prices or Prices())
    made = open_judge(kind, DistinctRequests(chat), given or Materials(), name="it")
    return JudgeReward(OpenJudge(made, chat, kind.partition("(")[0] not in POINTWISE_KINDS))


def answers(*texts, prompt=QUESTION) -> list[Example]:
    return [Example(prompt, text) for text in texts]


def test_a_pointwise_judge_scores_every_answer_alone_and_asks_once_about_a_text():
    one = reward(longer)
    assert one([*answers("abc", "abcdef", "abc"), *answers("abc", prompt=OTHER)]) == [3.0, 6.0, 3.0, 3.0]
    assert one.chat.total.requests == 3
    drawn = reward(longer, "pointwise(samples=3)", Materials(sampling=Sampling(temperature=1.0, seed=5)))
    assert drawn(answers("abc", "abcd")) == [3.0, 4.0] and drawn.chat.total.requests == 6, (
        "samples are draws of their own"
    )


def test_an_answer_without_a_verdict_has_no_reward_and_a_judge_that_is_gone_is_a_fault(capsys):
    one = reward(lambda ask: "I cannot say." if shown(ask, "answer") == "odd" else longer(ask), prices=Prices(1, 10))
    assert one(answers("abc", "odd", "abcd")) == [3.0, None, 4.0]
    done = one.chat.account()
    assert done["cost"] == pytest.approx((done["prompt_tokens"] + 10 * done["completion_tokens"]) / 1e6)
    assert "it: 3 completions, 1 without a verdict; 3 requests" in capsys.readouterr().err
    one(answers("abcde"))
    assert one.facts() | {"prompt_tokens": 0, "completion_tokens": 0, "cost": 0} == {
        "calls": 1, "estimated": 0, "without_reply": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0,
        "judgments": 1, "abstentions": 0,
    }  # fmt: skip
    assert 0 < one.facts()["cost"] == one.chat.account()["cost"] - done["cost"]
    one = reward(lambda ask: failed_reply("connection refused"))
    with pytest.raises(DataError, match="it: none of the judge's requests has a reply: connection refused"):
        one(answers("a", "b"))


def test_a_pairwise_judge_plays_a_tournament_within_the_answers_to_a_prompt():
    """Of three the middle one wins one of its two comparisons; the other prompt's two are by themselves."""
    one = reward(longer, "pairwise")
    found = one([*answers("a", "aaa", "aa"), *answers("aaaaaaa", "aaaaaa", prompt=OTHER)])
    assert found == [0.0, 1.0, 0.5, 1.0, 0.0] and one.chat.total.requests == 2 * (3 + 1)
    one = reward(longer, "pairwise")
    assert one(answers("aa", "aa", "a")) == [0.75, 0.75, 0.0] and one.chat.total.requests == 2, (
        "nobody is asked about a tie"
    )
    assert one(answers("aa", "aa")) == [0.5, 0.5] and one(answers("alone")) == [None]


def test_a_missing_comparison_is_missing_for_its_two_answers_and_one_that_follows_the_order_a_tie_or_missing():
    def shy(ask):
        texts = {shown(ask, "answer_a"), shown(ask, "answer_b")}
        return "Both have merits." if texts == {"a", "aa"} else longer(ask)

    first = '{"winner": "A"}'
    assert reward(shy, "pairwise")(answers("a", "aa", "aaa")) == [None, None, 1.0]
    assert win_share([1.0, None]) is None and win_share([1.0, 0.5]) == 0.75
    for kind, value in (("pairwise", 0.5), ("pairwise(flip=abstain)", None)):
        assert reward(lambda ask: first, kind)(answers("a", "b")) == [value, value]


def test_equal_requests_are_asked_once_and_a_judge_behind_several_servers_is_that_behind_the_first():
    chat = CountedChat(scripted(["one", "two"]))
    asks = [Ask(QUESTION), Ask(OTHER), Ask(QUESTION)]
    arrived = {}
    replies = DistinctRequests(chat).ask(asks, arrived.__setitem__)
    assert [reply.text for reply in replies] == ["one", "two", "one"] and chat.total.requests == 2
    assert arrived == dict(enumerate(replies))
    config = ChatConfig(endpoint=["http://a/v1", "http://b/v1"], model=["qwen"])
    assert config.identity() == ChatConfig(endpoint="http://a/v1", model="qwen").identity(), "it goes on with more"  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--endpoint names http://a twice"):
        ChatConfig(endpoint=["http://a", "http://a"])


def test_a_label_is_a_verdict_that_both_orders_share_and_else_an_abstention():
    label = judge_labeller(open_judge("pairwise(flip=abstain)", scripted(longer), Materials(), name="it"))
    assert [label(QUESTION, pair) for pair in (("aa", "a"), ("a", "aa"), ("a", "a"))] == [1.0, 0.0, 0.5]
    with ChatServer(answer=lambda asked: '{"winner": "A"}') as world:
        for flip, value in (("", math.nan), (", flip=tie", 0.5)):
            label = build("policy", f"{labels.__module__}:labels(endpoint={world.url}, model=qwen{flip})")
            assert label(QUESTION, ("a", "b")) == pytest.approx(value, nan_ok=True)


def test_a_judge_is_a_reward_of_a_run_and_its_cost_is_told(rl, server, tmp_path):
    spec = f"judge(endpoint={server.url}, model=qwen, prompt_price=1, completion_price=0, replies={tmp_path / 'kept'})"
    code, facts, err, folder = rl("--reward", spec, "--max_steps", 1, *SHORT)
    assert code == 0, err
    assert facts["rewards"].keys() == {"judge"} and "qwen pointwise: 16 completions" in err and "cost 0." in err
    kept = [json.loads(line) for line in (tmp_path / "kept" / "replies.jsonl").read_text().splitlines()]
    step = steps_of(folder)[0]
    assert step["rewards/judge/mean"] > 0 and 0 < step["judge/calls"] == step["judge/judgments"] == len(kept) <= 16
    assert step["judge/prompt_tokens"] == sum(reply["prompt_tokens"] for reply in kept)
    assert step["judge/cost"] == pytest.approx(step["judge/prompt_tokens"] / 1e6) and step["judge/abstentions"] == 0


def test_a_limit_of_cost_counts_the_replies_of_a_run_that_went_before(tmp_path):
    """Three coins of five are spent before; two of four further answers can still be paid, then nobody is asked."""
    with ChatServer(answer=lambda asked: '{"score": 10.0}') as world:  # 15 letters are 4 tokens
        settings = {"endpoint": world.url, "model": "qwen", "concurrency": 1, "max_cost": 5}
        settings |= {"prompt_price": 0, "completion_price": 250_000}
        short = Materials(sampling=Sampling(max_tokens=4))

        def opened():
            return JudgeReward(open_reward_judge("pointwise", short, str(tmp_path / "kept"), settings))

        first = opened()
        assert first(answers("a", "b", "c")) == [10.0] * 3
        first.chat.chat.store.close()  # as a process does that ends
        again = opened()
        with pytest.warns(UserWarning, match="the cost limit 5 is reached: 5 spent"):
            assert again(answers("a", "d", "e", "f", "g")) == [10.0, 10.0, 10.0, None, None]
        assert world.asked.total() == 5 and again.facts()["without_reply"] == 2
        with pytest.raises(DataError, match="not asked: the cost limit 5 is reached"):
            again(answers("h"))


def test_processes_and_judges_of_a_run_share_a_limit_of_cost_and_a_folder_of_replies(server, tmp_path, monkeypatch):
    """The second asks what the first has asked, and is told from the folder; on its own it asks the rest."""
    settings = {"endpoint": server.url, "model": "shared"}
    kept = tmp_path / "kept"
    first, second = (JudgeReward(open_reward_judge("pointwise", Materials(), str(place), settings)) for place in
                     (kept, tmp_path / "x" / ".." / "kept"))  # fmt: skip
    before = len(server.requests)
    assert first(answers("a", "bb")) == [1.0, 2.0] and second(answers("bb", "ccc")) == [2.0, 3.0]
    assert len(server.requests) - before == 3 == len((kept / "replies.jsonl").read_text().splitlines())
    settings = {"endpoint": server.url, "model": "shared", "prompt_price": 1, "completion_price": 1, "max_cost": 8}
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        opened = open_reward_judge("pointwise", Materials(), str(tmp_path / "ranks"), settings)
        assert opened.chat.chat.chat.bill.budget.limit == 4
    assert {path.name for path in (tmp_path / "ranks").iterdir()} == {"rank-0", "rank-1"}


def test_rows_of_one_prompt_say_the_same_or_are_refused():
    def judged(rows, **more):
        run = RunFacts(None, 1, 0, {}, {prompt_text(QUESTION): rows})  # type: ignore[arg-type]
        return judge(run=run, kind="rubric", endpoint="http://127.0.0.1:9", model="m", **more), hints_by_prompt(run)

    same, other = ({"rubrics": POINTS[:n], "gold": "Bees!"} for n in (2, 1))
    rules = (Rule("r1", "must", "Names wax.", "Find it."), Rule("r2", "forbid", "Lies.", "Find a lie."))
    assert hints_of(Rubric(rules, (Principle("p", "Is short."),))) == Hints(("Names wax.", "Is short."), ("Lies.",))
    hints = Hints(("Names bees.",), ("Praises venom.",))
    assert judged([same, dict(same)], rubric="data")[1] == {prompt_text(QUESTION): hints}
    for wrong, more in ((other, {}), (same | {"gold": "Wax!"}, {"reference": "gold"})):
        with pytest.raises(DataError, match="the rows of the prompt 'user: question' differ"):
            judged([same, wrong], rubric="data", **more)
    with pytest.raises(DataError, match="the rows of the prompt 'user: question' differ"):
        hints_by_prompt(RunFacts(None, 1, 0, {}, {prompt_text(QUESTION): [same, other]}))  # type: ignore[arg-type]


POINTS = [{"criterion": "Names bees.", "points": 4}, {"criterion": "Praises venom.", "points": -6}]


def test_a_judge_goes_by_the_rubric_in_each_prompts_row_and_is_shown_its_reference(server):
    """Ten letters meet all criteria, (4 - 6) / 4; fewer meet none. The rule of the other row is kept, 1."""
    rule = {"rules": [{"id": "r1", "type": "must", "criterion": "Is long.", "test": "Count."}]}
    row, other = {"rubrics": POINTS, "gold": "Bees!"}, {"rubric": rule, "gold": "-"}
    rows = {prompt_text(QUESTION): [row], prompt_text(OTHER): [other]}
    run = RunFacts(None, 1, 0, {}, rows)  # type: ignore[arg-type]
    spec = f"judge(kind=rubric, rubric=data, reference=gold, endpoint={server.url}, model=qwen"
    one = build("apps.rewards", f"{spec}, score=points)", run=run)
    assert one(answers("short", "ten letters and more")) == [0.0, -0.5]
    assert shown(server.requests[-1], "reference") == "Bees!" and "Names bees." in shown(server.requests[-1], "rubric")
    assert build("apps.rewards", f"{spec})", run=run)(answers("ten letters and more", prompt=OTHER)) == [1.0]
    with pytest.raises(DataError, match="the row of the prompt 'user: question': no column 'rubric'"):
        build("apps.rewards", f"{spec})", run=run._replace(rows={prompt_text(QUESTION): [{"gold": "-"}]}))
    with pytest.raises(UsageError, match="rubric=data reads the prompts of a run"):
        labels(kind="rubric", rubric="data", endpoint=server.url, model="qwen")


def test_a_rubric_is_shown_to_some_answers_and_all_are_judged_by_it(rl, server, tmp_path):
    """Three of a group's four see some of it in the first step, and nobody in the last."""
    rows = [{"prompt": list(one), "rubrics": POINTS} for one in garden.prompts(40, 0)]
    spec = f"judge(kind=rubric, rubric=data, score=points, endpoint={server.url}, model=qwen)"
    flags = ["--reward", spec, "--max_steps", 2, "--rollout_steps", 1]
    data = write(tmp_path / "prompts.jsonl", rows)
    code, _, err, folder = rl(*flags, "--scaffold", "ruscarl", data=data)
    assert code == 0, err
    assert [row["scaffold/hinted"] for row in steps_of(folder)] == [0.75, 0.0]
    assert {row["prompt"] for row in rollouts_of(folder)} <= {prompt_text(row["prompt"]) for row in rows}
    assert {row["reward/sources/judge"] for row in rollouts_of(folder)} <= {-0.5, 0.0}
    code, _, err, _ = rl(*flags, "--scaffold", "ruscarl", output="none")
    assert code in (2, 3) and "the row of the prompt" in err and "no column 'rubric'" in err


def test_a_tournament_is_watched_beside_points_and_a_judge_labels_pairs_for_r2m(rl, rl_world, server):
    specs = [f"{name}=judge(kind={kind}, endpoint={server.url}, model=qwen)" for name, kind in
             (("points", "pointwise"), ("duels", "pairwise"))]  # fmt: skip
    code, _, err, folder = rl("--reward", specs[0], "--watch", specs[1], "--max_steps", 1, *SHORT)
    assert code == 0 and steps_of(folder)[0]["rewards/duels/mean"] == pytest.approx(0.5), err  # one wins, one loses
    labelled = f"labels=judge(endpoint={server.url}, model=qwen, max_tokens=64), groups=2"
    spec = f"r2m(model={rl_world / 'rm'}, floor=0.3, learning_rate=1e-2, alpha=0, {labelled})"
    before = len(server.requests)
    code, _, err, folder = rl("--reward", spec, "--max_steps", 1, output="r2m")
    assert code == 0, err
    assert [row["r2m/calls"] for row in steps_of(folder)] == [2] and len(server.requests) - before <= 4


def test_what_cannot_be_asked_is_told_in_a_sentence():
    for spec, message in (
        ("judge(kind=pointwise)", "a judge as a reward must have one model, got 0"),
        ("judge(endpoint=http://127.0.0.1:9/v1)", "must have one model, got 0"),
        ("judge(model=a)", "--model a is a model at a server"),
        (
            "judge(model=a, endpoint=http://127.0.0.1:9/v1, max_tokens=many)",
            "'max_tokens' must be a whole number, got 'many'",
        ),
        ("judge(model=a, endpoint=http://127.0.0.1:9/v1, retries=x)", "'retries' must be a whole number, got 'x'"),
        ("judge(kind=panel, model=a, endpoint=http://127.0.0.1:9/v1)", "combines judges; give"),
        ("judge(model=a, endpoint=http://127.0.0.1:9/v1, flop=1)", "no argument 'flop'"),
        ("judge(kind=rubric, model=a, endpoint=http://127.0.0.1:9/v1)", "needs a file; give it with --rubric"),
        ("judge(kind=pointwize, model=a, endpoint=http://127.0.0.1:9/v1)", "did you mean 'pointwise'"),
    ):
        with pytest.raises(UsageError, match=message.replace("(", r"\(")):
            build("apps.rewards", spec, run=RunFacts(None, 1, 0, {}))  # type: ignore[arg-type]
