"""`rewardlab rl --curriculum`: prompts by kind, the shares in the story of the steps, and a run that was cut off."""

import math

import pytest
from rewardlab.benchmarks import garden
from rewardlab.rm.types import prompt_text

from tests.apps.conftest import rollouts_of, steps_of, write

REWARD = "telling=tests.apps.assembly.policy_training.test_curriculum:telling"
KINDS = ("lively", "flat")


def kind_of(prompt: str) -> str:
    return "lively" if [*garden.TOPICS].index(garden.topic_of(prompt)) < 4 else "flat"


def telling():
    """Half of the answers to lively prompts are right, and all to flat ones."""
    return lambda examples: [
        float(kind_of(prompt_text(one.prompt)) == "flat" or len(one.completion.split()) % 2) for one in examples
    ]


@pytest.fixture
def prompts(tmp_path):
    rows = [{"prompt": list(one), "kind": kind_of(prompt_text(one))} for one in garden.prompts(40, 0)]
    return write(tmp_path / "prompts.jsonl", rows)


def test_the_shares_are_those_of_sec_over_the_advantages_that_were_written(rl, prompts):
    """What is flat teaches nothing: its share only falls."""
    flags = ["--reward", REWARD, "--curriculum", "sec(rate=0.5, temperature=0.2)", "--category", "kind"]
    code, _, err, folder = rl(*flags, "--max_steps", 4, "--rollout_steps", 1, data=prompts)
    assert code == 0, err
    value, rows = dict.fromkeys(KINDS, 0.0), rollouts_of(folder)
    for place, step in enumerate(steps_of(folder)):
        for kind in KINDS:
            own = [row for row in rows if row["step"] == place and kind_of(row["prompt"]) == kind]
            assert step[f"curriculum/prompts/{kind}"] * 4 == len(own)
            if own:
                value[kind] = 0.5 * value[kind] + 0.5 * sum(abs(row["advantage/estimate"][0]) for row in own) / len(own)
        total = sum(math.exp(one / 0.2) for one in value.values())
        for kind in KINDS:
            assert step[f"curriculum/share/{kind}"] == pytest.approx(math.exp(value[kind] / 0.2) / total, rel=1e-4)
    assert value["flat"] == 0 and value["lively"] > 0.2 and step["curriculum/share/flat"] < 0.3


def test_what_cannot_be_sample_from_is_told(rl, tmp_path):
    for flags, expected, message in (
        (["--curriculum", "dump(window=4)"], 2, "give --curriculum and --category together"),
        (["--curriculum", "dump", "--category", "kind"], 2, "the argument 'window' is missing"),
        (["--curriculum", "dump(window=4)", "--category", "topic"], 3, "no column 'topic'"),
        (["--curriculum", "dump(window=4)", "--category", "same"], 3, "is 'a' for all prompts"),
        (
            ["--curriculum", "dump(window=4)", "--category", "kind", "--watch", "curriculum=x"],
            2,
            "is also the name of the curriculum",
        ),
    ):
        prompts = enumerate(garden.prompts(8, 0))
        rows = [{"prompt": list(one), "kind": str(place % 2), "same": "a"} for place, one in prompts]
        code, _, err, folder = rl("--reward", REWARD, *flags, data=write(tmp_path / "some.jsonl", rows))
        assert code == expected and message in err and not folder.exists(), flags
