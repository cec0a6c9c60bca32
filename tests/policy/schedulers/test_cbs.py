"""CBS: a bandit that learns which answers are worth training on, in their group or among those of past batches."""

import json
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rewardlab.policy.replays import cbs as replaying
from rewardlab.policy.schedulers._bandit import History, bandit, contexts, mlp, pick, predictor, ridge
from rewardlab.policy.schedulers.cbs import cbs
from rewardlab.policy.training.replay_buffer import ReplayBuffer, select_rows
from rewardlab.policy.types import Past, Rollout
from rewardlab.rm.errors import UsageError

NAN = math.nan
PLAIN = {"penalty": 0.0, "ceiling": 0.0, "warm_up": 0}
RIDGE = {"model": "ridge", "shrink": 1.0, "bonus": 0.5}
MLP = {"model": "mlp", "learning_rate": 0.1, "over": 10}


def rollout(rows=8, size=4, seed=0, width=6) -> Rollout:
    draw = torch.Generator().manual_seed(seed)
    response = torch.arange(width) < torch.randint(1, width + 1, (rows, 1), generator=draw)
    made = Rollout(torch.arange(rows) // size, response, torch.rand(rows, generator=draw) < 0.7)
    entropy, logprobs = torch.rand(2, rows, width, generator=draw) * response
    return made._replace(entropy=entropy, logprobs=-logprobs)


def rewards(rows=8, seed=0) -> torch.Tensor:
    return torch.rand(rows, generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64)


def test_contexts_by_hand():
    # Rewards 0 and 2: mean 1, deviation √2; two tokens of at most eight; e - 1 batches ago
    response = torch.tensor([[True, True, False], [True, False, False]])
    values = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]], dtype=torch.float64)
    made = Rollout(torch.zeros(2, dtype=torch.long), response, torch.tensor([True, False]), entropy=values)
    given = History(*torch.tensor([[math.e - 1, 0.0], [0.0, math.e**2 - 1], [0.25, 0.0]], dtype=torch.float64))
    scores, advantages = torch.tensor([[0.0, 2.0], [-1.0, 7.0]], dtype=torch.float64)
    found = contexts(scores, advantages, made._replace(logprobs=-values), longest=8, history=given)
    assert found[0].tolist() == pytest.approx([-(0.5**0.5), 1, -1, 1.5, -1.5, 0.25, 0.25, 0, 1, 0])
    assert found[1].tolist() == pytest.approx([0.5**0.5, 3, 1, 3, -3, 0, 0.125, 1, 0, 2]), "within 3 of 0"
    scores = torch.tensor([0.7, 0.7, 0.7, NAN, 1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    found = contexts(scores, torch.zeros(8), rollout(), longest=6)
    assert not found[:4, 0].any() and not found[3].any() and found[:3].any() and found.isfinite().all()


def test_a_ridge_by_hand():
    """One answer of context 0 that brought 1: the constant's M is 1 + 1, b is 1, so it expects 1/2, surer by √2.

    Two answers of (1, 0, ...) that brought 1 and 0: M is [[3, 2], [2, 3]] and b is (1, 1), so (0, ...) expects 1/5.
    """
    made, zero = ridge(shrink=1.0, bonus=1.0), torch.zeros(1, 10, dtype=torch.float64)
    assert made.score({}, zero).item() == pytest.approx(1.0)
    assert made.score(made.learn({}, zero, 1.0), zero).item() == pytest.approx(0.5 + 0.5**0.5)
    made, unit = ridge(shrink=1.0, bonus=0.0), zero.index_fill(1, torch.tensor([0]), 1.0)
    state = made.learn(made.learn({}, unit, 1.0), unit, 0.0)
    assert json.loads(json.dumps(state)) == state
    assert made.score(state, torch.cat([zero, unit])).tolist() == pytest.approx([1 / 5, 2 / 5])


def test_the_mlp_steps_down_the_gradient_that_autograd_finds():
    made = mlp(learning_rate=0.1, over=10, hidden=4, weights=3)
    x = torch.tensor(np.random.default_rng(0).normal(size=(6, 10)))
    state = made.learn({}, x, 0.3)
    leaves = {name: torch.tensor(one, dtype=torch.float64, requires_grad=True) for name, one in state.items()}
    hidden = (x @ leaves["W"].T + leaves["u"]).tanh()
    (0.5 * (hidden @ leaves["v"] + leaves["c"] - 0.8).square().mean()).backward()
    after = made.learn(state, x, 0.8)
    assert json.loads(json.dumps(after)) == after
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        torch.testing.assert_close(torch.tensor(after[name], dtype=torch.float64), leaf.detach() - 0.1 * leaf.grad)


def test_exploration_falls_and_picking_at_random_is_uniform_and_never_twice():
    explores = mlp(learning_rate=0.1, over=10).explores
    assert [explores(step) for step in (0, 5, 10, 99)] == pytest.approx([0.1, 0.055, 0.01, 0.01])
    assert ridge(shrink=1.0, bonus=0.0).explores(0) == 0
    draw, counts = np.random.default_rng(0), np.zeros(4)
    for _ in range(2000):
        found = pick([3.0, 2.0, 1.0, 0.0], 2, 1.0, draw)
        assert len({*found}) == 2
        counts[found] += 1
    assert np.abs(counts - 1000).max() < 100  # 4 standard deviations are 89
    assert pick([1.0], 3, 0.0, draw) == [0]


def test_what_was_chosen_has_brought_the_rise_less_the_penalty():
    """0.5, then 0.75 at an entropy 0.5 over the ceiling: 0.25 - 0.1 · 0.5; the estimate moves by half."""
    made = bandit("ridge", {"shrink": 1.0, "bonus": 0.0}, penalty=0.1, ceiling=2.0, rate=0.5, warm_up=0, seed=0)
    state = made.observe({}, 0.5, 9.0)
    assert state == {"chosen": [], "performance": 0.5}
    state, (rows,) = made.choose(state, torch.ones(3, 10, dtype=torch.float64), [torch.tensor([0, 2])], 1)
    assert rows == [0] and state["chosen"] == [[1.0] * 10]
    state = made.observe(state, 0.75, 2.5)
    assert state["gain"] == pytest.approx(0.2) and state["performance"] == pytest.approx(0.625)
    # M = I + x xᵀ of eleven ones, b = 0.2 x: θ·x = 0.2 · 11 / 12
    assert made.predictor.score(state["model"], torch.ones(1, 10)).item() == pytest.approx(0.2 * 11 / 12)
    quiet = made.observe(made.choose(state, torch.ones(1, 10), [torch.tensor([0])], 1)[0], NAN, 0.0)
    assert quiet["model"] == state["model"] and quiet["chosen"] == [] and quiet["performance"] == state["performance"]


@pytest.mark.parametrize("model", [RIDGE, MLP])
def test_the_scheduler_is_its_plain_loop(model):
    settings = {name: value for name, value in model.items() if name != "model"}
    made, kept = predictor(model["model"], settings), {}
    schedule, state = cbs(keep=2, longest=6, rate=1.0, seed=4, **PLAIN | {"warm_up": 2}, **model), {}
    before, last = None, None
    for step in range(6):
        scores, batch = rewards(seed=step), rollout(seed=step)
        state, weights = schedule(state, scores, batch)
        assert json.loads(json.dumps(state)) == state
        mean = scores.mean().item()
        if last is not None:
            kept = made.learn(kept, last, mean - before)
        before = mean
        advantage = torch.cat([scores[:4] - scores[:4].mean(), scores[4:] - scores[4:].mean()])
        x = contexts(scores, advantage, batch, longest=6)
        values, draw = made.score(kept, x), np.random.default_rng([4, step])
        explore = 1.0 if step < 2 else made.explores(step - 2)
        rows = [4 * g + one for g in (0, 1) for one in pick(values[4 * g : 4 * g + 4].tolist(), 2, explore, draw)]
        last = x[rows]
        assert sorted(weights.nonzero().squeeze(1).tolist()) == sorted(rows) and {*weights.tolist()} == {0.0, 2.0}


def test_every_prompt_keeps_its_weight_and_a_missing_reward_has_none():
    scores = rewards()
    scores[[0, 1, 2, 5]] = NAN
    weights = cbs(keep=2, longest=6, **PLAIN, **RIDGE)({}, scores, rollout())[1]
    assert weights[:4].tolist() == [0, 0, 0, 1] and sorted(weights[4:].tolist()) == [0, 0, 1.5, 1.5]
    state, weights = cbs(keep=2, longest=6, **PLAIN, **RIDGE)({}, torch.full((8,), NAN), rollout())
    assert not weights.any() and state["chosen"] == []
    assert cbs(keep=4, longest=6, **PLAIN, **RIDGE)({}, rewards(), rollout())[1].tolist() == [1.0] * 8


def past(batches, newest: Rollout) -> Past:
    """Of eight answers each, the oldest first."""
    found = [rollout(seed=one) for one in batches]
    joint = {name: torch.cat([getattr(one, name) for one in found]) for name in ("response", "finished", "entropy")}
    logprobs = torch.cat([one.logprobs for one in found])
    total = torch.cat([rewards(seed=one) for one in batches])
    group, age = torch.arange(8 * len(found)) // 4, torch.arange(len(found), 0, -1).repeat_interleave(8)
    made = Rollout(group, **joint, logprobs=logprobs, total=total)
    advantage = (total - total.view(-1, 4).mean(1).repeat_interleave(4))[:, None].expand(-1, 6)
    return Past(advantage, made, age, torch.zeros(8 * len(found)), newest)


def test_the_replay_is_its_plain_loop():
    replay, state = replaying.cbs(keep=3, batches=2, longest=6, **PLAIN, **RIDGE), {}
    assert replay.remembers == 2
    made, kept, before, last = ridge(shrink=1.0, bonus=0.5), {}, None, None
    uses: dict[tuple[int, int], int] = {}
    for step in range(1, 5):
        batches = [one for one in (step - 2, step - 1) if one >= 0]
        seen, mean = past(batches, rollout(seed=step)), rewards(seed=step).mean().item()
        state, found = replay(state, rewards(seed=step), seen)
        assert json.loads(json.dumps(state)) == state
        if last is not None:
            kept = made.learn(kept, last, mean - before)
        before = mean
        used = torch.tensor([uses.get((one, row), 0) for one in batches for row in range(8)], dtype=torch.float64)
        history = History(seen.age.double(), used, seen.clipped)
        x = contexts(seen.rollout.total, seen.advantage[:, 0], seen.rollout, longest=6, history=history)
        rows = made.score(kept, x).sort(descending=True, stable=True).indices[:3].tolist()
        last = x[rows]
        for row in rows:
            uses[batches[row // 8], row % 8] = uses.get((batches[row // 8], row % 8), 0) + 1
        assert sorted((~found[:, 0].isnan()).nonzero().squeeze(1).tolist()) == sorted(rows)
        torch.testing.assert_close(found[rows], seen.advantage[rows])
        assert state["uses"] == [uses.get((one, row), 0) for one in batches for row in range(8)]


def test_chosen_rows_of_batches_of_other_widths_weigh_as_much_as_a_batch():
    """2 of 4 rows: weights 1 + 3, and a batch has (1 + 1 + 3 + 3) / 2, so they stay; prompts end where they did."""
    first = {"prompt_ids": torch.tensor([[7], [8]]), "weights": torch.ones(2, 1), "num_items_in_batch": torch.tensor(1)}
    second = {"prompt_ids": torch.tensor([[5, 6], [3, 4]]), "weights": torch.tensor([[3.0, 0], [1, 2]])}
    second |= {"num_items_in_batch": torch.tensor(2), "value_weights": torch.tensor([[1.0, 0], [1, 1]])}
    first |= {"value_weights": torch.full((2, 1), 0.5)}
    advantages = torch.tensor([[NAN, NAN], [0.5, 0.5], [2.0, 2.0], [NAN, NAN]])
    found = select_rows([first, second], advantages, 2)
    assert found["prompt_ids"].tolist() == [[0, 8], [5, 6]] and found["row"].tolist() == [3, 4]
    assert found["weights"].tolist() == [[1.0, 0.0], [3.0, 0.0]] and found["num_items_in_batch"] == 2
    assert found["advantages"].tolist() == [[0.5, 0.5], [2.0, 2.0]]
    assert found["value_weights"].flatten().tolist() == pytest.approx([2 / 3, 0, 4 / 3, 0])
    one = select_rows([first, second], torch.tensor([NAN, 2.0, NAN, NAN]), 2)
    assert one["weights"].sum() == 4 and one["weights"][0].tolist() == [4.0, 0.0] and not one["weights"][1].any()
    with pytest.raises(UsageError, match="selected 3 completions, but a batch has 2"):
        select_rows([first, second], torch.tensor([1.0, 2.0, 3.0, NAN]), 2)


def test_the_past_tells_how_old_and_how_clipped_each_answer_is():
    """Two batches of two: 1 of 4 tokens out of bounds at first; then the second answer once more, 1 of 2."""
    seen = []

    def replay(state, total, past):
        seen.append(past)
        again = torch.full_like(past.advantage, NAN)
        again[1] = 1.0
        return {"calls": state.get("calls", 0) + 1}, again

    replay.remembers = 2
    replay_buffer = ReplayBuffer(replay, 1)
    for step in range(4):
        wide, ones = torch.ones(2, 1 + step), torch.ones(2, dtype=torch.bool)
        scored: Any = SimpleNamespace(advantage=wide, total=torch.tensor([0.0, float(step)]))
        batch = {"prompt_ids": wide.long(), "weights": wide / wide.numel(), "advantages": wide, "row": torch.arange(2)}
        replay_buffer.next_cycle(batch, scored, Rollout(torch.tensor([0, 0]), wide.bool(), ones))
        if step == 0:
            replay_buffer.record_clipped(torch.tensor([1, 0]), torch.tensor([[0.0, 0, 0, 2, 0], [0, 0, 1, 4, 0]]))
        if step == 1:
            (again,) = replay_buffer.micro_batches
            assert sorted(again["row"].tolist()) == [2, 3] and again["weights"].sum() == pytest.approx(1)
            replay_buffer.record_clipped(torch.tensor([3]), torch.tensor([[0.0, 0, 1, 2, 0]]))
    first, second, third = seen
    assert first.age.tolist() == [1, 1] and first.clipped.tolist() == [0.25, 0.0]
    assert second.age.tolist() == [2, 2, 1, 1] and second.clipped.tolist() == [0.25, 0.5, 0, 0]
    assert second.rollout.group.tolist() == [0, 0, 1, 1] and second.rollout.total.tolist() == [0, 0, 0, 1]
    assert second.rollout.response.tolist() == [[True, False]] * 2 + [[True, True]] * 2
    assert third.clipped.tolist() == [0.0] * 4 and third.now.response.shape == (2, 4)
    other = ReplayBuffer(replay, 1)
    other.load(replay_buffer.state, replay_buffer.stored_batches())
    for one in (replay_buffer, other):
        one.next_cycle(batch, scored, Rollout(torch.tensor([0, 0]), wide.bool(), ones))
    torch.testing.assert_close(seen[-1].advantage, seen[-2].advantage)
    assert other.state == replay_buffer.state == {"calls": 4}


def test_refusals():
    for changes, reason in (
        ({"model": "forest"}, "model must be one of ridge, mlp, got 'forest'"),
        ({"bonus": -1.0}, "shrink must be above 0 and bonus at least 0"),
        ({"over": 3}, "unexpected keyword argument 'over'; model=ridge takes shrink"),
        ({"rate": 0.0}, r"rate in \(0, 1\]"),
    ):
        settings = {"keep": 2, "longest": 6, **PLAIN, **RIDGE, **changes}
        for make in (cbs, partial(replaying.cbs, batches=2)):
            with pytest.raises(ValueError, match=reason):
                make(**settings)
    with pytest.raises(ValueError, match="`keep` and `longest` must be at least 1, got 0"):
        cbs(keep=0, longest=6, **PLAIN, **RIDGE)
    with pytest.raises(ValueError, match="no entropies"):
        cbs(keep=2, longest=6, **PLAIN, **RIDGE)({}, rewards(), rollout()._replace(entropy=None))
