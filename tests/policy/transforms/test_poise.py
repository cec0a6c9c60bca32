"""POISE: a probe's baseline that no answer's own reward is in."""

import json

import numpy as np
import pytest
import torch
from rewardlab.policy.advantages.rloo import rloo
from rewardlab.policy.transforms.poise import completion_features, fit, poise, projected_states
from rewardlab.policy.types import Rollout


def told(seed: int = 0, rows: int = 12, size: int = 2):
    """With rewards, and what may be known of an answer beside its tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (rows,), generator=generator)
    response = torch.arange(6) < lengths[:, None]
    logprobs = -torch.rand(rows, 6, generator=generator, dtype=torch.float64) * response
    made = Rollout(torch.arange(rows) // size, response, torch.ones(rows, dtype=torch.bool), logprobs=logprobs)
    total = torch.rand(rows, generator=generator, dtype=torch.float64)
    return made._replace(total=total)


def run(made, batches, state=None):
    state, found = made.start if state is None else state, []
    for batch in batches:
        state, one = made.change(state, torch.zeros(len(batch.group), dtype=torch.float64), batch)
        found.append(one)
    return state, found


def test_it_is_its_plain_loop():
    batches = [told(seed) for seed in range(4)]
    state, found = run(poise(ridge=0.5, decay=0.8), batches)
    D = 4
    moments, answered = np.zeros((D, D)), np.zeros(D)
    for step, (batch, advantages) in enumerate(zip(batches, found, strict=True)):
        r, z = batch.total.numpy(), completion_features(batch).numpy()
        partner = np.arange(12) ^ 1
        if step:
            w = np.linalg.solve(moments + np.diag([1e-9] + [0.5] * (D - 1)), answered)
            expected = r - z[partner] @ w
        else:
            expected = r - r[partner]
        np.testing.assert_allclose(advantages.numpy(), expected, atol=1e-9)
        moments = 0.8 * moments + sum(np.outer(one, one) for one in z)
        answered = 0.8 * answered + sum(one * r[partner[i]] for i, one in enumerate(z))
    np.testing.assert_allclose(state["answered"], answered)


def test_what_describes_a_completion_by_hand_and_the_constant_is_not_shrunk():
    batch = told()
    batch = batch._replace(
        response=torch.tensor([[True, True, False]]), logprobs=torch.tensor([[-1.0, -3.0, 0.0]], dtype=torch.float64)
    )
    assert completion_features(batch)[0].tolist() == pytest.approx([1.0, np.log(3), 2.0, 1.0])
    state = {"moments": [[10.0, 0.0], [0.0, 0.0]], "answered": [7.0, 0.0]}
    assert fit(state, 5.0).tolist() == pytest.approx([0.7, 0.0])


def test_the_first_step_is_rloo_and_no_reward_is_in_its_own_baseline():
    batch = told(size=4)
    torch.testing.assert_close(run(poise(), [batch])[1][0], rloo()(batch.total, batch))
    # Changing one answer's reward changes its own advantage by just that, and no other's, once a probe is there
    state, _ = run(poise(), [told(1)])
    batch = told(2)
    other = batch._replace(total=batch.total.clone())
    other.total[3] += 0.5
    first, second = (run(poise(), [one], state)[1][0] for one in (batch, other))
    change = (second - first).tolist()
    assert change[3] == pytest.approx(0.5) and not any(abs(one) > 1e-12 for i, one in enumerate(change) if i != 3)


def test_hidden_states_are_told_by_a_projection_that_stays():
    batch, states = told(), torch.randn(12, 6, 5, generator=torch.Generator().manual_seed(3))
    batch = batch._replace(states=states)
    found = projected_states(batch, 3, seed=7)
    P = torch.randn(5, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    for row in range(12):
        h = states[row, : int(batch.response[row].sum())].double().mean(0)
        torch.testing.assert_close(found[row], (h / h.square().mean().sqrt()) @ P / 5**0.5)
    assert len(run(poise(states=3), [batch])[0]["answered"]) == len(run(poise(), [batch])[0]["answered"]) + 3
    louder = batch._replace(states=states * 9)
    torch.testing.assert_close(projected_states(louder, 3, seed=7), found)
    elsewhere = batch._replace(states=torch.where(batch.response[..., None], states, 1e6))
    torch.testing.assert_close(projected_states(elsewhere, 3, seed=7), found)


def test_missing_rewards_are_nobodys_partner_and_the_state_is_json():
    batch = told()
    batch.total[5] = torch.nan
    state, (found,) = run(poise(), [batch])
    assert found[4] == found[5] == 0 and found.isfinite().all()
    assert json.loads(json.dumps(state)) == state
    later = told(3)
    torch.testing.assert_close(*(run(poise(), [later], one)[1][0] for one in (state, json.loads(json.dumps(state)))))
    later.total[5] = torch.nan
    assert run(poise(), [later], state)[1][0][[4, 5]].tolist() == [0, 0]


def test_refusals():
    with pytest.raises(ValueError, match="ridge must be above 0"):
        poise(ridge=0.0)
    with pytest.raises(ValueError, match="states must be a number of columns"):
        poise(states=-1)
    with pytest.raises(ValueError, match="no hidden states"):
        run(poise(states=4), [told()])
    with pytest.raises(ValueError, match="no log-probabilities of its tokens"):
        run(poise(), [told()._replace(logprobs=None)])
