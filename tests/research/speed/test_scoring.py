import copy
import gzip
import json
from pathlib import Path

import pytest
from rewardlab.research.speed import scoring
from rewardlab.research.speed.scoring import Size, faults, main, markdown, padded_tokens

TOY = Size(layers=1, hidden=64, vocabulary=300, limit=200, pairs=5, groups=2, words=40, repeats=2)
RM_ROW = {"prompt": "roba kano", "chosen": ["a", "b b", "c"], "rejected": ["d", "e", "f f f"], "domain": "chat"}


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


def test_every_method_gives_the_same_scores_in_every_round(found):
    sets = found[0]["sets"]
    assert [*sets] == ["RM-Bench", "generated"] and sets["generated"]["sequences"] == 12
    for comparison in sets.values():
        assert comparison["difference"] < 1e-5 < comparison["std of scores"]
        assert {len(rounds) for kind in comparison["seconds"].values() for rounds in kind.values()} == {2}
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


def test_padding_by_hand():
    """Pairs of (1, 2), (3, 1) tokens ...: 16 chosen and 16 rejected to a batch, or 8 pairs."""
    ids = [[0] * length for length in [1, 2, 3, 1] * 8 + [5, 4]]
    assert padded_tokens(ids, "rewardbench") == 16 * 3 + 1 * 5 + 16 * 2 + 1 * 4
    assert padded_tokens(ids, "trl") == 16 * 3 + 16 * 3 + 2 * 5
