"""research/speed/scoring.py at toy size: that all ways score the same conversations, not how fast."""

import copy
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from rewardlab.research.speed import scoring
from rewardlab.research.speed.scoring import (
    METHODS,
    ScoringInputs,
    Size,
    distinct_tokens,
    evenly,
    faults,
    generated,
    main,
    markdown,
    memory,
    padded_tokens,
    reward_model,
    scoring_inputs,
    spread,
)
from rewardlab.rm.registry import names

TOY = Size(layers=1, hidden=64, vocabulary=300, limit=200, pairs=5, groups=2, words=40, repeats=2)
RM_ROW = {
    "id": 1,
    "prompt": "roba kano",
    "chosen": ["a", "b b", "c"],
    "rejected": ["d", "e", "f f f"],
    "domain": "chat",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """One benchmark of two."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "rm_bench_public").mkdir()
    lines = "".join(json.dumps(RM_ROW | {"id": place}) + "\n" for place in range(5))
    (folder / "rm_bench_public" / "chat.public.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


@pytest.fixture(scope="module")
def found(data, tmp_path_factory):
    """What the script writes, and what it returns."""
    path = tmp_path_factory.mktemp("speed") / "found.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "memory_in_subprocess", lambda way, *_: 3.0 if way == "ours" else 4.0)
        code = main(["--data", str(data), "--output", str(path)], TOY)
    return json.loads(path.read_text()), code


def test_every_way_gives_the_same_scores(found):
    for one in found[0]["sets"].values():
        assert one["difference"] < 1e-5 < one["std of scores"]


def test_every_round_is_written(found):
    sets = found[0]["sets"]
    assert [*sets] == ["RM-Bench", "generated"] and sets["generated"]["sequences"] == 12
    for one in sets.values():
        assert {kind: [*rounds] for kind, rounds in one["seconds"].items()} == {
            key: [*METHODS] for key in ("wall", "cpu")
        }
        assert {len(rounds) for kind in one["seconds"].values() for rounds in kind.values()} == {2}
    assert found[0]["machine"]["threads"] == 1 and {"commit", "date", "load"} <= {*found[0]["machine"]}
    assert found[0]["parameters"] > 300 * 64


def test_a_set_that_is_not_there_is_said_to_be_missing(found, data):
    assert found[0]["not run"] == {"RewardBench": f"no rewardbench_v1/*.parquet in {data}; name the folder with --data"}
    assert "| RewardBench | not run: no rewardbench_v1" in markdown(found[0])


def test_figures_out_of_their_bounds_fail(found):
    """Toy sequences are not sped up as much, which is told; then each fault by itself."""
    written = copy.deepcopy(found[0])
    assert found[1] == (5 if faults(written) else 0)
    for name, one in written["sets"].items():
        for against in one["against"].values():
            against["ratio"]["median"] = scoring.LEAST[name]
    assert not faults(written)
    written["sets"]["RM-Bench"]["difference"] = 2e-4
    written["sets"]["generated"]["against"]["trl"]["ratio"]["median"] = 2.9
    written["peak MB"]["ours"] = 4.5
    assert faults(written) == [
        "RM-Bench: scores differ by 2.0e-04, at most 1e-04",
        "generated: 2.90 times as fast as trl, at least 3.0",
        "memory: 4.5 MB, rewardbench 4.0 MB",
        "memory: 4.5 MB, trl 4.0 MB",
    ]
    written["sets"]["RM-Bench"]["difference"] = float("nan")
    assert "RM-Bench: scores differ by nan" in faults(written)[0]


def test_the_prompt_is_three_quarters_of_every_generated_sequence():
    size = Size(groups=6, words=60, vocabulary=600, hidden=64, layers=1)
    sets = {"generated": generated(size)}
    ids = scoring_inputs(reward_model(size, sets), sets["generated"]).ids
    for first in range(0, len(ids), 6):
        for one, other in zip(ids[first : first + 6], [*ids[first + 1 : first + 6], ids[first]], strict=True):
            assert scoring.shared(one, other) >= 0.75 * len(one)


def test_padding_by_hand():
    """Pairs of (1, 2), (3, 1) tokens ...: 16 chosen and 16 rejected to a batch, or 8 pairs."""
    ids = [[0] * length for length in [1, 2, 3, 1] * 8 + [5, 4]]
    assert padded_tokens(ids, "rewardbench") == 16 * 3 + 1 * 5 + 16 * 2 + 1 * 4
    assert padded_tokens(ids, "trl") == 16 * 3 + 16 * 3 + 2 * 5


def test_distinct_tokens_by_hand():
    assert distinct_tokens([[1, 2, 3], [1, 2, 3], [1, 4], [5]]) == 5


def test_a_subset_is_spread_over_the_file():
    assert evenly(list(range(100)), 4) == [0, 33, 66, 99] and evenly([1, 2], 5) == [1, 2]


def test_a_spread_is_median_and_extremes():
    assert spread(np.array([3.0, 1.0, 2.0])) == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_memory_is_that_of_a_way(data):
    assert memory("ours", TOY, data) >= 0


def test_a_long_text_loses_its_beginning_in_every_way():
    sets = {"generated": generated(TOY)}
    model = reward_model(Size(layers=1, hidden=64, vocabulary=300, limit=50), sets)
    work = scoring_inputs(model, sets["generated"])
    assert max(len(one) for one in work.ids) == 50
    scores = [way(model, ScoringInputs(*(one[:8] for one in work))) for way in METHODS.values()]
    assert np.ptp(scores, axis=0).max() < 1e-5 < np.std(scores[0])


def test_bench_knows_it():
    assert "scoring" in names("research.speed")
