"""The catalogue's rewards, schedules and searches in `rewardlab rl`: each trains two steps in the toy world."""

import math

import pytest
from rewardlab.benchmarks import garden

from tests.apps.conftest import steps_of, write

VERDICT = "verdict=tests.apps.assembly.policy_training.test_methods:verdict"
WORD = r"answer=(\w+)"
METHODS = {
    "majority": ["--reward", f"majority({WORD})"],
    "cross majority": ["--reward", VERDICT, f"majority({WORD}, cross=True)"],
    "trapo": ["--reward", VERDICT, f"trapo({WORD}, warm_up=1)"],
    "context": ["--reward", f"context(reward={VERDICT.partition('=')[2]})"],
    "order": ["--reward", VERDICT, f"order({WORD})"],
    "ufo": ["--reward", f"ufo({WORD})"],
    "first correct": ["--reward", VERDICT, "--watch", "first_correct"],
    "rear": ["--reward", "rear"],
    "hill": ["--reward", f"hill(reasoner=START, {WORD}, longest=4, n=2)"],
    "confucius3": ["--reward", VERDICT, "--advantage", "dr_grpo", "--advantage_transform", "confucius3"],
    "rlfr": ["--reward", VERDICT, "--advantage", "dr_grpo", "--advantage_transform", "rlfr"],
    "rorecomp": ["--reward", VERDICT, "--scheduler", "rorecomp(share=0.5)"],
    "gain_rl": ["--reward", VERDICT, "--curriculum", "gain_rl(width=1, speed=1)", "--category", "rank"],
    "ead": ["--reward", VERDICT, "--rollouts", "ead(start=2, decay=8.0)"],
    "latr": ["--reward", VERDICT, "--rollouts", "latr(second=0.01, gap=0.5, lookahead=2)"],
    "guide": ["--reward", "tests.apps.assembly.policy_training.test_catalogue:nothing", "--scaffold", "guide"],
    "dropout": ["--reward", "judge(kind=rubric, rubric=data, dropout=0.5, score=points, endpoint=URL, model=qwen)"],
    "rubric_arm": ["--reward", VERDICT, "rubric_arm(endpoint=URL, model=qwen)"],
}


def nothing():
    """A reward that no completion gets, so that all are generated with hints."""
    return lambda examples: [-float(len(one.completion)) for one in examples]


@pytest.fixture
def prompts(tmp_path):
    """Prompts of the garden with all columns that the rewards read; some have a label."""
    beside = {"reference": "the", "chunks": [1, 2], "order": [1, 2], "preference": "be short", "question": "bees?"}
    beside |= {"responses": ["wax", "no"]}
    beside |= {"rubrics": [{"criterion": f"Names {word}.", "points": 1} for word in ("bees", "ponds", "wax", "sun")]}
    rows = enumerate(garden.prompts(40, 0))
    return write(
        tmp_path / "prompts.jsonl",
        (
            {"prompt": list(one), "label": "the" if len(str(one)) % 2 else "", "rank": row % 3, **beside}
            for row, one in rows
        ),
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_two_steps(name, rl, prompts, rl_world, server, tmp_path):
    words = [word.replace("START", str(rl_world / "start")).replace("URL", server.url) for word in METHODS[name]]
    if name == "cross majority":
        both = garden.prompts(40, 0)
        rows = ({"prompt": list(a), "prompt_variants": [list(b)]} for a, b in zip(both[::2], both[1::2], strict=True))
        prompts = write(tmp_path / "variants.jsonl", rows)
    code, _, err, folder = rl(*words, "--max_steps", 2, data=prompts)
    assert code == 0, err
    rows = steps_of(folder)
    assert len(rows) == 2 and all(math.isfinite(row["loss"]) for row in rows)
    assert name != "guide" or [row["scaffold/hinted"] for row in rows] == [1.0, 1.0]
