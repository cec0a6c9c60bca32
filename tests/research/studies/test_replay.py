import numpy as np
import pytest
import torch
from rewardlab.policy.replays.pipo import attribution, pipo
from rewardlab.policy.replays.uniform import uniform
from rewardlab.policy.types import Past, Rollout
from rewardlab.research.studies._design import paired_differences, read_claims
from rewardlab.research.studies.replay import AT_NEAR, END, MEAN, values_of
from rewardlab.research.studies.replay.controls import CountedReplay, ShuffledAdvantages, pipo_with_random_gains
from rewardlab.research.studies.replay.runs import ARMS, CBS, EXTRA_PASS, PIPO, ReplayRun
from rewardlab.research.worlds.guides import Base

NAN = float("nan")


def past(N: int = 8) -> Past:
    advantage = torch.arange(1, N + 1)[:, None].expand(N, 3).double()
    mask = torch.ones(N, 3, dtype=torch.bool)
    return Past(advantage, Rollout(torch.arange(N) // 4, mask, mask[:, 0], total=torch.zeros(N)))


def answers(replay, means) -> list:
    state, made = {}, []
    for mean in means:
        state, again = replay(state, torch.full((8,), mean, dtype=torch.float64), past())
        made.append(again)
    return made


def test_random_gains_are_gains_of_pipo_and_skip_the_same_warm_up():
    means = [1.0, 3.0, 2.5, 4.0, 1.0, 6.0, 2.0, 9.0]
    own, drawn = (answers(made, means) for made in (pipo(window=2), pipo_with_random_gains(window=2, seed=3)))
    unit = attribution(past().advantage, past().rollout.response, past().rollout.group)[0, 0]
    gains, others = ([float(again[0, 0] / unit) for again in made[2:]] for made in (own, drawn))
    assert own[:2] == drawn[:2] == [None, None]
    assert gains != pytest.approx(others)
    for index, other in enumerate(others):
        assert any(other == pytest.approx(gain) for gain in gains[: index + 1])


def test_shuffled_advantages_are_those_of_the_selection_in_another_order():
    selection = uniform(keep=6, seed=2)
    own, shuffled = (answers(made, [0.0] * 3) for made in (selection, ShuffledAdvantages(selection, seed=0)))
    for again, other in zip(own, shuffled, strict=True):
        assert torch.equal(again.isnan(), other.isnan()) and not torch.equal(again.nan_to_num(), other.nan_to_num())
        assert torch.equal(again.nan_to_num().sort(0).values, other.nan_to_num().sort(0).values)
        assert torch.equal(other[:, :1].expand(-1, 3).nan_to_num(), other.nan_to_num())


def test_a_replay_is_counted_and_unchanged():
    for replay, expected in ((uniform(keep=5, batches=2), [5, 5, 5]), (pipo(window=2), [0, 0, 8])):
        counted = CountedReplay(replay)
        assert counted.remembers == getattr(replay, "remembers", 1)
        for again, other in zip(answers(replay, [1.0, 3.0, 4.0]), answers(counted, [1.0, 3.0, 4.0]), strict=True):
            torch.testing.assert_close(other, again, equal_nan=True)
        assert counted.selected == expected


def test_values_are_the_last_gold_the_area_and_gold_where_a_kl_is_reached():
    run = {"cycle": np.array([0, 10, 20]), "gold": np.array([1.0, 3.0, 2.0]), "kl": np.array([0.0, 2.0, 3.0])}
    near = run | {"kl": np.array([0.0, 0.1, 0.2])}
    values = values_of({arm: [run, near] for arm in ARMS})
    assert values[END][PIPO].tolist() == [2.0, 2.0]
    assert values[MEAN][PIPO].tolist() == [2.25, 2.25]  # (1 + 3) / 2 · 10 and (3 + 2) / 2 · 10, over 20
    np.testing.assert_allclose(values[AT_NEAR][PIPO], [2.0, NAN])  # half of the way from 0 to 2 nats
    differences = paired_differences(read_claims("replay"), values)
    assert len(differences) == len(read_claims("replay")) and differences["cbs_beats_random"].tolist() == [0.0, 0.0]


def test_a_run_counts_its_updates_and_replays_and_ends_with_most_completions(tmp_path):
    base = Base(0, steps=1, texts=64)
    sizes = {"cycles": 3, "every": 3, "prompts": 2, "group": 16, "asked": 8, "completions": 16}
    for name, updates, replayed in ((EXTRA_PASS, 6, 0), (CBS, 5, 64), (PIPO, 3, 0)):
        run = ReplayRun(base, ARMS[name], **sizes).result(tmp_path)
        assert (int(run["updates"]), int(run["replayed"])) == (updates, replayed)
        assert run["cycle"].tolist() == [0, 3] and run["kl"][0] == pytest.approx(0, abs=1e-4) and run["cpu"] > 0
        assert np.isfinite(run["gold"]).all() and run["gold"][0] != run["gold"][1]
